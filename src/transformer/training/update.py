"""A batch of a run: an update of the parameters that is counted, or left out with the reason."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transformer.data.batches import split_micro
from transformer.errors import NonFiniteError, TrainingError
from transformer.interfaces import Batch, Dataset
from transformer.training.config import TrainingConfig
from transformer.training.distributed.process_group import DistributedContext
from transformer.training.monitoring.progress import Position, Progress
from transformer.training.optim.ema import update_ema
from transformer.training.step import StepResult, TrainingState, train_step

SHOWN_EXAMPLES = 10


@dataclass(frozen=True)
class SkippedBatch:
    """A batch that was left out, and why."""

    reason: str


@dataclass(frozen=True)
class PreparedBatch:
    """A batch made ready for this rank.

    Attributes:
        ids: the examples of all ranks.
        micro_batches: this rank's.
        is_last_counted: False where the last one stands in for one that the rank lacks.
        after: the position after the batch.
    """

    ids: NDArray[np.integer[Any]]
    micro_batches: list[Batch]
    is_last_counted: bool
    after: Position


def prepare_batch(
    dataset: Dataset, context: DistributedContext, accumulation: int, planned: tuple[NDArray[np.integer[Any]], Position]
) -> PreparedBatch:
    """Reads what this rank needs of a planned batch."""
    ids, after = planned
    parts = split_micro(ids, accumulation)
    own = context.items_of_rank(parts)
    has_all = len(own) == context.items_per_rank(len(parts))
    return PreparedBatch(
        ids, [dataset.fetch(part) for part in (own if has_all else [*own, parts[0][:1]])], has_all, after
    )


def train_on_batch(
    state: TrainingState, batch: PreparedBatch, config: TrainingConfig, learning_rate: float, progress: Progress
) -> StepResult | SkippedBatch:
    """Trains on the batch at `progress.position` and counts its examples.

    Raises:
        TrainingError: loss or gradient is not finite, and `skip_nonfinite` batches were left out already.
    """
    ids = batch.ids
    try:
        result = train_step(
            state, batch.micro_batches, learning_rate, config.clip_norm, is_last_counted=batch.is_last_counted
        )
    except NonFiniteError as error:
        progress.skipped_nonfinite += 1
        if progress.skipped_nonfinite > config.skip_nonfinite:
            raise TrainingError(
                f"step {state.step + 1}: {error}; {_place(progress, ids)}; parameters and checkpoints are as before; "
                "lower training.learning_rate, set training.clip_norm, or let training.skip_nonfinite=N such "
                "batches pass, each with --allow-changed KEY"
            ) from error
        return SkippedBatch(f"{error}; {_place(progress, ids)}")
    if result is None:
        progress.skipped_unscored += 1
        return SkippedBatch(f"no token is scored; {_place(progress, ids)}")
    if config.ema_decay:
        update_ema(state.optimizer, config.ema_decay, state.step)
    progress.step = state.step
    progress.examples += len(ids)
    progress.target_tokens += result.count
    return result


def _place(progress: Progress, ids: NDArray[np.integer[Any]]) -> str:
    position = progress.position
    examples = ", ".join(map(str, ids[:SHOWN_EXAMPLES])) + (", ..." if len(ids) > SHOWN_EXAMPLES else "")
    return f"batch {position.index + 1} of epoch {position.epoch + 1}, examples {examples}"
