"""The recipe's `training` section."""

from typing import Literal

from pydantic import Field

from transformer.settings import Settings

Interval = int | Literal["epoch"]


class TrainingSettings(Settings):
    """How a model is trained. Intervals are in steps (updates), or "epoch"."""

    seed: int = Field(default=1, ge=0, description="of initialization, order and dropout")
    max_steps: int | None = Field(default=None, ge=1, description="updates; chosen by corpus size if not set")
    batch_tokens: int = Field(default=4096, ge=1, description="longest side x pairs of one update, padding included")
    accumulation: int = Field(default=1, ge=1, description="micro-batches that an update is cut into, to save memory")
    schedule: Literal["inverse_sqrt", "paper", "cosine", "constant"] = Field(
        default="inverse_sqrt", description="of the learning rate, after a linear warm-up"
    )
    learning_rate: float | None = Field(
        default=None, gt=0, description="peak; if not set (d_model * warmup_steps)^-0.5"
    )
    warmup_steps: int | None = Field(
        default=None, ge=1, description="updates to the peak; chosen by corpus size if not set"
    )
    label_smoothing: float = Field(default=0.1, ge=0, lt=1, description="probability spread over the vocabulary")
    adam_betas: tuple[float, float] = Field(default=(0.9, 0.98), description="Adam's decay rates")
    adam_eps: float = Field(default=1e-9, gt=0, description="Adam's epsilon")
    clip_norm: float | None = Field(default=1.0, gt=0, description="largest norm of the gradient")
    validate_every: Interval = Field(default="epoch", description="steps between validations")
    save_every: Interval = Field(default="epoch", description="steps between checkpoints")
    log_every: int = Field(default=50, ge=1, description="steps between lines of metrics")
    patience: int | None = Field(default=10, ge=1, description="validations without a better score to stop after")
    best_metric: Literal["bleu", "chrf", "loss"] = Field(
        default="bleu", description="which validation score decides the best"
    )
    threads: int | None = Field(default=None, ge=1, description="CPU threads; all cores if not set")
