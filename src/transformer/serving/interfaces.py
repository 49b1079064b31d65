"""Interfaces between the routes of the server and its engine: models, units of work, and their results."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

Task = Literal["translate", "generate", "embed", "classify", "fill", "score"]
"""Work that a model can do.

Results, one mapping per item:
    translate: {"text", "score", "alternatives": [{"text", "score", "finished"}], "flags": [str], "copied": bool,
        "confidence": float or None, "unsure": bool, "alignment": [[source word, target word]] or None,
        "source_tokens": int, "target_tokens": int}
    generate: {"alternatives": [{"text", "score" (None if a stop sequence was given), "finished", "tokens": int}],
        "prompt_tokens": int}
    embed: {"vector": [float], "tokens": int}
    classify: {"labels": [{"label", "probability"}], "tokens": int}
    fill: {"masks": [[{"token", "text", "probability"}]], "tokens": int}
    score: {"score": float, "per_token": float, "tokens": int}
Workers return {"error": `ServiceError.to_json()`} for an item that fails.
Parts of a stream ("generate" alone): {"text": str, "tokens": int}, and last {"text": "", "finished": bool,
    "prompt_tokens": int, "tokens": int in total}.
"""
Kind = Literal["encoder-decoder", "language model", "encoder", "image encoder"]
"""Kind of a model, as in `transformer.models.family`."""
TASKS: Final[Mapping[str, tuple[Task, ...]]] = {
    "encoder-decoder": ("translate", "score"),
    "language model": ("generate",),
    "encoder": ("embed", "classify", "fill"),
    "image encoder": (),
}
"""Tasks of each kind of model."""


@dataclass(frozen=True)
class ModelInfo:
    """Facts of a model that are known before its weights are loaded.

    Attributes:
        name: Name by which clients ask for it.
        kind: Kind of the model; it determines the tasks.
        source_language: BCP 47 tag of the language that it translates from; empty if unknown or not a translator.
        target_language: BCP 47 tag of the language that it translates to; empty if unknown or not a translator.
        created: Time at which its folder was written, in seconds since 1970.
        size: Size of its files, in bytes.
        description: Family and size in words, e.g. "transformer, 5.8 MB".
        has_labels: Whether an encoder classifies.
        context: Number of positions of a language model; 0 for others.
        chat: Chat template of a language model and its special tokens, see `transformer.bundle.chat`; empty for none.
        directions: Pairs that a model of several languages learned; empty for other models.
    """

    name: str
    kind: Kind
    source_language: str = ""
    target_language: str = ""
    created: int = 0
    size: int = 0
    description: str = ""
    has_labels: bool = False
    context: int = 0
    chat: Mapping[str, Any] = field(default_factory=dict[str, Any])
    directions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Item:
    """One unit of work: a text of moderate length, e.g. a line, which workers process in a batch with others.

    Attributes:
        text: Text to process; for "score", the source.
        second: Translation to score; empty for other tasks.
        prefix: Required beginning of a translation.
    """

    text: str
    second: str = ""
    prefix: str = ""


@dataclass(frozen=True)
class Job:
    """Items of one request that share a model and options.

    Attributes:
        model: Name of the model.
        task: Work to do with the items.
        items: Units of work.
        client: Client (key or address), among whom the workers' time is divided fairly.
        options: JSON-like options of the task, see `transformer.serving.engine.options`. Jobs with equal options share
            batches.
        deadline: Value of `time.monotonic()` after which nobody waits for the results; None for no limit.
    """

    model: str
    task: Task
    items: Sequence[Item]
    client: str = ""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    deadline: float | None = None


@dataclass(frozen=True)
class ModelStatus:
    """State of a model.

    Attributes:
        state: "unloaded", "loading", "ready", "failed" (it cannot be loaded) or "stalled" (no worker answers).
        memory: Memory that its processes use, in bytes; 0 if unloaded.
        workers: Number of running workers.
        problem: Why it failed or stalled, or why it could not be loaded again; empty if nothing is wrong.
    """

    state: Literal["unloaded", "loading", "ready", "failed", "stalled"]
    memory: int = 0
    workers: int = 0
    problem: str = ""


@dataclass(frozen=True)
class EngineStatus:
    """State of the engine.

    Attributes:
        ready: Whether it accepts work now.
        queued_tokens: Estimated number of tokens of the items that wait.
        queued_items: Number of items that wait.
        models: State of each model.
    """

    ready: bool
    queued_tokens: int
    queued_items: int
    models: Mapping[str, ModelStatus]


class Engine(Protocol):
    """Runs jobs on workers. All methods belong to the event loop's thread."""

    @property
    def models(self) -> Mapping[str, ModelInfo]:
        """Models by name, in the order in which they were given."""
        ...

    async def open(self) -> None:
        """Joins the running event loop, before any other call; begins to load models if settings ask for preloading."""
        ...

    async def run(self, job: Job) -> list[Mapping[str, Any]]:
        """Returns the results of a job's items, in order.

        If the caller is cancelled, waiting items are dropped.

        Raises:
            ServiceError: The queue is full, the deadline has passed, the model cannot be loaded, a worker died twice,
                or an item is invalid; for several failed items, the first one's error.
        """
        ...

    async def run_each(self, job: Job) -> list[Mapping[str, Any] | Exception]:
        """Same as `run`, but an item that fails has a `ServiceError` as its result."""
        ...

    def stream(self, job: Job) -> AsyncGenerator[Mapping[str, Any], None]:
        """Yields the parts of a continuation as they are generated; closing the generator stops the worker's work."""
        ...

    def check_capacity(self) -> None:
        """Checks that a job would be accepted now, for callers that prepare one at some cost.

        Raises:
            ServiceError: The queue is full, or the server is starting or stopping.
        """
        ...

    def status(self) -> EngineStatus:
        """Returns the present state."""
        ...

    async def reload(self) -> None:
        """Loads models whose folders have changed again; requests go to the old ones until the new ones are ready."""
        ...

    async def drain(self) -> None:
        """Returns when no work is left."""
        ...

    async def close(self) -> None:
        """Ends all processes of the engine."""
        ...


class Metrics(Protocol):
    """Metrics that the engine reports while it runs."""

    def observe_batch(self, model: str, n_items: int, n_tokens: int, seconds: float) -> None:
        """Records a finished batch."""
        ...

    def observe_queue_time(self, model: str, seconds: float) -> None:
        """Records the time that an item spent in the queue."""
        ...

    def worker_died(self, model: str) -> None:
        """Records an unexpected end of a worker."""
        ...
