"""Checkpoints: retention, damaged or hostile files, and the run folder."""

import json
import math
import os
import struct
import zipfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from substitution import substitute
from transformer.errors import CheckpointError, ConfigError, DamageError, DataError
from transformer.run.resume import earlier_run, environment_changes
from transformer.run.run_folder import lock_run_folder, remove_on_failure, unused_folder
from transformer.runtime.machine import machine
from transformer.storage.checkpoint_paths import CHECKPOINT, checkpoint_steps, read_record
from transformer.storage.verified_folder import VerifiedFolder, write_verified_folder
from transformer.training.checkpoint import CheckpointManager
from transformer.training.monitoring.progress import Position, Progress, Window
from transformer.training.monitoring.reporter import Reporter
from transformer.training.optim.state_dict import optimizer_tensors, restore_optimizer

TENSORS = {"optimizer": {"step/weight": torch.ones(())}}


def write_model(folder: Path) -> None:
    folder.mkdir()
    (folder / "weights").write_bytes(b"1234567")


def save(checkpoints: CheckpointManager, step: int, best: int | None) -> Progress:
    progress = Progress(step=step, best_step=best)
    checkpoints.save(progress, {"note": "ü"}, write_model, TENSORS)
    return progress


def test_a_changed_environment_is_reported() -> None:
    """Catches a run that is resumed with other kernels, device or torch, whose last bits differ, without a warning."""
    versions = {"torch": version("torch")}
    before = machine() | {"device": "cpu"}
    same = [(before, "cpu"), (before | {"accelerator": "GPU 9", "cores": 99}, "cpu")]
    same.append((machine() | {"device": "cuda", "kernels": "others"}, "cuda"))
    for facts, device in same:
        assert environment_changes({"machine": facts, "versions": versions}, device) == []
    assert environment_changes({"machine": machine()}, "cpu") == [], (
        "written by an earlier version, which did not record everything"
    )
    changes = {
        ("kernels", "avx1024", "cpu"): f"kernels avx1024, now {before['kernels']}",
        ("device", "cuda", "cpu"): "device cuda, now cpu",
        ("torch", "0.1", "cpu"): f"torch 0.1, now {version('torch')}",
    }
    for (key, value, device), shown in changes.items():
        (warning,) = environment_changes({"machine": {**before, **versions, key: value}}, device)
        assert warning == f"warning: the environment has changed ({shown}); results may differ in the last bits"


def test_the_last_and_the_best_of_each_are_kept(tmp_path: Path) -> None:
    """Catches a removed best checkpoint, obsolete ones that stay, and a missing best of the second newest."""
    checkpoints = CheckpointManager(tmp_path, keep_last=2)
    steps_after_saves = []
    for step, best in ((1, 1), (2, 1), (3, 1), (4, 4), (5, 4), (6, 4)):
        save(checkpoints, step, best)
        steps_after_saves.append(checkpoint_steps(tmp_path))
    assert steps_after_saves == [[1], [1, 2], [1, 2, 3], [1, 3, 4], [4, 5], [4, 5, 6]]
    newest = CheckpointManager(tmp_path).latest()
    assert newest is not None
    assert newest.metadata == {"note": "ü"}
    assert newest.tensors("optimizer") == TENSORS["optimizer"]
    assert newest.model == tmp_path / "checkpoints" / "step-00000006" / "model"


def test_a_checkpoint_is_on_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a file or name that is not synced, which a power failure leaves empty or loses."""
    synced: list[int] = []
    before: list[int] = []
    fsync, replace = os.fsync, os.replace

    def recorded_fsync(handle: int) -> None:
        synced.append(os.fstat(handle).st_ino)
        fsync(handle)

    def recorded_replace(source: Path, target: Path) -> None:
        before[:] = synced
        synced.clear()
        replace(source, target)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(os, "replace", recorded_replace)
    monkeypatch.setattr(os, "rename", recorded_replace)
    save(CheckpointManager(tmp_path), 1, None)
    folder = tmp_path / "checkpoints" / "step-00000001"
    everything = [folder, *folder.rglob("*")]
    assert len(everything) >= 6
    assert {path.stat().st_ino for path in everything} <= set(before)
    assert folder.parent.stat().st_ino in synced


def test_a_checkpoint_loses_its_name_before_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a kill during a removal that leaves half a checkpoint under its name, obsolete or saved again."""
    names: list[str] = []

    def interrupted(folder: Path, *, ignore_errors: bool) -> None:
        """Removes a single file, as if the process were killed then."""
        if folder.exists():
            names.append(folder.name)
            (folder / "manifest.json").unlink()

    with monkeypatch.context() as patch:
        substitute(patch, "checkpoint.rmtree", interrupted)
        checkpoints = CheckpointManager(tmp_path, keep_last=1)
        for step in (1, 2):
            save(checkpoints, step, None)
        assert names == [".removing-step-00000001"]
        assert checkpoint_steps(tmp_path) == [2]
    substitute(monkeypatch, "checkpoint.write_verified_folder", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save(checkpoints, 2, None)
    assert not list((tmp_path / "checkpoints").iterdir())


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_lines_are_on_disk_before_their_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches metrics that a power failure loses although their checkpoint survives."""
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(os.fstat(handle).st_ino))
    reporter = Reporter(tmp_path / "metrics.jsonl", 9, 1, quiet=True)
    reporter.validation(1, {"loss": 1.0}, is_best=True)
    reporter.sync()
    reporter.close()
    assert synced == [(tmp_path / "metrics.jsonl").stat().st_ino]


def test_every_counter_comes_back() -> None:
    """Catches a counter that is not stored, a float that is rounded, and NaN, which JSON does not have."""
    progress = Progress(
        step=7, position=Position(2, 3), examples=11, target_tokens=13, skipped_nonfinite=1, skipped_unscored=2,
        best_step=5, best_score=math.pi, stale=4, validations={5: {"bleu": 0.1 + 0.2}, 6: {"bleu": math.nan}},
        window=Window(1, 2, 1 / 3, 0.5), seconds=1e-17, finished="patience",
    )  # fmt: skip
    text = json.dumps(progress.to_json(), allow_nan=False)
    restored = Progress.from_json(json.loads(text))
    assert (restored.scored_step, restored.best_scores) == (6, {"bleu": 0.1 + 0.2})
    assert math.isnan(restored.scores["bleu"])
    assert restored.to_json() == progress.to_json()
    for broken, message in (
        ({"step": "x"}, "progress: step='x' must be a whole number"),
        ({}, "is missing"),
        ({"more": 1}, "more"),
    ):
        with pytest.raises(DamageError, match=message):
            Progress.from_json(broken)


def test_what_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    """Catches cleanup that removes a user's folder, or follows a link out of the run."""
    outside = tmp_path / "outside"
    (outside / "model").mkdir(parents=True)
    run = tmp_path / "run"
    folder = run / "checkpoints"
    (folder / "keep").mkdir(parents=True)
    for name in ("00000009-77", "00000009-0bbfd16a-15130-4"):  # of this version and of those before
        (folder / f".writing-step-{name}").mkdir()
    (folder / "step-00000008").symlink_to(outside)
    save(CheckpointManager(run), 1, None)
    assert sorted(path.name for path in folder.iterdir()) == ["keep", "step-00000001", "step-00000008"]
    assert (outside / "model").is_dir()
    assert CheckpointManager(run).latest().progress.step == 1


def test_damage_is_noted_and_gone_after_the_next_save(tmp_path: Path) -> None:
    """Catches a damaged checkpoint that counts as one of the last, so that intact ones are removed."""
    for step in (1, 2, 3):
        save(CheckpointManager(tmp_path, keep_last=3), step, None)
    for step in (2, 3):
        (tmp_path / "checkpoints" / f"step-{step:08d}" / "model" / "weights").write_bytes(b"1234568")
    checkpoints = CheckpointManager(tmp_path, keep_last=1)
    assert checkpoints.latest().progress.step == 1
    assert sorted(checkpoints.damaged) == [2, 3]
    assert "model/weights does not match its SHA-256" in checkpoints.damaged[3]
    checkpoints.remove_obsolete(Progress(step=1))
    assert checkpoint_steps(tmp_path) == [1, 2, 3]
    save(checkpoints, 2, None)
    assert checkpoint_steps(tmp_path) == [2]
    assert not checkpoints.is_intact(1)


def test_one_flipped_bit_anywhere_is_refused(tmp_path: Path) -> None:
    """Catches a file of a checkpoint without a checksum, including the manifest and its checksum."""
    for step in (1, 2):
        save(CheckpointManager(tmp_path), step, None)
    files = [path for path in (tmp_path / "checkpoints" / "step-00000002").rglob("*") if path.is_file()]
    assert len(files) == 5
    for path in files:
        content = path.read_bytes()
        for position in (0, len(content) // 2, len(content) - 1):
            path.write_bytes(content[:position] + bytes([content[position] ^ 8]) + content[position + 1 :])
            assert CheckpointManager(tmp_path).latest().progress.step == 1
        path.write_bytes(content)
    assert CheckpointManager(tmp_path).latest().progress.step == 2


def test_a_checkpoint_of_no_run_of_ours_is_refused(tmp_path: Path) -> None:
    """Catches a resumed run whose training data is unknown."""
    save(CheckpointManager(tmp_path), 1, None)
    with pytest.raises(
        CheckpointError, match=r"step-00000001 does not record the recipe and texts of its run \(recipe is missing\)"
    ):
        earlier_run(CheckpointManager(tmp_path))


def hostile(run: Path, name: str, write: Any) -> Path:
    """Writes a checkpoint with valid checksums and hostile content; returns its folder."""

    def fill(folder: Path) -> None:
        write_model(folder / "model")
        record = {"progress": Progress(step=1).to_json()}
        (folder / "progress.json").write_text(json.dumps(record))
        save_file(TENSORS["optimizer"], folder / "optimizer.safetensors")
        write(folder / name)

    folder = run / "checkpoints" / "step-00000001"
    write_verified_folder(folder, CHECKPOINT, {}, fill)
    return folder


def header(text: bytes, length: int | None = None, data: bytes = bytes(8)) -> bytes:
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def archive(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("archive/data.pkl", b"\x80\x04cos\nsystem\n" + bytes(99))


ENTRY = b'"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}'
HOSTILE = {
    "a pickle": lambda path: path.write_bytes(b"\x80\x04\x95cposix\nsystem\n" + bytes(40)),
    "a deflated archive": archive,
    "a header of 2^62 bytes": lambda path: path.write_bytes(header(b"{}", 1 << 62)),
    "a header of a gigabyte": lambda path: path.write_bytes(header(b"{}", 1 << 30)),
    "a name twice": lambda path: path.write_bytes(header(b"{" + ENTRY + b"," + ENTRY + b"}")),
    "two tensors in one place": lambda path: path.write_bytes(
        header(b"{" + ENTRY + b"," + ENTRY.replace(b"a", b"b", 1) + b"}")
    ),
    "beyond the end": lambda path: path.write_bytes(header(b"{" + ENTRY.replace(b"8]", b"9]") + b"}")),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_tensors_are_refused(tmp_path: Path, name: str) -> None:
    """Catches a file that runs code, exhausts memory, or reads out of bounds."""
    hostile(tmp_path, "optimizer.safetensors", HOSTILE[name])
    checkpoint = CheckpointManager(tmp_path).latest()
    assert checkpoint is not None
    with pytest.raises(CheckpointError, match=r"optimizer.safetensors: .*; do not use this checkpoint"):
        checkpoint.tensors("optimizer")


RECORDS = {
    "not JSON": (b"{", "progress.json is not JSON"),
    "deep": (b"[" * 200_000, "progress.json is not JSON"),
    "a list": (b"[]", "has no entry 'progress'"),
    "no counters": (b'{"progress": {"step": 1}}', r"progress.\w+ is missing"),
}


@pytest.mark.parametrize("name", RECORDS)
def test_hostile_records_are_refused(tmp_path: Path, name: str) -> None:
    """Catches a traceback for an invalid record with a valid checksum."""
    content, message = RECORDS[name]
    hostile(tmp_path, "progress.json", lambda path: path.write_bytes(content))
    with pytest.raises(CheckpointError, match=rf"has no checkpoint that is whole \(.*{message}.*\); start anew"):
        CheckpointManager(tmp_path).latest()


def test_hostile_folders_are_refused(tmp_path: Path) -> None:
    """Catches a link to a folder, a pipe that blocks, a part that is not listed, and a manifest of gigabytes."""
    folder = hostile(tmp_path, "progress.json", lambda path: None)
    verified = VerifiedFolder(folder, CHECKPOINT)
    with pytest.raises(DamageError, match=r"manifest.json does not name ema.safetensors; a part of the checkpoint is"):
        verified.verified_path("ema.safetensors")
    (folder / "model").rename(tmp_path / "elsewhere")
    (folder / "model").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DamageError, match="model is a link; a checkpoint holds its files itself"):
        verified.verified_path("model/weights")
    (folder / "progress.json").unlink()
    os.mkfifo(folder / "progress.json")
    with pytest.raises(DamageError, match=r"progress.json is not a file; do not use this checkpoint"):
        read_record(verified)
    with (folder / "manifest.json").open("r+b") as file:
        file.truncate(1 << 40)  # sparse: it takes no disk space
    with pytest.raises(DamageError, match=r"does not match manifest.sha256"):
        VerifiedFolder(folder, CHECKPOINT)


def adam() -> tuple[nn.Module, torch.optim.Optimizer]:
    """Returns a model with a shared matrix, and its optimizer after one update."""
    model = nn.ModuleDict({"a": nn.Linear(3, 5), "b": nn.Linear(3, 5)})
    model["b"].weight = model["a"].weight
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, fused=True)
    sum((model[name](torch.ones(2, 3)) ** 2).sum() for name in "ab").backward()
    optimizer.step()
    return model, optimizer


def test_what_adam_remembers_comes_back_under_the_parameters_names() -> None:
    """Catches moments that are assigned to another parameter, and a shared one that is stored twice."""
    model, optimizer = adam()
    tensors = {name: tensor.clone() for name, tensor in optimizer_tensors(model, optimizer).items()}
    keys, names = ("exp_avg", "exp_avg_sq", "step"), ("a.weight", "a.bias", "b.bias")
    assert sorted(tensors) == sorted(f"{key}/{name}" for key in keys for name in names)
    restored_model, restored_optimizer = adam()
    restore_optimizer(restored_model, restored_optimizer, tensors)
    for restored_parameter, parameter in zip(restored_model.parameters(), model.parameters(), strict=True):
        assert all(
            torch.equal(restored_optimizer.state[restored_parameter][key], optimizer.state[parameter][key])
            for key in keys
        )
    without = {name: tensor for name, tensor in tensors.items() if name != "exp_avg_sq/b.bias"}
    with pytest.raises(CheckpointError, match=r"the optimizer's state lacks exp_avg_sq/b.bias; start anew"):
        restore_optimizer(restored_model, restored_optimizer, without)
    with pytest.raises(CheckpointError, match=r"holds, without a parameter of this model, exp_avg/c; start anew"):
        restore_optimizer(restored_model, restored_optimizer, tensors | {"exp_avg/c": torch.ones(1)})
    with pytest.raises(CheckpointError, match=r"step/a.bias has shape \(5,\), not \(\); start anew"):
        restore_optimizer(restored_model, restored_optimizer, tensors | {"step/a.bias": torch.ones(5)})


def test_one_trainer_holds_a_run(tmp_path: Path) -> None:
    """Catches two processes that write one run, and folders left by a run that failed."""
    run = tmp_path / "a" / "b"
    with lock_run_folder(run), pytest.raises(CheckpointError, match="is in use by another training process"):
        lock_run_folder(run).__enter__()
    assert not (tmp_path / "a").exists()
    run.mkdir(parents=True)
    with lock_run_folder(run):
        pass
    assert run.is_dir()
    with lock_run_folder(run):
        (run / "recipe.toml").touch()
    assert sorted(path.name for path in run.iterdir()) == [".lock", "recipe.toml"]


def test_what_a_refused_run_made_goes(tmp_path: Path) -> None:
    """Catches the removal of files of an earlier start, and new files that stay."""
    (tmp_path / "recipe.toml").touch()

    def prepare() -> None:
        with remove_on_failure(tmp_path, ("recipe.toml", "tokens", "log"), "done-*"):
            (tmp_path / "tokens" / "begun").mkdir(parents=True)
            (tmp_path / "tokens" / "begun" / "manifest.json").touch()
            (tmp_path / "log").touch()
            raise DataError("no")

    with pytest.raises(DataError):
        prepare()
    assert [path.name for path in tmp_path.iterdir()] == ["recipe.toml"]


def test_what_was_prepared_outlasts_a_refusal(tmp_path: Path) -> None:
    """Catches prepared data that is removed because a batch does not fit into memory."""

    def prepare() -> None:
        with remove_on_failure(tmp_path, ("recipe.toml", "tokens"), "done-*"):
            for name in ("recipe.toml", "tokens/done-1/manifest.json"):
                (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / name).touch()
            raise ConfigError("no")

    with pytest.raises(ConfigError):
        prepare()
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["manifest.json"]


def test_a_fresh_folder_is_beside(tmp_path: Path) -> None:
    """Catches a folder that is used twice."""
    run = tmp_path / "run"
    assert unused_folder(run) == run
    run.mkdir()
    (tmp_path / "run-2").mkdir()
    assert unused_folder(run) == tmp_path / "run-3"
