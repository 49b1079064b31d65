"""Published models are used by name: downloaded once, checked, imported and kept."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from commands import run
from hub_server import COMMIT, HubServer
from inspected import tiny
from transformer.bundle import Bundle
from transformer.bundle.hub import PublishedFile, download, find_published, needed_files
from transformer.bundle.huggingface import write_published
from transformer.bundle.kept_models import kept_models, kept_models_folder
from transformer.cli.hub import keep_model
from transformer.errors import BundleError
from transformer.pipelines.auto import read_model
from transformer.tokenizers.config import TokenizerConfig
from transformer.tokenizers.pair import TokenizerPair, train_tokenizer

NAME = "company/small-gpt"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A published model with files beside it that are not needed, or would do harm."""
    folder = tmp_path_factory.mktemp("published") / "model"
    tokenizer = train_tokenizer(["a b ab ba"], TokenizerConfig(vocab_size=300))
    bundle = tiny("gpt", vocab_size=tokenizer.vocab_size)
    write_published(Bundle(bundle.config, bundle.model, TokenizerPair(tokenizer, tokenizer)), folder)
    (folder / "modeling_gpt.py").write_text("raise SystemExit('code of the repository runs')")
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x02.")
    (folder / "onnx").mkdir()
    (folder / "onnx" / "model.onnx").write_bytes(b"x")
    return folder


@pytest.fixture
def hub(published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[HubServer]:
    """A Hub on this machine, and empty caches."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HUB_OFFLINE", "HF_TOKEN", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("TRANSFORMER_MODELS", str(tmp_path / "kept"))
    with HubServer({NAME: published}) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        yield server


def test_the_server_is_like_the_hub(hub: HubServer, published: Path, tmp_path: Path) -> None:
    """Catches a server that is easier than the Hub: the Hub's own library must get the same files from it."""
    script = (
        "from huggingface_hub import HfApi, hf_hub_download\n"
        f"for file in HfApi().model_info({NAME!r}, files_metadata=True).siblings:\n"
        f"    hf_hub_download({NAME!r}, file.rfilename, local_dir={str(tmp_path / 'x')!r})"
    )
    subprocess.run([sys.executable, "-c", script], check=True, env={**os.environ, "HF_HUB_DISABLE_PROGRESS_BARS": "1"})
    for file in published.rglob("*"):
        if file.is_file():
            assert (tmp_path / "x" / file.relative_to(published)).read_bytes() == file.read_bytes()


def test_a_name_downloads_a_model_once(hub: HubServer, published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches files that are not needed, a token sent to the storage, another revision, and a second download."""
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    options = ("generate", NAME, "ab", "--max-tokens", 3, "--precision", "float32")
    first = run(*options)
    assert first.returncode == 0, first.stderr
    for fact in ("company/small-gpt is not on this machine", "license    cc-by-4.0", "en, de", COMMIT[:12]):
        assert fact in first.stderr
    fetched = [path for path in hub.paths() if "api" not in path]
    weights = [path for path in fetched if path.startswith("/storage")]
    assert weights == ["/storage/company--small-gpt!model.safetensors"]
    assert not [path for path in fetched if path.endswith((".py", ".bin", ".onnx"))]
    tokens = {path.startswith("/storage"): token for _, path, _, token in hub.requests}
    assert tokens == {False: "Bearer hf_secret", True: None}
    n_requests = len(hub.requests)
    again = run(*options)
    assert again.returncode == 0
    assert again.stdout == first.stdout == run("generate", published, *options[2:]).stdout
    assert "is not on this machine" not in again.stderr
    assert len(hub.requests) == n_requests
    kept = read_model(Path(NAME), None)
    assert kept.provenance["imported"]["revision"] == COMMIT
    assert kept.provenance["imported"]["folder"] == NAME
    listed = json.loads(run("models", "--json").stdout)[NAME]
    assert listed["license"] == "cc-by-4.0"
    assert sorted(path.name for path in kept_models_folder().glob("*/*")) == ["small-gpt"]
    removed = run("models", "--remove", NAME)
    assert removed.stdout.startswith(f"removed {NAME}, ")
    assert kept_models() == {}
    assert not any(kept_models_folder().iterdir())
    assert "not kept" in run("models", "--remove", NAME).stderr


def test_a_revision_is_kept_beside_others(hub: HubServer, tmp_path: Path) -> None:
    """Catches a revision that is taken for a part of the name, and one that replaces the main one."""
    assert f"{NAME}@v1 is kept in" in run("import", f"{NAME}@v1").stdout
    assert f"/api/models/{NAME}/revision/v1" in [path for _, path, _, _ in hub.requests]
    assert [*kept_models()] == [f"{NAME}@v1"]
    result = run("import", NAME, "--output", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    assert [*kept_models()] == [NAME, f"{NAME}@v1"]
    assert (tmp_path / "out" / "manifest.json").is_file()
    assert "has no such revision" in run("import", f"{NAME}@v2").stderr
    assert "add --output FOLDER" in run("import", tmp_path / "out").stderr


@pytest.mark.parametrize(
    ("refusal", "message"),
    [
        ((401, "RepoNotFound", {}), "has no public model company/other; check its name; for a private one, log in"),
        ((403, "GatedRepo", {}), "company/other is open to those who accept its terms on 127.0.0.1"),
        ((404, "RepoNotFound", {}), "has no public model company/other"),
        ((429, "", {"Retry-After": "60"}), "has had too many requests; try again in some minutes"),
        ((500, "", {}), "answers 500 when asked for company/other; try again later"),
    ],
)  # fmt: skip
def test_refusals_are_one_line(hub: HubServer, refusal: tuple[int, str, dict[str, str]], message: str) -> None:
    """Catches a traceback, a cause that is lost, and advice that does not fit."""
    hub.refusal = refusal
    with pytest.raises(BundleError, match=message) as raised:
        find_published("company/other")
    assert "\n" not in str(raised.value)


def test_without_a_connection_the_way_is_named(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a host that cannot be reached, offline mode, and a mistyped folder that is asked for on the Hub."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    refused = run("generate", NAME, "ab")
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: 127.0.0.1:9 cannot be reached for company/small-gpt (")
    assert refused.stderr.count("\n") == 1
    offline = subprocess.run(
        [sys.executable, "-m", "transformer", "generate", NAME, "ab"],
        check=False, capture_output=True, text=True, env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert "not on this machine, and HF_HUB_OFFLINE forbids to download it" in offline.stderr
    assert "does not exist" in run("generate", "runs/a/b", "ab").stderr


def test_models_that_are_not_read_are_refused_before_their_weights(
    hub: HubServer, published: Path, tmp_path: Path
) -> None:
    """Catches gigabytes that are downloaded for nothing."""
    other = tmp_path / "other"
    shutil.copytree(published, other)
    (other / "config.json").write_text('{"model_type": "bloom", "architectures": ["BloomForCausalLM"]}')
    hub.repositories["company/bloom"] = other
    result = run("generate", "company/bloom", "a")
    assert "company/bloom: config.json: model_type='bloom' is not known" in result.stderr
    assert not [path for path in hub.paths() if "/storage" in path]
    (other / "model.safetensors").unlink()
    (other / "pytorch_model.bin").unlink()
    with pytest.raises(BundleError, match=r"has no config.json with model.safetensors or pytorch_model.bin"):
        find_published("company/bloom")


def test_pickled_weights_are_converted(hub: HubServer, published: Path, tmp_path: Path) -> None:
    """Catches a model with pickled weights alone that is not read, or gives other results."""
    folder = tmp_path / "pickled"
    shutil.copytree(published, folder)
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    hub.repositories["company/pickled"] = folder
    options = ("ab", "--max-tokens", 3, "--precision", "float32")
    result = run("generate", "company/pickled", *options)
    assert result.stdout == run("generate", published, *options).stdout
    assert "it has pickled weights alone, which are converted in a process" in result.stderr


def test_large_downloads_are_asked_for(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches gigabytes that a user at a terminal did not want, and a question where nobody answers."""
    monkeypatch.setattr("transformer.cli.hub.LARGE", 1)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("typer.confirm", lambda *_, **__: False)
    with pytest.raises(BundleError, match=r"company/small-gpt was not downloaded"):
        keep_model(NAME)
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    keep_model(NAME)
    assert [*kept_models()] == [NAME]


def test_a_broken_connection_is_continued(
    hub: HubServer, published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a file that starts again, or is put together wrongly, and a count that is not its size."""
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 50)
    hub.break_at = 100
    model, arrived = find_published(NAME), 0

    def advance(count: int) -> None:
        nonlocal arrived
        arrived += count

    download(model, tmp_path / "files", advance)
    assert (tmp_path / "files" / "model.safetensors").read_bytes() == (published / "model.safetensors").read_bytes()
    assert [part for method, path, part, _ in hub.requests if "/storage" in path and method == "GET"] == [
        None, "bytes=100-"
    ]  # fmt: skip
    assert arrived == model.size
    assert not [*(tmp_path / "files").glob("*.part")]


def test_a_killed_download_is_resumed(hub: HubServer, published: Path) -> None:
    """Catches a download that starts again after the process was killed."""
    held, released = threading.Event(), threading.Event()
    hub.hold = lambda: (held.set(), released.wait(60))
    small_chunks = "from huggingface_hub import constants; constants.DOWNLOAD_CHUNK_SIZE = 50"
    script = (
        f"{small_chunks}; import sys; sys.argv[1:] = ['import', {NAME!r}]; from transformer.cli import main; main()"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL)
    assert held.wait(100)
    part = kept_models_folder() / "company" / ".small-gpt.download" / f"model.safetensors.{COMMIT}.part"
    while not (part.exists() and part.stat().st_size):
        assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    released.set()
    hub.hold = lambda: None
    size = part.stat().st_size
    assert 0 < size < (published / "model.safetensors").stat().st_size
    result = run("import", NAME)
    assert result.returncode == 0, result.stderr
    assert f"bytes={size}-" in [part for _, _, part, _ in hub.requests]


def test_damaged_files_are_refused(hub: HubServer, tmp_path: Path) -> None:
    """Catches weights that are taken although they are not the published ones, and damage that stays."""
    hub.damage = True
    with pytest.raises(BundleError, match=r"model.safetensors was damaged during the download"):
        download(find_published(NAME), tmp_path)
    hub.damage = False
    download(find_published(NAME), tmp_path)
    small = PublishedFile("config.json", 5, None, "ce013625030ba8dba906f756967f9e9ca394464a")  # of git: hello, \n
    (tmp_path / "a").write_text("hellp")
    with pytest.raises(BundleError, match=r"config.json was damaged"):
        small.check(tmp_path / "a")


def test_git_ids_are_those_of_git(tmp_path: Path) -> None:
    """Catches another hash than that of `git hash-object`."""
    (tmp_path / "a").write_text("hello\n")
    PublishedFile("a", 6, None, "ce013625030ba8dba906f756967f9e9ca394464a").check(tmp_path / "a")


def test_weights_are_chosen_once() -> None:
    """Catches weights in two formats, an index without its shards, and files of other programs."""
    small = {"config.json", "tokenizer.json", "1_Pooling/config.json"}
    others = {"tf_model.h5", "rust_model.ot", "README.md", "modeling.py", "a/b/config.json", "../config.json"}
    pickled = {"pytorch_model.bin"}
    shards = {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"}
    assert needed_files(small | others | pickled | {"model.safetensors"}) == small | {"model.safetensors"}
    assert needed_files(small | shards | pickled) == small | shards
    assert needed_files(small | {"model.safetensors", *shards}) == small | {"model.safetensors"}
    assert needed_files(small | pickled | {"model.safetensors.index.json"}) == small | pickled
    assert needed_files(small | others) == set()


@given(st.text(alphabet="./ab\\\n-", max_size=12))
def test_names_never_lead_out_of_the_folder(name: str) -> None:
    """Catches a path of a hostile repository that is written outside of its folder."""
    for chosen in needed_files({f"{name}.json", name, "model.safetensors"}):
        path = Path("/folder") / chosen
        assert ".." not in path.parts
        assert len(path.parts) <= 4
        assert path.is_relative_to("/folder")


@pytest.mark.parametrize(
    "command",
    [
        ("translate", "NAME", "a"), ("generate", "NAME", "a"), ("classify", "NAME", "a"), ("embed", "NAME", "a"),
        ("fill", "NAME", "a [MASK]"), ("inspect", "NAME", "a", "--no-open"), ("serve", "NAME"), ("info", "NAME"),
        ("evaluate", "NAME", "--source", "A", "--reference", "A"), ("score", "NAME", "--source", "A", "--target", "A"),
        ("perplexity", "NAME", "A"), ("train", "--text", "A", "--from", "NAME", "--run", "R"), ("import", "NAME"),
    ],
    ids=lambda command: command[0],
)  # fmt: skip
def test_every_command_takes_a_name(hub: HubServer, tmp_path: Path, command: tuple[str, ...]) -> None:
    """Catches a command that does not look for a model on the Hub."""
    (tmp_path / "a").write_text("a b\n")
    paths = {"NAME": "company/none", "A": str(tmp_path / "a"), "R": str(tmp_path / "run")}
    result = run(*(paths.get(part, part) for part in command))
    assert result.returncode == 2
    assert "has no public model company/none" in result.stderr


def test_training_starts_from_a_name(hub: HubServer, tmp_path: Path) -> None:
    """Catches a model that is kept in a form that cannot be trained further."""
    (tmp_path / "text").write_text("a b\nb a ab\n" * 1000)
    options = ("--run", tmp_path / "run", "--set", "training.max_steps=1")
    result = run("train", "--text", tmp_path / "text", "--from", NAME, *options)
    assert result.returncode == 0, result.stderr
    assert read_model(tmp_path / "run", None).provenance["start"]["model"] == NAME
