"""Jobs on a real Slurm of one machine, and manifests against the schemas of Kubernetes."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from samples import digit_pairs, write_lines, write_recipe
from slurm import Slurm, missing_programs, running_slurm
from transformer.bundle import Bundle, save_bundle
from transformer.launching.cluster_job import ClusterJob
from transformer.launching.kubernetes import manifests
from transformer.models import family
from transformer.tokenizers.config import TokenizerConfig
from transformer.tokenizers.pair import TokenizerPair, train_tokenizer

pytestmark = pytest.mark.interop
SETUP = f"export PATH={Path(sys.executable).parent}:$PATH PYTHONPATH={os.environ.get('PYTHONPATH', '')}"


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """A running Slurm; the tests are skipped where it is not installed."""
    if missing := missing_programs():
        pytest.skip(f"{', '.join(missing)} not found: apt-get install slurm-wlm munge")
    with running_slurm(tmp_path_factory.mktemp("slurm")) as running:
        yield running


def launch(slurm: Slurm, folder: Path, *words: object) -> str:
    """Submits a command by `transformer launch slurm` and returns the number of the job."""
    command = [sys.executable, "-m", "transformer", "launch", "slurm", "--setup", SETUP, *map(str, words)]
    return slurm.call(*command, cwd=folder).split()[-1]


def logs(folder: Path) -> str:
    return "".join(path.read_text() for path in folder.glob("*.log"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A translation model with random weights."""
    folder = tmp_path_factory.mktemp("model") / "model"
    tokenizer = train_tokenizer([line for pair in digit_pairs(80) for line in pair], TokenizerConfig(kind="bytes"))
    kind = family("transformer")
    vocabulary = tokenizer.vocab_size
    sizes = {"d_model": 16, "N": 1, "h": 2, "d_ff": 24, "src_seq_len": 64, "tgt_seq_len": 64}
    config = kind.config.model_validate({**sizes, "src_vocab_size": vocabulary, "tgt_vocab_size": vocabulary})
    pair = TokenizerPair(tokenizer, tokenizer)
    save_bundle(folder, Bundle(config, kind.build(config).eval(), pair, {"max_source_tokens": 60}))
    return folder


def test_an_array_translates_shards(slurm: Slurm, model: Path, tmp_path: Path) -> None:
    """Catches a script that Slurm refuses, tasks that do not share the work, and results other than one process has."""
    write_lines(tmp_path / "in.txt", [source for source, _ in digit_pairs(60)])
    words = ["translate", model, "--input", "in.txt"]
    array = ["--processes", 2, "--hours", 1, "--", *words, "--output", "out", "--shards", 6, "--join", "joined.txt"]
    job = launch(slurm, tmp_path, *array)
    assert slurm.wait(job) == ["COMPLETED", "COMPLETED"], logs(tmp_path)
    assert "process 0 of 2 (Slurm array)" in logs(tmp_path)
    assert "process 1 of 2 (Slurm array)" in logs(tmp_path)
    command = [sys.executable, "-m", "transformer", *map(str, words), "--output", "alone.txt"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "joined.txt").read_bytes() == (tmp_path / "alone.txt").read_bytes()


def test_ranks_train(slurm: Slurm, tmp_path: Path) -> None:
    """Catches ranks that Slurm's variables do not bring together, and a run that does not end."""
    write_recipe(tmp_path, 60, max_steps=3, validate_every=3, save_every=3)
    job = launch(slurm, tmp_path, "--processes", 2, "--hours", 1, "--", "train", "recipe.toml", "--run", "a run")
    assert slurm.wait(job) == ["COMPLETED"], logs(tmp_path)
    assert "2 ranks" in logs(tmp_path)
    assert (tmp_path / "a run" / "checkpoints" / "step-00000003").exists()


@pytest.mark.parametrize(
    "command", [["translate", "en-de", "--shards", "64"], ["train", "recipe.toml"], ["serve", "en-de"]]
)
def test_manifests_fit_the_schemas_of_kubernetes(command: list[str]) -> None:
    """Catches a field that Kubernetes does not have, or a value of another type; unknown fields are errors."""
    validation = pytest.importorskip("kubernetes_validate")
    job = ClusterJob(tuple(command), processes=3, gpus=1, cpus=4, memory="16Gi")
    for manifest in manifests(job, "image", "corpora"):
        validation.validate(manifest, validation.latest_version(), strict=True)
        manifest["spec"]["nonsense"] = 1
        with pytest.raises(validation.ValidationError):
            validation.validate(manifest, validation.latest_version(), strict=True)
