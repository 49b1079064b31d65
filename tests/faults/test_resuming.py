"""Runs that are killed, damaged, changed or out of disk space, and resumed, with the real command."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from commands import Commands
from faults.run_server import end_of
from samples import digit_pairs, write_lines, write_recipe
from transformer.run.recipe import load_recipe
from transformer.training.checkpoint import CheckpointManager

EPOCH = 6
"""Number of batches per epoch of the recipe below."""
SETTINGS: dict[str, object] = {
    "max_steps": EPOCH + 5, "batch_tokens": 110, "save_every": 1, "log_every": 3, "validate_every": "epoch",
    "accumulation": 2, "label_smoothing": 0.2,
}  # fmt: skip


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """A recipe with dropout and accumulation, and with checkpoints between two lines of the log."""
    return write_recipe(tmp_path, 120, dropout=0.3, **SETTINGS)


@pytest.fixture
def begun(commands: Commands, recipe: Path, tmp_path: Path) -> Path:
    """Folder of a run of four steps."""
    result = commands("train", recipe, "--run", tmp_path / "run", *settings(max_steps=4, decay_steps=EPOCH + 5))
    assert result.returncode == 0, result.stderr
    return tmp_path / "run"


def settings(**values: object) -> list[str]:
    return [part for key, value in values.items() for part in ("--set", f"training.{key}={value}")]


def refused(result: "subprocess.CompletedProcess[str]") -> str:
    """Returns the error message of a command, which must be a single line without a traceback."""
    assert result.returncode == 2
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


@pytest.mark.parametrize("save_every", [1, 2])
def test_killed_and_continued_equals_the_unbroken_run(
    commands: Commands, recipe: Path, tmp_path: Path, save_every: int
) -> None:
    """Catches a data position, dropout, Adam state or line of the log that is not restored, to the bit.

    Runs are killed after step 1, within an epoch, at and around its end, and twice in one epoch between saves.
    """
    kills = [1, 3, EPOCH - 1, EPOCH, EPOCH + 1] if save_every == 1 else [3, 5, EPOCH + 3]
    unbroken = commands("train", recipe, "--run", tmp_path / "whole", *settings(save_every=save_every))
    assert unbroken.returncode == 0, unbroken.stderr
    assert end_of(tmp_path / "whole")["progress"]["position"] == {"epoch": 1, "index": 5}
    for step in kills:
        part = commands(
            "train", recipe, "--run", tmp_path / "parts", *settings(save_every=save_every), kill_before_step=step
        )
        assert part.returncode == -9, part.stderr
    resumed = commands("train", recipe, "--run", tmp_path / "parts", *settings(save_every=save_every))
    assert resumed.returncode == 0, resumed.stderr
    assert f"continues at step {kills[-1] - kills[-1] % save_every}" in resumed.stderr
    assert end_of(tmp_path / "parts") == end_of(tmp_path / "whole")


def test_segmentations_continue_within_an_epoch(commands: Commands, recipe: Path, tmp_path: Path) -> None:
    """Catches words of a resumed epoch that are segmented as in another one."""
    call = ("train", recipe, *settings(max_steps=12, batch_tokens=220), "--set", "tokenizer.dropout=0.4", "--run")
    assert commands(*call, tmp_path / "whole").returncode == 0
    assert commands(*call, tmp_path / "parts", kill_before_step=11).returncode == -9
    assert commands(*call, tmp_path / "parts").returncode == 0
    end = end_of(tmp_path / "parts")
    assert end["progress"]["position"]["epoch"] == 1
    assert end["progress"]["position"]["index"] > 2
    assert end == end_of(tmp_path / "whole")


def test_on_several_threads_the_order_and_the_counters_are_equal(
    commands: Commands, recipe: Path, tmp_path: Path
) -> None:
    """Catches an order of examples that depends on threads; sums of floats may differ in the last digit."""
    ends: list[dict[str, Any]] = []
    for name, kills in (("whole", []), ("parts", [EPOCH])):
        call = ("train", recipe, "--run", tmp_path / name, *settings(threads=2, log_every=1, save_every=4, max_steps=8))
        for step in kills:
            assert commands(*call, kill_before_step=step).returncode == -9
        result = commands(*call)
        assert result.returncode == 0, result.stderr
        end = end_of(tmp_path / name)
        rows = [(row["kind"], row["step"], row.get("target_tokens"), row.get("learning_rate")) for row in end["rows"]]
        counters = {key: end["progress"][key] for key in ("step", "position", "examples", "target_tokens", "stale")}
        ends.append({"rows": rows, "counters": counters})
    assert ends[0] == ends[1]


DAMAGES = {
    "cut short": ("optimizer.safetensors", lambda content: content[: len(content) // 2]),
    "a bit of the weights": ("model/model.safetensors", lambda content: content[:-9] + b"?" + content[-8:]),
    "a bit of the manifest": ("manifest.json", lambda content: content.replace(b'"format": 1', b'"format": 3')),
    "gone": ("progress.json", None),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_newest_checkpoint_gives_way_to_the_one_before(
    commands: Commands, recipe: Path, begun: Path, name: str
) -> None:
    """Catches damage that is loaded, and damage that ends a run although an earlier checkpoint is intact."""
    file, change = DAMAGES[name]
    damage(begun / "checkpoints" / "step-00000004" / file, change)
    again = commands("train", recipe, "--run", begun)
    assert again.returncode == 0, again.stderr
    (warning,) = (line for line in again.stderr.splitlines() if line.startswith("warning: "))
    assert str(begun / "checkpoints" / "step-00000004") in warning
    assert "; continuing from step 3" in warning
    assert len({path.name for path in (begun / "checkpoints").iterdir()}) <= 3


def damage(path: Path, change: Any) -> None:
    if change is None:
        path.unlink()
    else:
        path.write_bytes(change(path.read_bytes()))


def test_no_whole_checkpoint_is_an_error(commands: Commands, recipe: Path, begun: Path) -> None:
    """Catches a run that silently restarts from scratch after weeks of work."""
    for step in begun.glob("checkpoints/step-*"):
        (step / "optimizer.safetensors").unlink()
    message = refused(commands("train", recipe, "--run", begun))
    assert "has no checkpoint that is whole" in message
    assert "step-00000004/optimizer.safetensors: No such file or directory; the checkpoint is incomplete" in message
    assert "start anew with --fresh" in message
    allowed = commands("train", recipe, "--run", begun, "--allow-changed", "optimizer")
    assert allowed.returncode == 0, allowed.stderr
    assert "warning: the checkpoint has no optimizer.safetensors; Adam starts with an empty state" in allowed.stderr
    assert "continues at step 4" in allowed.stderr


def test_a_run_whose_checkpoints_were_removed_says_that_it_starts_anew(
    commands: Commands, recipe: Path, begun: Path
) -> None:
    """Catches weeks of training that are begun again without a word."""
    shutil.rmtree(begun / "checkpoints")
    result = commands("train", recipe, "--run", begun, *settings(max_steps=1))
    assert result.returncode == 0, result.stderr
    warning = f"warning: {begun} has the log of an earlier run, but none of its checkpoints; training starts anew"
    assert result.stderr.splitlines().count(warning) == 1
    assert "starts anew" not in commands("train", recipe, "--run", begun, *settings(max_steps=2)).stderr
    again = commands("train", recipe, "--run", begun.with_name("first"), *settings(max_steps=1))
    assert "starts anew" not in again.stderr


def test_a_damaged_best_is_looked_for_anew(commands: Commands, recipe: Path, tmp_path: Path) -> None:
    """Catches a run whose best model cannot be loaded."""
    run = tmp_path / "run"
    call = ("train", recipe, "--run", run, *settings(validate_every=2, best_metric='"loss"', learning_rate=0.01))
    assert commands(*call, kill_before_step=4).returncode == -9
    best = CheckpointManager(run).latest().progress.best_step
    assert best == 4
    assert commands(*call, kill_before_step=5).returncode == -9  # the newest checkpoint is not the best now
    damage(run / f"checkpoints/step-{best:08d}/model/config.json", None)
    again = commands(*call)
    assert (
        "config.json: No such file or directory; the checkpoint is incomplete; it was the best checkpoint; "
        in again.stderr
    )
    assert again.returncode == 0
    assert commands("info", run).returncode == 0


def test_another_recipe_is_refused_with_both_values(commands: Commands, recipe: Path, begun: Path) -> None:
    """Catches a run that silently continues with another model or seed, or without a key."""
    before = (begun / "recipe.toml").read_bytes()
    other = [*settings(seed=9, max_steps=9, patience=3, log_every=2, keep_last=1), "--set", "model.dropout=0.2"]
    message = refused(commands("train", recipe, "--run", begun, *other))
    assert "holds a run of another recipe (model.dropout was 0.3, now 0.2; training.seed was 1, now 9)" in message
    assert (begun / "recipe.toml").read_bytes() == before
    recipe.write_text(recipe.read_text().replace("label_smoothing = 0.2\n", "").replace("accumulation = 2\n", ""))
    message = refused(commands("train", recipe, "--run", begun))
    assert "of another recipe (training.label_smoothing was 0.2, now 0.1); start" in message  # accumulation is kept
    allowed = commands("train", recipe, "--run", begun, "--allow-changed", "training.label_smoothing")
    assert allowed.returncode == 0, allowed.stderr
    for key in ("training.sed", "tokenizer.vocab_size"):
        message = refused(commands("train", recipe, "--run", begun, "--allow-changed", key))
        assert f"--allow-changed {key!r} is not a key that can change in a run" in message
    message = refused(
        commands(
            "train", recipe, "--run", begun, "--set", "model.d_ff=25",
            *(f"--allow-changed={key}" for key in ("model.d_ff", "training.label_smoothing")),
        )
    )  # fmt: skip
    assert "linear_1.weight is float32 of 24 x 16, by the configuration float32 of 25 x 16" in message


def test_an_edited_text_is_refused_by_name(commands: Commands, recipe: Path, begun: Path, tmp_path: Path) -> None:
    """Catches a run that continues with other examples at the same indices; a moved file is the same text."""
    data = load_recipe(recipe).data
    moved = Path(shutil.copy(data.source, tmp_path / "moved"))
    with Path(data.target).open("a") as file:
        file.write("1 2 3\n")
    message = refused(commands("train", recipe, "--run", begun, "--source", moved))
    assert f"was trained on other texts: data.target ({data.target}) changed; restore them" in message
    write_lines(Path(data.target), [target for _, target in digit_pairs(120)])
    assert commands("train", recipe, "--run", begun, "--source", moved, *settings(max_steps=5)).returncode == 0
    edited = [target.replace("7", "8") for _, target in digit_pairs(120)]
    write_lines(Path(data.target), edited)
    refused(commands("train", recipe, "--run", begun, *settings(max_steps=6)))
    allowed = commands("train", recipe, "--run", begun, "--allow-changed", "data.target", *settings(max_steps=6))
    assert allowed.returncode == 0, allowed.stderr
    assert "continues at step 5" in allowed.stderr


def test_fresh_starts_beside_and_removes_nothing(commands: Commands, recipe: Path, begun: Path) -> None:
    """Catches --fresh that overwrites weeks of work."""
    before = {path: path.read_bytes() for path in begun.rglob("*") if path.is_file()}
    for number in (2, 3):
        result = commands("train", recipe, "--run", begun, "--fresh", *settings(max_steps=1, seed=number))
        assert result.returncode == 0, result.stderr
        assert f"starts anew in {begun}-{number}" in result.stderr
        assert (begun.with_name(f"{begun.name}-{number}") / "checkpoints" / "step-00000001").is_dir()
    assert {path: path.read_bytes() for path in begun.rglob("*") if path.is_file()} == before


def test_a_run_that_is_refused_leaves_nothing(commands: Commands, recipe: Path, tmp_path: Path) -> None:
    """Catches empty folders and lock files that accumulate, and a user's folder that is removed."""
    paths = {path.name for path in tmp_path.iterdir()}
    for wrong in (["--source", tmp_path / "none"], ["--set", "model.tgt_seq_len=1"], ["--set", "model.h=3"]):
        refused(commands("train", recipe, "--run", tmp_path / "a" / "b", *wrong))
        assert {path.name for path in tmp_path.iterdir()} == paths
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "note").write_text("mine")
    refused(commands("train", recipe, "--run", tmp_path / "mine", "--set", "model.tgt_seq_len=1"))
    assert {path.name for path in (tmp_path / "mine").iterdir()} - {".lock"} == {"note"}


def test_a_full_disk_is_one_line_and_the_checkpoint_before_stays(
    commands: Commands, recipe: Path, tmp_path: Path
) -> None:
    """Catches a traceback, an incomplete checkpoint that counts, and an intact one removed to free space."""
    run = tmp_path / "run"
    result = commands("train", recipe, "--run", run, small_files_from_step=3)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert "step-00000004 could not be written: " in result.stderr.splitlines()[-1]
    assert "File too large" in result.stderr.splitlines()[-1]
    assert "the checkpoints before it are intact; free disk space" in result.stderr.splitlines()[-1]
    assert CheckpointManager(run).latest().progress.step == 3
    assert not list((run / "checkpoints").glob(".*"))
    again = commands("train", recipe, "--run", run)
    assert "continues at step 3" in again.stderr


def test_a_full_disk_really_full(commands: Commands, recipe: Path, tmp_path: Path) -> None:
    """Catches what a file size limit does not: a folder, a rename or a log that fails on a full disk."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if os.geteuid() or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting a small tmpfs is not permitted here")
    try:
        result = commands("train", recipe, "--run", disk / "run", *settings(keep_last=99))
        assert result.returncode == 2
        assert "Traceback" not in result.stderr
        assert "No space left on device" in result.stderr.splitlines()[-1]
        step = CheckpointManager(disk / "run").latest().progress.step
        assert step >= 1
        assert not list((disk / "run" / "checkpoints").glob(".*"))
        subprocess.run(["mount", "-o", "remount,size=9m", str(disk)], check=True)
        again = commands("train", recipe, "--run", disk / "run", *settings(keep_last=99))
        assert again.returncode == 0, again.stderr
        assert f"continues at step {step}" in again.stderr
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_nan_stops_before_the_step_and_names_the_place(commands: Commands, recipe: Path, tmp_path: Path) -> None:
    """Catches NaN in the parameters or in a checkpoint, and a message that does not name the batch."""
    explode = settings(learning_rate=1e37, schedule="constant", warmup_steps=1)
    result = commands("train", recipe, "--run", tmp_path / "run", *explode)
    assert result.returncode == 2
    message = result.stderr.splitlines()[-1]
    assert "step 2: the loss is nan (gradient not finite in " in message
    assert (
        " parameters, first in model.encoder.layers.0.self_attention_block.W_q.weight); batch 2 of epoch 1, examples "
        in message
    )
    assert CheckpointManager(tmp_path / "run").latest().progress.step == 1
    skipping = commands("train", recipe, "--run", tmp_path / "skip", *explode, *settings(skip_nonfinite=2))
    assert skipping.returncode == 2
    assert "batch 4 of epoch 1" in skipping.stderr.splitlines()[-1]
    rows = [json.loads(line) for line in (tmp_path / "skip" / "metrics.jsonl").read_text().splitlines()]
    assert [(row["kind"], row["step"]) for row in rows] == [("skipped", 2), ("skipped", 2)]


def test_ctrl_c_while_the_data_are_prepared(commands: Commands, recipe: Path, tmp_path: Path) -> None:
    """Catches a traceback when there is nothing to save."""
    result = commands("train", recipe, "--run", tmp_path / "run", interrupt_data=True)
    assert (result.returncode, result.stderr.strip()) == (130, "")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("signals", "seconds", "reason"), [(1, 0.3, "within 0.3 s"), (2, 300, "a second signal")])
def test_a_step_that_hangs_is_left(
    commands: Commands, recipe: Path, tmp_path: Path, signals: int, seconds: float, reason: str
) -> None:
    """Catches a process that only SIGKILL ends: its step waits in a library, where no handler runs."""
    result = commands(
        "train", recipe, "--run", tmp_path / "run", *settings(stop_seconds=seconds), hang_before_step=2, signals=signals
    )
    assert result.returncode == 143
    assert result.stderr.splitlines()[-1].startswith("stopped immediately without saving: ")
    assert reason in result.stderr.splitlines()[-1]
    assert CheckpointManager(tmp_path / "run").latest().progress.step == 2
