"""Stages of a run, each with a mixture of the training files of its own."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from transformer.errors import ConfigError
from transformer.interfaces import Batch, Dataset, ExampleGroup, Stage
from transformer.training.config import TrainingSettings
from transformer.training.monitoring.progress import Progress
from transformer.training.time_limit import schedule_position
from transformer.training.update import in_epoch


@dataclass(frozen=True)
class MixedDataset:
    """A dataset whose groups have other weights.

    Attributes:
        dataset: The dataset.
        mix: Groups of its examples, with their weights.
    """

    dataset: Dataset
    mix: tuple[ExampleGroup, ...]

    @property
    def lengths(self) -> NDArray[np.int32]:
        """Tokens of each example, one column per side."""
        return self.dataset.lengths

    def fetch(self, ids: NDArray[np.integer]) -> Batch:
        """Returns the batch of the given examples."""
        return self.dataset.fetch(ids)

    def in_epoch(self, epoch: int) -> "MixedDataset":
        """Returns the dataset as it is in an epoch."""
        return MixedDataset(in_epoch(self.dataset, epoch), self.mix)


def stage_ends(stages: Sequence[Stage], settings: TrainingSettings) -> list[float]:
    """Returns the number of updates after which each stage ends, infinite for the last.

    Shares are those of the run as it was first planned: a run that is extended extends its last stage.
    """
    length, end, ends = min(settings.max_steps, settings.decay_steps), 0.0, list[float]()
    for stage in stages[:-1]:
        end += stage.steps if stage.steps is not None else round((stage.share or 0.0) * length)
        ends.append(end)
    return [*ends, inf] if stages else []


def current_stage(stages: Sequence[Stage], progress: Progress, settings: TrainingSettings) -> int:
    """Returns the index of the stage that the next update belongs to; 0 without stages.

    A run whose time is limited may change its length, see `Refit`, and with it that of each stage.
    """
    if not stages:
        return 0
    return bisect_right(stage_ends(stages, settings), schedule_position(progress.step, progress, settings))


def check_stages_fit(stages: Sequence[Stage], settings: TrainingSettings) -> None:
    """Checks that every stage has updates and examples.

    Raises:
        ConfigError: One has none.
    """
    begin = 0.0
    for stage, end in zip(stages, stage_ends(stages, settings), strict=True):
        last = min(end, settings.max_steps)
        if last <= begin:
            raise ConfigError(
                f"data.stages: {stage.name} has no update: it begins after {begin:,.0f} of {settings.max_steps:,}; "
                "shorten the stages before it, or raise training.max_steps"
            )
        if not any(int(group.examples * group.weight) for group in stage.mix):
            raise ConfigError(f"data.stages: the weights of {stage.name} leave no example in an epoch; raise them")
        begin = end
