"""Two ranks under torchrun: same results as in one process, also after a fault in one of the ranks."""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, load_file

from faults.rank_steps import ACCUMULATIONS, STRATEGIES, take_steps
from faults.run_server import end_of
from samples import write_recipe
from transformer.run.recipe import load_recipe
from transformer.run.train import train
from transformer.storage.checkpoint_paths import checkpoint_steps
from transformer.training.distributed.process_group import DistributedContext

HERE = Path(__file__).parent
STEPS = 12


@dataclass
class Launched:
    """Exit code of torchrun, and standard error of all ranks."""

    code: int
    err: str


def torchrun(
    *command: object, ranks: int = 2, restarts: int = 0, faults: dict[str, tuple[int, str]] | None = None
) -> Launched:
    """Runs ranks until all have ended, within a time limit."""
    numbers = f"--nproc-per-node={ranks}", f"--max-restarts={restarts}"
    launch = ["-m", "torch.distributed.run", "--standalone", "--shutdown-timeout=5", *numbers, "--"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200", "FAULTS": json.dumps(faults or {})}
    if sys.platform == "linux":
        environment["GLOO_SOCKET_IFNAME"] = "lo"
    result = subprocess.run(
        [sys.executable, *launch, *map(str, command)],
        capture_output=True, text=True, env=environment, timeout=600, check=False,
    )  # fmt: skip
    return Launched(result.returncode, result.stderr)


def torchrun_train(recipe: Path, run: Path, *options: str, **launch: Any) -> Launched:
    return torchrun(HERE / "run_rank.py", "train", recipe, "--run", run, *options, **launch)


@pytest.fixture(scope="module")
def ranks_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the results of `rank_steps` on two ranks."""
    folder = tmp_path_factory.mktemp("together")
    result = torchrun(HERE / "rank_steps.py", folder)
    assert result.code == 0, result.err
    assert "Warning" not in result.err
    return folder


@pytest.mark.parametrize("accumulation", ACCUMULATIONS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_two_ranks_update_as_one_process(ranks_folder: Path, strategy: str, accumulation: int) -> None:
    """Catches a mean over ranks, shares lost or counted twice, other dropout, and a tied gradient reduced in parts.

    Also catches norms or clipping of single shards, and a batch that only one of the ranks skips.
    """
    weights, expected_results = take_steps(DistributedContext(), accumulation)
    for rank in (0, 1):
        facts = json.loads((ranks_folder / f"rank-{rank}.json").read_text())
        rank_results = facts[f"{strategy} {accumulation}"]
        assert "the loss is nan" in rank_results[2]
        assert "examples 0, 1, 2, 3, 4, 5, 6" in rank_results[2]
        assert "module." not in rank_results[2]
        for actual, reference in ((rank_results[i], expected_results[i]) for i in (0, 1, 4, 5)):
            assert actual == pytest.approx(reference, rel=1e-5)
    loaded = load_file(ranks_folder / f"{strategy}-{accumulation}.safetensors")
    assert loaded.keys() == weights.keys()
    for name, expected in weights.items():
        torch.testing.assert_close(loaded[name], expected, rtol=1e-5, atol=1e-6, msg=name)


def test_ranks_hear_the_same(ranks_folder: Path) -> None:
    """Catches a signal that only one rank sees, a text truncated to another's length, and rank 1 before rank 0."""
    first, second = (json.loads((ranks_folder / f"rank-{rank}.json").read_text()) for rank in (0, 1))
    text = "Zeichen: \u00e4\u20ac, NaN"
    assert first["talk"] == second["talk"] == [[1.0, 1.0], 7, {"text": text, "empty": []}, None, True, 15, False]
    assert (first["n_files_seen"], second["n_files_seen"]) == (1, 2)
    assert all(facts[f"{strategy} memory"] for facts in (first, second) for strategy in STRATEGIES)


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux lets a process reset its peak")
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_ranks_predict_their_memory_together(ranks_folder: Path, strategy: str) -> None:
    """Catches missing plans, plans that differ between ranks, and gradient buckets of DDP that are not counted."""
    plans = [json.loads((ranks_folder / f"rank-{rank}.json").read_text())[f"{strategy} plan"] for rank in (0, 1)]
    assert plans[0][0] == plans[1][0]
    assert plans[0][0] == pytest.approx(max(peak for _, peak, _ in plans), rel=0.15)
    assert plans[0][2] == 3  # ranks, time and memory


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe with dropout and without a number of micro-batches."""
    folder = tmp_path_factory.mktemp("recipe")
    settings = {"max_steps": STEPS, "save_every": 2, "validate_every": 6, "log_every": 3, "precision": "float32"}
    return write_recipe(folder, 120, dropout=0.3, **settings)


@pytest.fixture(scope="module")
def unbroken(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of an uninterrupted run on two ranks."""
    run = tmp_path_factory.mktemp("unbroken") / "run"
    result = torchrun_train(recipe, run)
    assert result.code == 0, result.err
    assert "2 ranks, each with the whole model; micro-batches an update: 2\n" in result.err
    assert result.err.count(f"step {STEPS}/{STEPS}") == 1  # only one rank logs
    assert " ".join(result.err.split()).count("for the largest batch or validation on each rank") == 1
    assert "accumulation = 2\n" in (run / "recipe.toml").read_text()
    return run


def test_a_killed_rank_ends_all_and_the_restart_ends_the_same(recipe: Path, unbroken: Path, tmp_path: Path) -> None:
    """Catches a rank that waits for a dead one, two writers, and state that only rank 0 has restored."""
    result = torchrun_train(recipe, tmp_path / "run", restarts=1, faults={"1/0": (5, "kill")})
    assert result.code == 0, result.err
    assert "continues at step 4" in result.err
    assert end_of(tmp_path / "run") == end_of(unbroken)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_restart_goes_on_with_what_was_started_anew(recipe: Path, tmp_path: Path, ranks: int) -> None:
    """Catches `--fresh` that uses another folder at every restart, and an older run that is resumed."""
    for name in ("run", "run-3"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine").touch()
    faults = {"0/0": (5, "kill")}
    result = torchrun_train(recipe, tmp_path / "run", "--fresh", ranks=ranks, restarts=1, faults=faults)
    assert result.code == 0, result.err
    assert result.err.count(f"starts anew in {tmp_path / 'run-2'}\n") == 2
    assert "continues at step 4" in result.err
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["run", "run-2", "run-3"]
    assert checkpoint_steps(tmp_path / "run-2")[-1] == STEPS


def one_process(recipe: Path, run: Path, steps: int) -> None:
    """Resumes a run in one process, up to a step."""
    progress = train(load_recipe(recipe, [f"training.max_steps={steps}"]), run, quiet=True).progress
    assert progress.step == steps


def assert_same_end(run: Path, unbroken: Path) -> None:
    """Compares weights, optimizer state and losses up to the order of sums; dropout, data and schedule are the same.

    Biases of keys are excluded: they add a constant to all scores of a query, which the softmax ignores. Their
    gradient is 0 up to rounding, and Adam turns rounding errors into full steps.
    """
    ends = [end_of(folder) for folder in (run, unbroken)]
    for part in ("weights", "optimizer"):
        actual, expected = (load(end[part]) for end in ends)
        assert actual.keys() == expected.keys()
        for name in actual.keys() - {name for name in actual if name.endswith("W_k.bias")}:
            torch.testing.assert_close(actual[name], expected[name], rtol=1e-4, atol=1e-5, msg=name)
    losses = [[row["loss"] for row in end["rows"] if row["kind"] == "train"] for end in ends]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert ends[0]["progress"]["examples"] == ends[1]["progress"]["examples"]


def test_a_signal_to_one_rank_stops_both_and_2_1_2_ranks_end_the_same(
    recipe: Path, unbroken: Path, tmp_path: Path
) -> None:
    """Catches ranks that stop at different steps, and a run that depends on the number of ranks."""
    run = tmp_path / "run"
    result = torchrun_train(recipe, run, faults={"1/0": (4, "terminate")})
    assert result.code != 0
    assert result.err.count("stopped at step 5 and saved; the same command resumes the run") == 1
    assert "exitcode  : 143" in result.err
    assert max(checkpoint_steps(run)) == 5
    one_process(recipe, run, 9)
    result = torchrun_train(recipe, run)
    assert result.code == 0, result.err
    assert_same_end(run, unbroken)


@pytest.mark.parametrize("faults", [{"1/0": (4, "terminate inside")}, {"0/0": (4, "pause inside")}])
def test_a_signal_to_a_rank_that_waits_in_a_collective_stops_both(
    recipe: Path, tmp_path: Path, faults: dict[str, tuple[int, str]]
) -> None:
    """Catches a signal that the result of the collective overwrites, so that the run ends later without saving."""
    result = torchrun_train(recipe, tmp_path / "run", faults=faults)
    assert result.code != 0
    (step,) = re.findall(r"stopped at step (\d+) and saved; the same command resumes the run", result.err)
    assert int(step) in (5, 6)
    assert max(checkpoint_steps(tmp_path / "run")) == int(step)
    assert "exitcode  : 143" in result.err


@pytest.mark.parametrize(("step", "inside"), [(5, ""), (4, " inside")])
def test_nothing_is_saved_after_a_failed_collective(recipe: Path, tmp_path: Path, step: int, inside: str) -> None:
    """Catches a signal that makes a rank save although the other one died before they agreed on the step."""
    faults = {"0/0": (step, f"terminate{inside}"), "1/0": (step, f"kill{inside}")}
    result = torchrun_train(recipe, tmp_path / "run", faults=faults)
    assert result.code != 0
    assert "and saved" not in result.err
    assert max(checkpoint_steps(tmp_path / "run")) == 4


def test_a_frozen_rank_ends_all_and_one_process_goes_on(recipe: Path, unbroken: Path, tmp_path: Path) -> None:
    """Catches a run that waits for ever for a rank stopped by SIGSTOP, and one whose state only two ranks can read."""
    run = tmp_path / "run"
    result = torchrun_train(recipe, run, "--set", "training.rank_seconds=20", faults={"1/0": (5, "freeze")})
    assert result.code != 0
    assert "error: another rank ended or did not answer" in result.err
    assert max(checkpoint_steps(run)) == 4
    one_process(recipe, run, STEPS)
    assert_same_end(run, unbroken)


def test_an_error_in_one_rank_is_the_one_told_and_fsdp_goes_on_from_and_to_one_process(
    recipe: Path, unbroken: Path, tmp_path: Path
) -> None:
    """Catches a traceback of the rank that waited, checkpoints of shards, and a strategy that changes the model.

    Also catches a rank that counts as failed because Python crashed after its work.
    """
    run, fsdp = tmp_path / "run", ("--set", "training.distribution=fsdp")
    result = torchrun_train(recipe, run, *fsdp, faults={"1/0": (5, "raise")})
    assert result.code != 0
    cause = result.err[result.err.index("Root Cause") :]
    assert "RuntimeError: planted in one rank" in cause
    assert "rank      : 1 " in cause
    assert max(checkpoint_steps(run)) == 4
    one_process(recipe, run, 9)
    result = torchrun_train(recipe, run, *fsdp, faults={"1/0": (10, "abort last")})
    assert result.code == 0, result.err
    assert "2 ranks, each with a part of the model" in result.err
    assert_same_end(run, unbroken)


def test_four_ranks_and_then_two_end_as_one_process_with_a_running_mean(recipe: Path, tmp_path: Path) -> None:
    """Catches data, dropout or a running mean that depends on the number of ranks."""
    overrides = ["training.accumulation=4", "training.ema_decay=0.9", "training.max_steps=6", "training.save_every=3"]
    alone, run = tmp_path / "alone", tmp_path / "run"
    assert train(load_recipe(recipe, overrides), alone, quiet=True).progress.step == 6
    options = [part for setting in overrides for part in ("--set", setting)]
    result = torchrun_train(recipe, run, *options, ranks=4, faults={"3/0": (3, "terminate")})
    assert "stopped at step 4 and saved" in result.err, result.err
    result = torchrun_train(recipe, run, *options)
    assert result.code == 0, result.err
    assert_same_end(run, alone)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_frozen_parameters_stay_on_two_ranks(strategy: str, recipe: Path, tmp_path: Path) -> None:
    """Catches ranks that wait for gradients that nobody computes, and frozen shards that move."""
    overrides = ['training.freeze=["encoder", "embeddings"]', "training.accumulation=2", "training.max_steps=4"]
    overrides += ["training.save_every=2", "training.weight_decay=0.1"]
    alone, run = tmp_path / "alone", tmp_path / "run"
    assert train(load_recipe(recipe, overrides), alone, quiet=True).progress.step == 4
    options = [part for setting in overrides for part in ("--set", setting)]
    result = torchrun_train(recipe, run, *options, "--set", f"training.distribution={strategy}")
    assert result.code == 0, result.err
    assert "parameters are trained; frozen: encoder, embeddings" in " ".join(result.err.split())
    before, after = (
        load_file(run / f"checkpoints/step-{step:08d}/model/model.safetensors") for step in (2, 4)
    )  # fmt: skip
    frozen = [name for name in before if name.startswith("encoder.") or "embedding" in name]
    assert frozen
    assert all(torch.equal(before[name], after[name]) for name in frozen)
    assert_same_end(run, alone)
