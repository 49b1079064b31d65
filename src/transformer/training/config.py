"""The recipe's `training` section."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from transformer.config import Config

Interval = Annotated[int, Field(ge=1)] | Literal["epoch"]
Rate = Annotated[float, Field(ge=0, lt=1)]


class TrainingConfig(Config):
    """Configuration of training. Intervals are in steps (updates), or "epoch"."""

    seed: int = Field(default=1, ge=0, description="seed of initialization, order and dropout")
    max_steps: int | None = Field(default=None, ge=1, description="number of updates; chosen by corpus size if not set")
    start_from: str | None = Field(
        default=None,
        description="model to fine-tune, which sets architecture and tokenizer; the learning rate is small if not set",
    )
    batch_tokens: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        default=4096, description="longest side x pairs of one update, padding included; auto: as much as memory allows"
    )
    accumulation: int | None = Field(
        default=None, ge=1, description="micro-batches per update; one for each rank if not set"
    )
    schedule: Literal["inverse_sqrt", "paper", "cosine", "constant"] = Field(
        default="cosine", description="schedule of the learning rate after a linear warm-up"
    )
    learning_rate: float | None = Field(
        default=None, gt=0, description="peak learning rate; (d_model * warmup_steps)^-0.5 if not set"
    )
    warmup_steps: int | None = Field(
        default=None, ge=1, description="updates until the peak; chosen by corpus size if not set"
    )
    decay_steps: int | None = Field(
        default=None, ge=1, description="length of the cosine; max_steps at the start if not set"
    )
    label_smoothing: float = Field(default=0.1, ge=0, lt=1, description="probability spread over the vocabulary")
    r_drop: float = Field(
        default=0.0,
        ge=0,
        description="weight of the divergence between two passes with different dropout (R-Drop), e.g. 5",
    )
    adam_betas: tuple[Rate, Rate] = Field(default=(0.9, 0.98), description="Adam's decay rates")
    adam_eps: float = Field(default=1e-9, gt=0, description="Adam's epsilon")
    weight_decay: float = Field(default=0.0, ge=0, description="decay of matrices, decoupled from the gradient (AdamW)")
    clip_norm: float = Field(default=1.0, ge=0, description="largest norm of the gradient; 0 does not clip")
    skip_nonfinite: int = Field(
        default=0, ge=0, description="batches that a run may skip because the loss or gradient is not finite"
    )
    validate_every: Interval | None = Field(
        default=None, description="steps between validations; about an epoch if not set"
    )
    save_every: Interval | None = Field(
        default=None, description="steps between checkpoints; about an epoch if not set"
    )
    keep_last: int = Field(default=2, ge=1, description="recent checkpoints to keep, besides the best")
    log_every: int = Field(default=50, ge=1, description="steps between lines of metrics")
    tensorboard: bool = Field(default=False, description="also write RUN/tensorboard (needs the package tensorboard)")
    patience: int = Field(
        default=10, ge=0, description="validations without a better score after which the run stops; 0 never stops"
    )
    best_metric: Literal["bleu", "chrf", "loss", "accuracy"] = Field(
        default="bleu", description="validation score that selects the best checkpoint; chosen by the task if not set"
    )
    stop_seconds: float = Field(
        default=300.0, gt=0, description="seconds from Ctrl-C or SIGTERM to a hard exit if the step or the saving hangs"
    )
    distribution: Literal["ddp", "fsdp"] = Field(
        default="ddp", description="strategy for several ranks: ddp keeps the full model on each, fsdp (FSDP2) a shard"
    )
    rank_seconds: float = Field(
        default=1800.0, gt=0, description="seconds that a rank waits for another, e.g. for rank 0 to validate"
    )
    precision: Literal["bf16", "float32", "float16"] | None = Field(
        default=None, description="precision of products; bf16 where the hardware supports it if not set"
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        default="auto", description="device; auto uses a GPU if one is available"
    )
    average_last: int | None = Field(
        default=None, ge=2, description="number of last scheduled checkpoints to average at the end"
    )
    average_best: int | None = Field(
        default=None, ge=2, description="number of best validated checkpoints to average at the end"
    )
    ema_decay: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="decay of a moving average of the parameters, which becomes the model, e.g. 0.999",
    )
    activation_checkpointing: bool = Field(
        default=False, description="recompute layers in the backward pass: less memory, more time, equal results"
    )
    compile: bool = Field(
        default=False, description="compile the layers with torch.compile; for GPUs, since the CPU kernels are faster"
    )
    threads: int | None = Field(default=None, ge=1, description="CPU threads; all cores if not set")

    @model_validator(mode="after")
    def _exclude_two_averages(self) -> "TrainingConfig":
        if self.average_last and self.average_best:
            raise ValueError("training.average_last and training.average_best exclude each other; set only one")
        return self

    @model_validator(mode="after")
    def _exclude_compiled_recomputation(self) -> "TrainingConfig":
        if self.compile and self.activation_checkpointing:
            raise ValueError("training.compile and training.activation_checkpointing exclude each other; set only one")
        return self

    @property
    def budget(self) -> int:
        """The value of `batch_tokens`, which must no longer be "auto"."""
        assert self.batch_tokens != "auto"
        return self.batch_tokens

    @property
    def budget_at_once(self) -> int:
        """The budget of one micro-batch, which limits what is in memory at a time."""
        return max(1, self.budget // (self.accumulation or 1))
