"""The small model that benchmarks read from the history of the repository."""

import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from samples import ROOT
from transformer.errors import BundleError

PROGRAM = ROOT / "benchmarks" / "decoding" / "small_model.py"
SMALL_MODEL: dict[str, Any] = runpy.run_path(str(PROGRAM))
fetch = SMALL_MODEL["fetch_small_model"]


def has_commit() -> bool:
    """Tells whether this checkout has the history that holds the model."""
    command = ["git", "-C", str(ROOT), "cat-file", "-e", f"{SMALL_MODEL['COMMIT']}:{SMALL_MODEL['BUNDLE_PATH']}"]
    return shutil.which("git") is not None and subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not has_commit(), reason="the history of the repository is not here")
def test_the_pinned_model_is_fetched_and_verified(tmp_path: Path) -> None:
    """Catches a pin that follows the bundled model to its next version, and a changed file that is not noticed."""
    folder = fetch(tmp_path / "model")
    assert '"d_model": 192' in (folder / "config.json").read_text(encoding="utf-8")
    assert (folder / "model.int8.safetensors").stat().st_size == 5_579_368
    assert fetch(folder) == folder  # read again, not fetched
    with (folder / "model.int8.safetensors").open("r+b") as file:
        file.seek(1000)
        file.write(b"damaged!")
    with pytest.raises(BundleError, match=r"model\.int8\.safetensors"):
        fetch(folder)


def test_another_model_is_refused(tiny_run: Path, tmp_path: Path) -> None:
    """Catches a benchmark that measures whatever model lies in the folder."""
    from transformer.storage.checkpoint_paths import resolve_model

    folder = shutil.copytree(resolve_model(tiny_run), tmp_path / "model")
    with pytest.raises(BundleError, match="holds another model; remove it"):
        fetch(folder)


def test_a_checkout_without_history_is_named(tmp_path: Path) -> None:
    """Catches a traceback of git, and an empty folder that a later run takes for the model."""
    repository = tmp_path / "repository"
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    with pytest.raises(BundleError, match=r"has no commit .* git fetch --unshallow"):
        fetch(tmp_path / "model", repository)
    assert not (tmp_path / "model").exists()


@pytest.mark.slow
def test_the_error_is_one_line(tmp_path: Path) -> None:
    """Catches a command that ends with a traceback."""
    (tmp_path / "model").mkdir()
    ended = subprocess.run(
        [sys.executable, str(PROGRAM), str(tmp_path / "model")], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert "is not a model" in ended.stderr
