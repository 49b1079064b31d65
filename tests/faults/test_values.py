"""Values without measure: each is one line and exit code 2, through the real command, before anything is written."""

import re
import sys
from pathlib import Path

import pytest

from commands import Commands
from samples import write_recipe


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe for a run of two steps."""
    return write_recipe(tmp_path_factory.mktemp("corpus"), 60, max_steps=2)


REFUSED = {
    "model.N=9999": "model.N=9999 must be less than or equal to 1000",
    "model.encoder_layers=1000000000": "model.encoder_layers=1000000000 must be less than or equal to 1000",
    "model.d_model=1000000000": "a model of [\\d,]+ parameters needs",
    "model.d_model=100000000000000000000": "d_model=100000000000000000000 is too large for the tensors of any machine",
    "model.d_ff=100000000000": "a model of [\\d,]+ parameters needs",
    "model.src_seq_len=100000000000": "a model of [\\d,]+ parameters needs",
    "model.tgt_seq_len=100000000000000000000": "tgt_seq_len=100000000000000000000 is too large for the tensors of any",
    "training.threads=1000000": "training.threads=1000000 must be less than or equal to 1024",
    "training.accumulation=1000000000000": "training.accumulation=1000000000000 must be less",
    "training.stop_seconds=1e300": "training.stop_seconds=1e\\+300 must be less than or equal to",
    "training.rank_seconds=1e300": "training.rank_seconds=1e\\+300 must be less than or equal to",
    "data.workers=1000000": "data.workers=1000000 must be less than or equal to 1024",
    "data.weights=[1e-300]": "data.weights=\\[1e-300\\] leave none of \\d+ examples in an epoch; raise them",
    "data.weights=[0.001]": "data.weights=\\[0.001\\] leave none of \\d+ examples in an epoch; raise them",
    "tokenizer.vocab_size=99999999999": "tokenizer.vocab_size=99999999999 must be less than or equal to 4000000",
    "tokenizer.min_frequency=99999999999999999999": "min_frequency=99999999999999999999 must be less",
}
"""Settings of a recipe, and a pattern of their messages."""


@pytest.mark.parametrize("setting", REFUSED)
def test_a_setting_beyond_any_machine(commands: Commands, recipe: Path, tmp_path: Path, setting: str) -> None:
    """Catches a traceback, an abort of a library, and a process that grows until the system kills it."""
    result = commands("train", recipe, "--run", tmp_path / "run", "--set", setting, memory=4 << 30, seconds=120)
    assert (result.returncode, result.stderr.count("error: ")) == (2, 1), result.stderr
    assert re.search(REFUSED[setting], result.stderr.splitlines()[-1])
    assert not any(tmp_path.glob("run/checkpoints/*"))


def test_workers_of_a_translator_beyond_any_machine(commands: Commands, tiny_run: Path) -> None:
    """Catches a million processes."""
    result = commands("translate", tiny_run, "--workers", 1_000_000, stdin="one\n", memory=4 << 30, seconds=120)
    assert (result.returncode, result.stdout) == (2, "")
    assert (
        result.stderr == "error: workers=1000000 is above 1024; choose 1, or more to translate in several processes\n"
    )


@pytest.mark.skipif(sys.platform != "linux", reason="limits of processes differ elsewhere")
def test_threads_that_the_system_refuses(commands: Commands, recipe: Path, tmp_path: Path) -> None:
    """Catches the abort of a library that cannot start its threads, with its own words or with none."""
    for setting, advice in ((), ""), (("--set", "training.threads=2"), ", or set training.threads lower"):
        call = ("train", "--source", recipe.with_name("src"), "--target", recipe.with_name("tgt"), *setting)
        result = commands(*call, "--run", tmp_path / "run", processes=2)
        assert (result.returncode, result.stderr.count("\n")) == (2, 1), result.stderr
        assert result.stderr.endswith(
            f"lets this program start only 1; raise its limit of processes (ulimit -u){advice}\n"
        )


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("train", "--run"),
        ("prepare", "--output"),
        ("average", "--output"),
        ("export", "--output"),
        ("demo", "--folder"),
    ],
)
def test_an_empty_folder_name(commands: Commands, recipe: Path, tmp_path: Path, command: str, option: str) -> None:
    """Catches an unset variable of a shell script that makes the current folder the one to be written."""
    arguments = {"train": [recipe], "prepare": [recipe], "average": [tmp_path], "export": [tmp_path], "demo": []}
    result = commands(command, *arguments[command], option, "", cwd=tmp_path)
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "it is empty; give a folder" in result.stderr
    assert not any(tmp_path.iterdir())
