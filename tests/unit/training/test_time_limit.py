"""Runs in a given time: the length that fits, the end by the clock, and the schedule of a changed length."""

import json
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from samples import training_settings
from transformer.data.batch import PairBatch
from transformer.data.dataset import pair_batch
from transformer.interfaces import LossSum
from transformer.training.distributed.process_group import SINGLE_PROCESS
from transformer.training.interruption import watch_signals
from transformer.training.loop import Callbacks, finish_reason, train
from transformer.training.monitoring.progress import Progress, Refit
from transformer.training.monitoring.reporter import Reporter
from transformer.training.optim.schedule import make_schedule
from transformer.training.planning.time_budget import Costs, best_size, fit_length, predicted_loss
from transformer.training.step import TrainingState
from transformer.training.time_limit import TimeLimit, last_step, learning_rate


class ManualClock:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Returns the time."""
        return self.now


class Digits:
    """A dataset of pairs of one token, of which each is a batch."""

    lengths = np.full((8, 2), 2, dtype=np.int32)
    mix = ()

    def fetch(self, ids: np.ndarray) -> PairBatch:
        """Returns the batch."""
        row = [np.full(1, 5, dtype=np.int32)] * len(ids)
        return pair_batch(row, row)


class SlowObjective(nn.Module):
    """An objective whose updates take the given seconds of a clock."""

    def __init__(self, clock: ManualClock, seconds: list[float]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.clock, self.seconds = clock, iter(seconds)

    def forward(self, batch: PairBatch) -> LossSum:
        """Takes the time of an update."""
        self.clock.now += next(self.seconds)
        loss: Tensor = self.weight * 1.0
        return LossSum(loss, batch.scored_tokens, {"nll_sum": loss.detach()})


def run(
    folder: Path, seconds: list[float], limit: TimeLimit, validation: float = 2.0, progress: Progress | None = None,
    **training: object,
) -> tuple[Progress, list[float], list[int]]:  # fmt: skip
    """Trains with a clock of its own; returns the progress, the rates of the updates and the validated steps."""
    clock = limit.clock
    assert isinstance(clock, ManualClock)
    settings = training_settings(batch_tokens=2, best_metric="bleu", patience=0, warmup_steps=1, **training)
    objective, rates, progress = SlowObjective(clock, seconds), list[float](), progress or Progress()
    optimizer = torch.optim.SGD(objective.parameters(), lr=0.0)
    optimizer.register_step_pre_hook(lambda optimizer, *_: rates.append(optimizer.param_groups[0]["lr"]))
    state = TrainingState(objective, optimizer, progress.step, 1)
    schedule = make_schedule("cosine", d_model=8, peak=1.0, warmup_steps=1, decay_steps=settings.decay_steps)

    def validate() -> dict[str, float]:
        clock.now += validation
        return {"bleu": 1.0, "loss": 1.0}

    with (
        closing(Reporter(folder / "metrics.jsonl", settings.max_steps, 1, quiet=True)) as reporter,
        watch_signals() as s,
    ):
        callbacks = Callbacks(validate, lambda progress: None, reporter, s, limit)
        train(state, Digits(), settings, schedule, progress, callbacks)
    return progress, rates, sorted(progress.validations)


def test_a_length_fits_its_time() -> None:
    """Catches a validation that is not counted: 100 s less 5 % hold 15 validations of 1 s and 160 updates of 0.5 s."""
    length = fit_length(100, Costs(0.5, 1.0), longest=9999)
    assert length is not None
    assert (length.max_steps, length.warmup_steps, length.validate_every, length.save_every) == (160, 16, 11, 11)
    validations = -(-length.max_steps // length.validate_every)
    assert 10 <= validations <= 20
    assert length.max_steps * 0.5 + validations * 1.0 <= 95


def test_slow_validations_are_few() -> None:
    """Catches a run that does little but validate: a fifth of 95 s holds two of 8 s."""
    length = fit_length(100, Costs(1.0, 8.0), longest=9999)
    assert length is not None
    assert (length.max_steps, length.validate_every) == (79, 40)


def test_keys_that_are_set_stay() -> None:
    """Catches a number of updates or an interval of the user that is overwritten, and a length that ignores them."""
    steps = fit_length(100, Costs(0.5, 1.0), 9999, max_steps=30)
    interval = fit_length(100, Costs(0.5, 1.0), 9999, validate_every=2)
    capped = fit_length(100, Costs(0.5, 1.0), 50)
    assert steps is not None
    assert interval is not None
    assert capped is not None
    assert (steps.max_steps, steps.validate_every) == (30, 2)
    assert (interval.max_steps, interval.validate_every) == (94, 2)
    assert interval.max_steps * 0.5 + 47 * 1.0 <= 95
    assert capped.max_steps == 50


def test_no_length_fits_too_short_a_time() -> None:
    """Catches a run that is planned without a validation, and one of fewer than ten updates."""
    assert fit_length(11.5, Costs(1.0, 1.0), 9999) is None
    assert fit_length(11.6, Costs(1.0, 1.0), 9999) is not None
    assert fit_length(-3, Costs(1.0, 1.0), 9999) is None


def test_long_updates_are_saved_in_between() -> None:
    """Catches hours between checkpoints."""
    length = fit_length(36_000, Costs(1.0, 1.0), 10**6)
    assert length is not None
    assert length.validate_every > 2000
    assert length.save_every == 600


def test_the_predicted_loss_is_that_of_the_paper() -> None:
    """Catches exchanged exponents: Chinchilla, 70 billion parameters and 1.4 trillion tokens, reaches about 1.94."""
    assert predicted_loss(70e9, 1.4e12) == pytest.approx(1.94, abs=0.005)


def test_more_time_takes_a_larger_model() -> None:
    """Catches a large model that sees hardly any text, and a small one with the time for a large one."""

    def chosen(tokens: float) -> str:
        return best_size({"mini": (1e6, tokens), "small": (8e6, tokens / 8), "base": (44e6, tokens / 45)})

    assert [chosen(tokens) for tokens in (1e6, 1e9, 1e11)] == ["mini", "small", "base"]


def test_the_clock_ends_a_run_with_a_validation(tmp_path: Path) -> None:
    """Catches a run that ends after its time or without a score, and one that a resumption would continue."""
    clock = ManualClock()
    limit = TimeLimit(clock, deadline=10.0, update=1.0, validation=2.0)
    progress, _, validated = run(tmp_path, [1.0] * 99, limit, max_steps=99, validate_every=50, max_seconds=10.0)
    assert (progress.step, progress.finished, validated) == (8, "max_seconds", [8])
    assert clock.now == 10.0
    settings = training_settings(max_steps=99, max_seconds=10.0)
    again = Progress.from_json(progress.to_json())
    assert finish_reason(again, settings) == "max_seconds"
    assert finish_reason(again, training_settings(max_steps=99, max_seconds=20.0)) is None


def test_a_validation_is_left_out_when_its_time_is_over(tmp_path: Path) -> None:
    """Catches a validation long after the end, where an update took far longer than those before."""
    clock = ManualClock()
    limit = TimeLimit(clock, deadline=10.0, update=1.0, validation=2.0)
    progress, _, validated = run(tmp_path, [1.0, 1.0, 30.0], limit, max_steps=99, validate_every=50, max_seconds=10.0)
    assert (progress.step, progress.finished, validated) == (3, "max_seconds", [])


def test_a_slow_machine_gets_fewer_updates_and_the_whole_schedule(tmp_path: Path) -> None:
    """Catches a learning rate that is cut off or jumps where updates take twice the planned time."""
    clock = ManualClock()
    limit = TimeLimit(clock, deadline=110.0, update=1.0, validation=0.0, longest=200)
    progress, rates, _ = run(
        tmp_path, [2.0] * 110, limit, 0.0, max_steps=100, decay_steps=100, validate_every=10, max_seconds=110.0
    )  # fmt: skip
    assert (progress.step, progress.finished, clock.now) == (54, "max_steps", 108.0)
    assert progress.refit == Refit(10, 10, 54, 100)
    assert rates[-1] < 0.002
    falls = [before - after for before, after in pairwise(rates[1:])]
    assert min(falls) > 0
    assert max(falls) < 0.04
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(row["step"], row["max_steps"]) for row in rows if row["kind"] == "refit"] == [(10, 54)]


def test_a_fast_machine_gets_more_updates_up_to_the_longest(tmp_path: Path) -> None:
    """Catches time that is not used, and a run of more epochs than are useful."""
    for longest, steps in ((999, 199), (120, 120)):
        clock = ManualClock()
        limit = TimeLimit(clock, deadline=100.0, update=1.0, longest=longest)
        progress, *_ = run(tmp_path, [0.5] * 999, limit, 0.0, max_steps=100, validate_every=10, max_seconds=100.0)
        assert progress.step == steps


def test_a_length_that_is_set_is_not_changed(tmp_path: Path) -> None:
    """Catches a change of `max_steps` that the user set, and one where updates take as long as planned."""
    limit = TimeLimit(ManualClock(), 999.0, update=9.0)
    progress, *_ = run(tmp_path, [1.0] * 20, limit, 0.0, max_steps=20, validate_every=5, max_seconds=999.0)
    assert (progress.step, progress.refit) == (20, None)
    clock = ManualClock()
    limit = TimeLimit(clock, 21.5, update=1.0, longest=99)
    progress, *_ = run(tmp_path, [1.0] * 20, limit, 0.0, max_steps=20, validate_every=5, max_seconds=99.0)
    assert (progress.step, progress.refit) == (20, None)


def test_a_resumed_run_keeps_its_changed_length(tmp_path: Path) -> None:
    """Catches a resumed run that goes back to the plan: its rates are those of a run without an interruption."""
    whole, rates, _ = run(
        tmp_path, [2.0] * 99, TimeLimit(ManualClock(), 110.0, longest=200), 0.0, max_steps=100, decay_steps=100,
        validate_every=10, max_seconds=110.0,
    )  # fmt: skip
    half = Progress(step=20, seconds=40.0, refit=whole.refit)
    again = Progress.from_json(half.to_json())
    resumed, later, _ = run(
        tmp_path, [2.0] * 99, TimeLimit(ManualClock(), 70.0, longest=200), 0.0, again, max_steps=100, decay_steps=100,
        validate_every=10, max_seconds=110.0,
    )  # fmt: skip
    assert (resumed.step, resumed.refit) == (whole.step, whole.refit)
    assert later == rates[20:]


def test_other_max_steps_replace_a_changed_length() -> None:
    """Catches a run that cannot be extended any more."""
    progress = Progress(step=20, refit=Refit(10, 10.0, 55, 100))
    assert last_step(progress, training_settings(max_steps=100)) == 55
    longer = training_settings(max_steps=300)
    assert last_step(progress, longer) == 300
    assert learning_rate(lambda step: step, 21, progress, longer) == 21


def test_checkpoints_of_earlier_versions_have_no_time() -> None:
    """Catches old runs that cannot be resumed."""
    values = Progress(step=3).to_json()
    del values["refit"], values["out_of_time"]
    assert Progress.from_json(values) == Progress(step=3)


def test_without_a_limit_nothing_ends() -> None:
    """Catches an end by a clock that nobody set."""
    limit = TimeLimit()
    assert not limit.must_stop(SINGLE_PROCESS)
    assert not limit.is_over(SINGLE_PROCESS)
    assert limit.refit(Progress(), training_settings(), SINGLE_PROCESS) is None
