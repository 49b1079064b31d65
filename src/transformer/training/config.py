"""The recipe's `training` section."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from transformer.config import Config, Processors, Seconds

Interval = Annotated[int, Field(ge=1)] | Literal["epoch"]
Rate = Annotated[float, Field(ge=0, lt=1)]
Names = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...],
    Field(min_length=1),
    BeforeValidator(lambda names: (names,) if isinstance(names, str) else names),
]


class TrainingConfig(Config):
    """Configuration of training. Intervals are numbers of steps (updates), or "epoch"."""

    seed: int = Field(default=1, ge=0, description="random seed of initialization, data order and dropout")
    max_steps: int | None = Field(
        default=None, ge=1, description="total number of updates; chosen by task and corpus size if not set"
    )
    minutes: float | None = Field(
        default=None,
        gt=0,
        le=1_000_000,
        description="time for the whole run in minutes; model, updates, warm-up and intervals that are not set are "
        "fitted to it by the measured speed",
    )
    max_seconds: Seconds | None = Field(
        default=None,
        description="maximum duration of updates, validations and checkpoints over all starts of the run; computed "
        "from minutes if not set",
    )
    start_from: str | None = Field(
        default=None,
        description="model to fine-tune, which sets architecture and tokenizer; lowers the default learning rate",
    )
    freeze: Names | None = Field(
        default=None,
        description="parameters that are not trained: names or patterns such as encoder or decoder.layers.[01], and "
        "the words embeddings and known_tokens",
    )
    batch_tokens: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        default=4096,
        description="tokens per update on all ranks (longest side x pairs, padding included); auto fits it to memory",
    )
    accumulation: int | None = Field(
        default=None,
        ge=1,
        le=100_000,
        description="micro-batches per update (gradient accumulation); one per rank if not set",
    )
    schedule: Literal["inverse_sqrt", "paper", "cosine", "constant"] = Field(
        default="cosine",
        description="learning-rate schedule after a linear warm-up: inverse_sqrt, paper, cosine or constant",
    )
    learning_rate: float | None = Field(
        default=None,
        gt=0,
        description="peak learning rate; if not set, chosen by the task or (d_model * warmup_steps)^-0.5",
    )
    warmup_steps: int | None = Field(
        default=None, ge=1, description="updates of linear warm-up to the peak; chosen by corpus size if not set"
    )
    decay_steps: int | None = Field(
        default=None,
        ge=1,
        description="updates until the cosine schedule reaches zero; the initial max_steps if not set",
    )
    label_smoothing: float = Field(
        default=0.1, ge=0, lt=1, description="label smoothing: probability mass spread over all tokens or labels"
    )
    r_drop: float = Field(
        default=0.0,
        ge=0,
        description="R-Drop weight of the divergence between two passes with different dropout, e.g. 5; 0 disables it",
    )
    adam_betas: tuple[Rate, Rate] = Field(
        default=(0.9, 0.98), description="Adam's betas: decay rates of the two moment estimates"
    )
    adam_eps: float = Field(default=1e-9, gt=0, description="Adam's epsilon, added to the denominator")
    weight_decay: float = Field(
        default=0.0, ge=0, description="decoupled weight decay (AdamW), applied to matrices only"
    )
    clip_norm: float = Field(default=1.0, ge=0, description="maximum gradient norm; 0 disables clipping")
    skip_nonfinite: int = Field(
        default=0,
        ge=0,
        description="maximum number of batches per run to skip because of a non-finite loss or gradient",
    )
    validate_every: Interval | None = Field(
        default=None,
        description="steps between validations, or epoch; one epoch, within 100 to 5,000 steps, if not set",
    )
    save_every: Interval | None = Field(
        default=None,
        description="steps between checkpoints, or epoch; one epoch, within 100 to 5,000 steps, if not set",
    )
    keep_last: int = Field(default=2, ge=1, description="number of most recent checkpoints to keep besides the best")
    log_every: int = Field(default=50, ge=1, description="steps between log entries of training metrics")
    tensorboard: bool = Field(
        default=False, description="also write TensorBoard logs to RUN/tensorboard (needs the package tensorboard)"
    )
    patience: int = Field(
        default=10, ge=0, description="consecutive validations without improvement before early stopping; 0 disables it"
    )
    best_metric: Literal["bleu", "chrf", "loss", "accuracy"] = Field(
        default="chrf", description="validation metric that selects the best checkpoint; chosen by the task if not set"
    )
    stop_seconds: Seconds = Field(
        default=300.0,
        description="seconds after Ctrl-C, SIGTERM or SIGHUP before a forced exit, if the step or saving hangs",
    )
    distribution: Literal["ddp", "fsdp"] = Field(
        default="ddp", description="multi-rank strategy: ddp replicates the model on each rank, fsdp (FSDP2) shards it"
    )
    rank_seconds: Seconds = Field(
        default=1800.0,
        description="timeout in seconds of a rank that waits for another, e.g. while rank 0 validates",
    )
    precision: Literal["bf16", "float32", "float16"] | None = Field(
        default=None,
        description="precision of matrix products: bf16 or float32; if not set, bf16 where the hardware supports it",
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        default="auto", description="device to train on; auto uses a GPU if one is available"
    )
    average_last: int | None = Field(
        default=None,
        ge=2,
        description="number of last scheduled checkpoints to average at the end; no averaging if not set",
    )
    average_best: int | None = Field(
        default=None,
        ge=2,
        description="number of best validated checkpoints to average at the end; no averaging if not set",
    )
    ema_decay: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="decay of an exponential moving average of the parameters, used as the model, e.g. 0.999",
    )
    quantization_aware_steps: int | None = Field(
        default=None,
        ge=1,
        description="number of last updates, up to max_steps, that round weights and inputs of products as int8 "
        "inference does; none if not set",
    )
    activation_checkpointing: bool = Field(
        default=False,
        description="recompute activations in the backward pass; saves memory, takes more time, same results",
    )
    compile: bool = Field(
        default=False,
        description="compile the layers with torch.compile; for GPUs: on CPUs the built-in kernels are faster",
    )
    threads: Processors | None = Field(default=None, description="number of CPU threads; all cores if not set")

    @model_validator(mode="after")
    def _exclude_two_averages(self) -> "TrainingConfig":
        if self.average_last and self.average_best:
            raise ValueError("training.average_last and training.average_best exclude each other; set only one")
        return self

    @model_validator(mode="after")
    def _exclude_quantization_elsewhere(self) -> "TrainingConfig":
        if self.quantization_aware_steps and (self.compile or self.activation_checkpointing):
            other = "compile" if self.compile else "activation_checkpointing"
            raise ValueError(f"training.quantization_aware_steps and training.{other} exclude each other; set only one")
        return self

    @model_validator(mode="after")
    def _exclude_compiled_recomputation(self) -> "TrainingConfig":
        if self.compile and self.activation_checkpointing:
            raise ValueError("training.compile and training.activation_checkpointing exclude each other; set only one")
        return self


class TrainingSettings(Config):
    """Keys of `TrainingConfig` that the training itself reads, each with a value; 0 averages or limits nothing."""

    model_config = ConfigDict(extra="ignore")

    seed: int
    max_steps: int
    max_seconds: float = 0.0
    freeze: tuple[str, ...] = ()
    batch_tokens: int
    accumulation: int
    schedule: str
    warmup_steps: int
    decay_steps: int
    label_smoothing: float
    r_drop: float
    adam_betas: tuple[float, float]
    adam_eps: float
    weight_decay: float
    clip_norm: float
    skip_nonfinite: int
    validate_every: Interval
    save_every: Interval
    keep_last: int
    log_every: int
    tensorboard: bool
    patience: int
    best_metric: str
    stop_seconds: float
    average_last: int = 0
    average_best: int = 0
    ema_decay: float = 0.0
    quantization_aware_steps: int = 0
    activation_checkpointing: bool
    compile: bool

    @classmethod
    def from_config(cls, training: TrainingConfig) -> "TrainingSettings":
        """Returns the settings of a section without unset keys.

        Raises:
            ValidationError: A key that needs a value is not set.
        """
        return cls.model_validate(training.model_dump(exclude_none=True))

    @property
    def micro_batch_tokens(self) -> int:
        """Tokens of one micro-batch, which limit what is in memory at a time."""
        return max(1, self.batch_tokens // self.accumulation)

    @property
    def n_averaged(self) -> int:
        """Number of checkpoints that are averaged at the end."""
        return self.average_last or self.average_best
