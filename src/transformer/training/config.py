"""The recipe's `training` section."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from transformer.config import Config

Interval = Annotated[int, Field(ge=1)] | Literal["epoch"]
Rate = Annotated[float, Field(ge=0, lt=1)]


class TrainingConfig(Config):
    """How a model is trained. Intervals are in steps (updates), or "epoch"."""

    seed: int = Field(default=1, ge=0, description="of initialization, order and dropout")
    max_steps: int | None = Field(default=None, ge=1, description="updates; chosen by corpus size if not set")
    start_from: str | None = Field(
        default=None, description="fine-tune this model: its architecture and tokenizer; a small rate if none is given"
    )
    batch_tokens: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        default=4096, description="longest side x pairs of one update, padding included; auto: what memory allows"
    )
    accumulation: int | None = Field(
        default=None, ge=1, description="micro-batches that an update is cut into; one for each rank if not set"
    )
    schedule: Literal["inverse_sqrt", "paper", "cosine", "constant"] = Field(
        default="cosine", description="of the learning rate, after a linear warm-up"
    )
    learning_rate: float | None = Field(
        default=None, gt=0, description="peak; if not set (d_model * warmup_steps)^-0.5"
    )
    warmup_steps: int | None = Field(
        default=None, ge=1, description="updates to the peak; chosen by corpus size if not set"
    )
    decay_steps: int | None = Field(
        default=None, ge=1, description="length of the cosine; max_steps at the start if not set"
    )
    label_smoothing: float = Field(default=0.1, ge=0, lt=1, description="probability spread over the vocabulary")
    r_drop: float = Field(
        default=0.0,
        ge=0,
        description="every pair goes through the model twice; weight of what dropout changes in what it says, e.g. 5",
    )
    adam_betas: tuple[Rate, Rate] = Field(default=(0.9, 0.98), description="Adam's decay rates")
    adam_eps: float = Field(default=1e-9, gt=0, description="Adam's epsilon")
    weight_decay: float = Field(default=0.0, ge=0, description="of matrices: AdamW, decoupled from the gradient")
    clip_norm: float = Field(default=1.0, ge=0, description="largest norm of the gradient; 0 does not clip")
    skip_nonfinite: int = Field(
        default=0, ge=0, description="batches that a run may leave out for a loss or gradient that is not finite"
    )
    validate_every: Interval | None = Field(
        default=None, description="steps between validations; about an epoch if not set"
    )
    save_every: Interval | None = Field(
        default=None, description="steps between checkpoints; about an epoch if not set"
    )
    keep_last: int = Field(default=2, ge=1, description="checkpoints kept, besides the best")
    log_every: int = Field(default=50, ge=1, description="steps between lines of metrics")
    tensorboard: bool = Field(default=False, description="also write RUN/tensorboard (needs the package tensorboard)")
    patience: int = Field(
        default=10, ge=0, description="validations without a better score to stop after; 0 never stops"
    )
    best_metric: Literal["bleu", "chrf", "loss", "accuracy"] = Field(
        default="bleu", description="which validation score decides the best; the task's own if not set"
    )
    stop_seconds: float = Field(
        default=300.0, gt=0, description="from Ctrl-C or SIGTERM to a hard exit, should the step or the saving hang"
    )
    distribution: Literal["ddp", "fsdp"] = Field(
        default="ddp", description="of several ranks: ddp has the whole model on each of them, fsdp (FSDP2) a part"
    )
    rank_seconds: float = Field(
        default=1800.0, gt=0, description="how long a rank waits for another, e.g. for rank 0 to validate"
    )
    precision: Literal["bf16", "float32", "float16"] | None = Field(
        default=None, description="of products; bf16 where the hardware multiplies it, if not set"
    )
    device: Literal["auto", "cpu", "cuda"] = Field(default="auto", description="auto takes a GPU where there is one")
    average_last: int | None = Field(
        default=None, ge=2, description="at the end, average so many of the last scheduled checkpoints"
    )
    average_best: int | None = Field(
        default=None, ge=2, description="at the end, average so many of the best validated checkpoints"
    )
    ema_decay: float | None = Field(
        default=None, gt=0, lt=1, description="the model is a running mean of the parameters, e.g. 0.999"
    )
    activation_checkpointing: bool = Field(
        default=False, description="compute layers again in the backward pass: less memory, more time, equal results"
    )
    compile: bool = Field(
        default=False, description="compile the layers by torch.compile; for GPUs, as the kernels of CPUs are faster"
    )
    threads: int | None = Field(default=None, ge=1, description="CPU threads; all cores if not set")

    @model_validator(mode="after")
    def _one_kind_of_average(self) -> "TrainingConfig":
        if self.average_last and self.average_best:
            raise ValueError("training.average_last and training.average_best exclude each other; give one of them")
        return self

    @model_validator(mode="after")
    def _compiled_or_again(self) -> "TrainingConfig":
        if self.compile and self.activation_checkpointing:
            raise ValueError("training.compile and training.activation_checkpointing exclude each other; give one")
        return self

    @property
    def budget(self) -> int:
        """`batch_tokens`, once "auto" is settled."""
        assert self.batch_tokens != "auto"
        return self.batch_tokens

    @property
    def budget_at_once(self) -> int:
        """What a micro-batch has of it, which is all that is in memory at a time."""
        return max(1, self.budget // (self.accumulation or 1))
