"""The recipe's tables `[[data.stages]]`."""

from collections.abc import Sequence
from typing import Annotated, Final

from pydantic import Field, model_validator

from transformer.config import Config
from transformer.errors import counted

GENERAL: Final = "general"
"""Name of the validation text of the whole run where a stage has one of its own; it begins the names of its scores."""
StageWeight = Annotated[float, Field(ge=0, le=1000)]


class StageConfig(Config):
    """A part of a run, with a mixture of the training files of its own."""

    name: str = Field(pattern="^[A-Za-z0-9-]+$", max_length=40, description="name of the stage, in log and scores")
    share: float | None = Field(default=None, gt=0, lt=1, description="share of the run; the last stage takes the rest")
    steps: int | None = Field(default=None, ge=1, description="number of updates, instead of share")
    weights: tuple[StageWeight, ...] = Field(
        description="number of passes per epoch over each file, in the order of data.weights; 0 leaves a file out"
    )
    validation_source: str | None = Field(default=None, description="validation source text of the stage")
    validation_target: str | None = Field(default=None, description="validation target text of the stage")

    @model_validator(mode="after")
    def _validation_has_both_sides(self) -> "StageConfig":
        if (self.validation_source is None) != (self.validation_target is None):
            raise ValueError(f"data.stages: {self.name} has one side of a validation text; give both or neither")
        if self.share is not None and self.steps is not None:
            raise ValueError(f"data.stages: {self.name} has share and steps; give one of them")
        return self


def check_stages(stages: Sequence[StageConfig], files: int) -> None:
    """Checks that stages fit the files of the corpus, and each other.

    Args:
        stages: Stages in their order.
        files: Number of training files.

    Raises:
        ValueError: They do not.
    """
    names = [stage.name for stage in stages]
    for stage in stages:
        if names.count(stage.name) > 1:
            raise ValueError(f"data.stages: {stage.name} is the name of two stages; give each its own")
        if stage.name == "perplexity":
            raise ValueError("data.stages: perplexity is the name of a score; give the stage another")
        if len(stage.weights) != files:
            raise ValueError(
                f"data.stages: {stage.name} has {counted(len(stage.weights), 'weight')} for {counted(files, 'file')}; "
                "give one for each"
            )
        if not any(stage.weights):
            raise ValueError(f"data.stages: {stage.name} has no weight above 0; give one to a file")
    for stage in stages[:-1]:
        if stage.share is None and stage.steps is None:
            raise ValueError(f"data.stages: {stage.name} has no length; give share or steps")
        if stage.name == GENERAL and stage.validation_source is not None:
            raise ValueError(
                f"data.stages: {GENERAL} has the name of data.validation_source in scores; give the stage another"
            )
    last, shares = stages[-1], sum(stage.share or 0.0 for stage in stages[:-1])
    if shares >= 1:
        raise ValueError(f"data.stages: shares of {shares:g} leave nothing to the last stage; lower them")
    is_rest = last.steps is None and (last.share is None or abs(shares + last.share - 1) < 1e-6)
    if not is_rest:
        raise ValueError(
            f"data.stages: {last.name} is the last stage and takes the rest of the run; leave out its length"
        )


def own_validation(stages: Sequence[StageConfig]) -> list[StageConfig]:
    """Returns the stages that have a validation text of their own."""
    return [stage for stage in stages if stage.validation_source is not None]
