"""Training on one batch, which updates the parameters or is skipped for a reason."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transformer.data.token_batching import split_micro
from transformer.errors import NonFiniteError, TrainingError
from transformer.interfaces import Batch, Dataset, SupportsEpochs
from transformer.training.config import TrainingSettings
from transformer.training.distributed.process_group import DistributedContext
from transformer.training.monitoring.progress import Position, Progress
from transformer.training.optim.ema import update_ema
from transformer.training.step import StepResult, TrainingState, train_step

MAX_SHOWN_EXAMPLES = 10


@dataclass(frozen=True)
class SkippedBatch:
    """A skipped batch.

    Attributes:
        reason: Description of the fault and of the batch.
    """

    reason: str


@dataclass(frozen=True)
class BatchPlan:
    """A batch of an epoch, before it is read.

    Attributes:
        ids: Examples of the batch, over all ranks.
        epoch: Number of its epoch, from 0.
        after: Position in the data after the batch.
    """

    ids: NDArray[np.integer[Any]]
    epoch: int
    after: Position


@dataclass(frozen=True)
class PreparedBatch:
    """A batch whose micro-batches for this rank have been read.

    Attributes:
        ids: Examples of the batch, over all ranks.
        micro_batches: Micro-batches of this rank.
        is_last_counted: False if the last micro-batch is a placeholder for one that the rank lacks.
        after: Position in the data after the batch.
    """

    ids: NDArray[np.integer[Any]]
    micro_batches: list[Batch]
    is_last_counted: bool
    after: Position


def in_epoch(dataset: Dataset, epoch: int) -> Dataset:
    """Returns a dataset as it is in an epoch; most datasets are the same in each."""
    return dataset.in_epoch(epoch) if isinstance(dataset, SupportsEpochs) else dataset


def prepare_batch(
    dataset: Dataset,
    context: DistributedContext,
    accumulation: int,
    batch_plan: BatchPlan,
    *,
    pin_memory: bool = False,
) -> PreparedBatch:
    """Reads the micro-batches of this rank, for a GPU into page-locked memory."""
    dataset = in_epoch(dataset, batch_plan.epoch)
    micro_batch_ids = split_micro(batch_plan.ids, accumulation)
    rank_ids = context.items_of_rank(micro_batch_ids)
    has_all = len(rank_ids) == context.max_items_per_rank(len(micro_batch_ids))
    read_ids = rank_ids if has_all else [*rank_ids, micro_batch_ids[0][:1]]
    micro_batches = [dataset.fetch(micro_batch) for micro_batch in read_ids]
    if pin_memory:
        micro_batches = [batch.pin_memory() for batch in micro_batches]
    return PreparedBatch(batch_plan.ids, micro_batches, has_all, batch_plan.after)


def train_on_batch(
    state: TrainingState, batch: PreparedBatch, settings: TrainingSettings, learning_rate: float, progress: Progress
) -> StepResult | SkippedBatch:
    """Trains on the batch at `progress.position` and counts its examples.

    Raises:
        TrainingError: The loss or the gradient is not finite and `skip_nonfinite` batches were skipped already.
    """
    ids = batch.ids
    try:
        result = train_step(
            state, batch.micro_batches, learning_rate, settings.clip_norm, is_last_counted=batch.is_last_counted
        )
    except NonFiniteError as error:
        progress.skipped_nonfinite += 1
        if progress.skipped_nonfinite > settings.skip_nonfinite:
            raise TrainingError(
                f"step {state.step + 1}: {error}; {_describe_batch(progress, ids)}; parameters and "
                "checkpoints are unchanged; lower training.learning_rate, set training.clip_norm, or permit "
                "such batches with training.skip_nonfinite=N, each with --allow-changed KEY"
            ) from error
        return SkippedBatch(f"{error}; {_describe_batch(progress, ids)}")
    if result is None:
        progress.skipped_unscored += 1
        return SkippedBatch(f"no token is scored; {_describe_batch(progress, ids)}")
    if settings.ema_decay:
        update_ema(state.optimizer, settings.ema_decay, state.step)
    progress.step = state.step
    progress.examples += len(ids)
    progress.target_tokens += result.count
    return result


def _describe_batch(progress: Progress, ids: NDArray[np.integer[Any]]) -> str:
    position = progress.position
    examples = ", ".join(map(str, ids[:MAX_SHOWN_EXAMPLES])) + (", ..." if len(ids) > MAX_SHOWN_EXAMPLES else "")
    return f"batch {position.index + 1} of epoch {position.epoch + 1}, examples {examples}"
