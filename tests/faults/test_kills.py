"""SIGKILL at thirty moments of saves: a checkpoint can always be loaded, and resuming gives the same result."""

import random
import re
from pathlib import Path

import pytest

from commands import Commands
from faults.run_server import end_of
from samples import write_recipe
from transformer.training.checkpoint import CheckpointManager

STEPS = 6
SAVED = re.compile(r"os\.rename \S+ \S+/checkpoints/step-(\d{8})$")


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe that saves every second step and logs every third, so that checkpoints fall between lines of the log."""
    folder = tmp_path_factory.mktemp("recipe")
    settings = {"max_steps": STEPS, "save_every": 2, "log_every": 3, "validate_every": 3, "accumulation": 2}
    return write_recipe(folder, 120, dropout=0.3, **settings)


@pytest.fixture(scope="module")
def unbroken(commands: Commands, recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Folder of an uninterrupted run, and its operations on files of checkpoints, in order."""
    folder = tmp_path_factory.mktemp("unbroken")
    result = commands("train", recipe, "--run", folder / "run", log=folder / "log")
    assert result.returncode == 0, result.stderr
    return folder / "run", (folder / "log").read_text().splitlines()


def moments(operations: list[str]) -> list[int]:
    """Selects thirty operations: up to ten renames, up to ten on manifests, and others."""
    kinds: list[list[int]] = [[], [], []]
    for index, operation in enumerate(operations):
        kinds[0 if operation.startswith("os.rename") else 1 if "manifest" in operation else 2].append(index)
    draw = random.Random(11)
    chosen = [index for kind in kinds[:2] for index in draw.sample(kind, min(10, len(kind)))]
    return sorted([*chosen, *draw.sample(kinds[2], 30 - len(chosen))])


@pytest.mark.parametrize("half", [0, 1])
def test_killed_at_any_moment_of_a_save(
    commands: Commands, recipe: Path, unbroken: tuple[Path, list[str]], tmp_path: Path, half: int
) -> None:
    """Catches a moment without an intact checkpoint, a temporary folder used as one, and state that is not restored.

    Every second time, the file that is being written is truncated to half, as if the write had been interrupted.
    """
    for torn, index in enumerate(moments(unbroken[1])[half::2]):
        assert_survives(commands, recipe, unbroken, tmp_path / f"killed-at-{index}", index, torn=bool(torn % 2))


@pytest.mark.soak
@pytest.mark.parametrize("torn", [False, True])
def test_killed_at_every_moment_of_a_save(
    commands: Commands, recipe: Path, unbroken: tuple[Path, list[str]], tmp_path: Path, *, torn: bool
) -> None:
    """Catches errors that thirty moments miss: the process is killed at each of hundreds of file operations."""
    for index in range(len(unbroken[1])):
        assert_survives(commands, recipe, unbroken, tmp_path / f"killed-at-{index}", index, torn=torn)


def assert_survives(
    commands: Commands, recipe: Path, unbroken: tuple[Path, list[str]], run: Path, index: int, *, torn: bool
) -> None:
    """Kills a run at a file operation; the same command must then end like the uninterrupted run."""
    expected_run, operations = unbroken
    killed = commands("train", recipe, "--run", run, kill_at=index, torn=torn)
    assert killed.returncode == -9, killed.stderr
    saved_steps = [int(match[1]) for match in map(SAVED.match, operations[:index]) if match]
    newest = CheckpointManager(run).latest()
    assert (newest.progress.step if newest else 0) == max(saved_steps, default=0)
    resumed = commands("train", recipe, "--run", run)
    assert resumed.returncode == 0, resumed.stderr
    assert (f"continues at step {max(saved_steps, default=0)}" in resumed.stderr) == (
        0 < max(saved_steps, default=0) < STEPS
    )
    assert end_of(run) == end_of(expected_run), operations[index]
    names = [{path.name for path in (folder / "checkpoints").iterdir()} for folder in (run, expected_run)]
    assert names[0] == names[1]
