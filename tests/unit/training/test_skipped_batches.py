"""Batches that cannot be trained on: they are skipped and counted or end the run; parameters never become NaN."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from samples import training_settings
from transformer.data.batch import PairBatch
from transformer.errors import NonFiniteError, TrainingError
from transformer.interfaces import LossSum
from transformer.training.interruption import Interruption
from transformer.training.loop import Callbacks, train
from transformer.training.monitoring.progress import Position, Progress
from transformer.training.monitoring.reporter import Reporter
from transformer.training.optim.adam import make_optimizer
from transformer.training.step import TrainingState, train_step

GOOD, UNSCORED, NAN_LOSS, INFINITE_GRADIENT = 4, 5, 6, 7


class Kinds:
    """A dataset of twelve examples, each of which is a batch; its token selects the outcome."""

    lengths = np.full((12, 2), 4, dtype=np.int32)
    mix = ()

    def __init__(self, kinds: dict[int, int]) -> None:
        self._kinds = kinds

    def fetch(self, ids: np.ndarray) -> PairBatch:
        """Returns a batch in which the only token of each example is its kind."""
        tokens = torch.tensor([[self._kinds.get(int(n), GOOD)] for n in ids])
        return PairBatch(tokens, tokens, tokens, scored_tokens=int((tokens != UNSCORED).sum()))


class Fragile(nn.Module):
    """Two parameters; the batch selects whether the loss or the gradient of the second is not finite."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.ones(2))
        self.second = nn.Parameter(torch.ones(3))

    def forward(self, batch: PairBatch) -> LossSum:
        """Returns the sum of both, multiplied by NaN or with an infinite gradient on request."""
        loss = self.first.sum() + self.second.sum()
        if (batch.src == NAN_LOSS).any():
            loss = loss * math.nan
        if (batch.src == INFINITE_GRADIENT).any():
            loss = loss + (self.second - self.second.detach()).sqrt().sum()
        return LossSum(loss, batch.scored_tokens, {"nll_sum": loss.detach()})


def run(tmp_path: Path, kinds: dict[int, int], progress: Progress | None = None, **config: object) -> Progress:
    """Trains `Fragile` on twelve batches of one example."""
    settings = training_settings(**{"batch_tokens": 4, "validate_every": 5, "save_every": 5, "max_steps": 15, **config})
    objective, reporter = Fragile(), Reporter(tmp_path / "metrics.jsonl", 15, 1, quiet=True)
    callbacks = Callbacks(lambda: {"chrf": 1.0}, lambda progress: None, reporter, Interruption())
    state = TrainingState(objective, make_optimizer(objective), 0, 1)
    try:
        return train(state, Kinds(kinds), settings, lambda step: 0.01, progress or Progress(), callbacks)
    finally:
        reporter.close()
        assert all(parameter.isfinite().all() for parameter in objective.parameters())


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (NAN_LOSS, r"the loss is nan \(gradient not finite in 2 parameters, first in first\)"),
        (INFINITE_GRADIENT, r"the loss is [\d.]+, but the gradient is not finite in 1 parameters, first in second"),
    ],
)
def test_what_is_not_finite_is_named(tmp_path: Path, kind: int, message: str) -> None:
    """Catches NaN that clipping spreads over all parameters before the check, and a batch that is not named."""
    with pytest.raises(TrainingError, match=rf"step \d+: {message}; batch \d+ of epoch 1, examples 3; parameters and"):
        run(tmp_path, {3: kind})


def test_a_norm_that_overflows_is_named() -> None:
    """Catches an error message that expects a parameter with a non-finite gradient."""
    objective = Fragile()
    huge = torch.optim.SGD(objective.parameters(), lr=0.1)
    objective.first.register_hook(lambda gradient: gradient * 3e38)
    with pytest.raises(NonFiniteError, match=r"the loss is 5, but the gradient is not finite in none, but its norm is"):
        train_step(TrainingState(objective, huge, 0, 1), [Kinds({}).fetch(np.zeros(1, np.int64))], 0.1, 1.0)


def test_some_may_be_left_out_and_are_counted(tmp_path: Path) -> None:
    """Catches a limit that is ignored, an update counted for a skipped batch, and a data position that stays."""
    kinds = {3: NAN_LOSS, 8: INFINITE_GRADIENT, 9: UNSCORED}
    progress = run(tmp_path, kinds, skip_nonfinite=4)
    assert (progress.step, progress.examples) == (15, 15)
    assert (progress.skipped_nonfinite, progress.skipped_unscored) in {(n, m) for n in (2, 3, 4) for m in (1, 2)}
    batches = progress.step + progress.skipped_nonfinite + progress.skipped_unscored
    assert progress.position == Position(*divmod(batches, 12))
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert sum(row["kind"] == "skipped" for row in rows) == batches - 15
    assert [row["step"] for row in rows if row["kind"] == "train"] == list(range(1, 16))
    assert sum(row["kind"] == "validation" for row in rows) == 3
    with pytest.raises(TrainingError, match=r"such batches with training.skip_nonfinite=N"):
        run(tmp_path, kinds, skip_nonfinite=1)
    with pytest.raises(TrainingError, match="the loss is nan"):
        run(tmp_path, {3: NAN_LOSS}, Progress(skipped_nonfinite=4), skip_nonfinite=4)


def test_an_epoch_without_a_scored_token_is_an_error(tmp_path: Path) -> None:
    """Catches a run that draws batches forever."""
    with pytest.raises(TrainingError, match=r"no batch of a whole epoch could be used; the last: .*no token is scored"):
        run(tmp_path, dict.fromkeys(range(12), UNSCORED))


def test_a_micro_batch_without_a_scored_token_changes_nothing() -> None:
    """Catches a division by the count of the micro-batch, and a whole batch that is discarded with it."""
    objective = Fragile()
    state = TrainingState(objective, torch.optim.SGD(objective.parameters(), lr=0.1), 0, 1)
    assert train_step(state, [Kinds({0: UNSCORED}).fetch(np.zeros(1, np.int64))], 0.1, 1.0) is None
    assert (state.step, objective.first.grad) == (0, None)
