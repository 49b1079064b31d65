"""An engine without processes or models, for tests of the server's routes."""

import asyncio
import hashlib
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import regex

from transformer.serving.errors import ServiceError
from transformer.serving.interfaces import EngineStatus, Item, Job, ModelInfo, ModelStatus
from transformer.text.spans import KEPT_KINDS, PATTERNS

CREATED = 1_700_000_000
MODELS = (
    ModelInfo("en-de", "encoder-decoder", "en", "de", CREATED, 5_800_000, "transformer, 5.8 MB"),
    ModelInfo("de-en", "encoder-decoder", "de", "en", CREATED, 5_800_000, "transformer, 5.8 MB"),
    ModelInfo("en-fr", "encoder-decoder", "en", "fr", CREATED, 5_800_000, "transformer, 5.8 MB"),
    ModelInfo("tiny-gpt", "language model", created=CREATED, size=500_000, description="gpt, 0.5 MB", context=256),
    ModelInfo("tiny-bert", "encoder", created=CREATED, size=400_000, description="bert, 0.4 MB", has_labels=True),
)
WORDS: Mapping[str, Callable[[str], str]] = {"en-de": str.upper, "de-en": str.lower, "en-fr": lambda word: word[::-1]}
"""What each translator makes of a word."""
CONTINUATION = ("once", "upon", "a", "time", "there", "was", "a", "model")
VECTOR_SIZE = 8


@dataclass
class FakeEngine:
    """Implements `transformer.serving.interfaces.Engine` in the process itself, with predictable results.

    A translator changes each word of a text as `WORDS` says and keeps white space, protected spans and the target
    terms of a glossary. Further translations have a number at the end: `TEXT (2)`. A language model continues with
    `CONTINUATION`, an encoder makes vectors from a hash of the text.

    Attributes:
        infos: Models.
        failures: Errors by the text of the item that fails with it.
        is_full: Whether all jobs are refused because the queue is full.
        gate: Jobs wait until it is set, as it is at first.
        jobs: All jobs that were accepted, in order.
        n_running: Number of jobs that wait or run.
        n_cancelled: Number of jobs and streams whose caller left.
        n_reloads: Number of calls of `reload`.
        is_closed: Whether `close` was called.
    """

    infos: Sequence[ModelInfo] = MODELS
    failures: dict[str, ServiceError] = field(default_factory=dict)
    is_full: bool = False
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    jobs: list[Job] = field(default_factory=list)
    n_running: int = 0
    n_cancelled: int = 0
    n_reloads: int = 0
    is_closed: bool = False

    def __post_init__(self) -> None:
        """Opens the gate."""
        self.gate.set()

    @property
    def models(self) -> Mapping[str, ModelInfo]:
        """Models by name."""
        return {info.name: info for info in self.infos}

    async def open(self) -> None:
        """Does nothing."""

    async def run(self, job: Job) -> list[Mapping[str, Any]]:
        """Returns the results of a job's items; raises the first error."""
        results = await self.run_each(job)
        for result in results:
            if isinstance(result, Exception):
                raise result
        return [result for result in results if not isinstance(result, Exception)]

    async def run_each(self, job: Job) -> list[Mapping[str, Any] | Exception]:
        """Returns the results of a job's items, with errors of single ones."""
        await self._enter(job)
        try:
            await self.gate.wait()
            return [self.failures.get(item.text) or self._result(job, item) for item in job.items]
        except asyncio.CancelledError:
            self.n_cancelled += 1
            raise
        finally:
            self.n_running -= 1

    async def stream(self, job: Job) -> AsyncGenerator[Mapping[str, Any], None]:
        """Yields one word of the continuation at a time."""
        await self._enter(job)
        try:
            (item,) = job.items
            words = continuation(job.options)
            if item.text in self.failures:
                raise self.failures[item.text]
            for word in words:
                await self.gate.wait()
                yield {"text": f" {word}", "tokens": 1}
            finished = len(words) == len(CONTINUATION)
            prompt_tokens = len(item.text.split())
            yield {"text": "", "finished": finished, "prompt_tokens": prompt_tokens, "tokens": len(words)}
        except (asyncio.CancelledError, GeneratorExit):
            self.n_cancelled += 1
            raise
        finally:
            self.n_running -= 1

    def check_capacity(self) -> None:
        """Refuses work while the queue is full."""
        if self.is_full:
            raise ServiceError("queue_full", "the queue is full; try again later", retry_after=1.0)

    def status(self) -> EngineStatus:
        """Returns the present state."""
        waiting = self.n_running if not self.gate.is_set() else 0
        models = {info.name: ModelStatus("ready", 10_000_000, 1) for info in self.infos}
        return EngineStatus(not self.is_full and not self.is_closed, 10 * waiting, waiting, models)

    async def reload(self) -> None:
        """Counts the call."""
        self.n_reloads += 1

    async def drain(self) -> None:
        """Waits until nothing runs."""
        while self.n_running:
            await asyncio.sleep(0.001)

    async def close(self) -> None:
        """Refuses work from now on."""
        self.is_closed = True

    async def _enter(self, job: Job) -> None:
        if job.model not in self.models:
            raise ServiceError("not_found", f"no model {job.model!r}", param="model")
        self.check_capacity()
        self.jobs.append(job)
        self.n_running += 1

    def _result(self, job: Job, item: Item) -> Mapping[str, Any]:
        text, options = item.text, job.options
        n_tokens = len(text.split())
        match job.task:
            case "translate":
                return translation(job.model, text, options)
            case "generate":
                words = continuation(options)
                finished = len(words) == len(CONTINUATION)
                whole = "".join(f" {word}" for word in words)
                one = {"text": whole, "score": -1.0, "finished": finished, "tokens": len(words)}
                return {"alternatives": [one] * options.get("n_best", 1), "prompt_tokens": n_tokens}
            case "embed":
                return {"vector": vector(text), "tokens": n_tokens}
            case "classify":
                labels = [{"label": "positive", "probability": 0.75}, {"label": "negative", "probability": 0.25}]
                return {"labels": labels[: options.get("top", 2)], "tokens": n_tokens}
            case "fill":
                guess = {"token": "▁word", "text": text.replace("[MASK]", "word", 1), "probability": 0.5}
                return {"masks": [[guess]] * text.count("[MASK]"), "tokens": n_tokens}
            case "score":
                return {"score": -1.0 * n_tokens, "per_token": -1.0, "tokens": n_tokens}


def translation(model: str, text: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the result of a translator."""
    terms = dict(options.get("glossary", ()))
    kinds = [PATTERNS[kind] for kind in options.get("protected", KEPT_KINDS)]
    kept = regex.compile("|".join([*kinds, *(rf"(?<!\w){re.escape(term)}(?!\w)" for term in terms)]) or r"(?!)")
    parts, end = [], 0
    for match in kept.finditer(text):
        parts += [_words(model, text[end : match.start()]), terms.get(match.group(), match.group())]
        end = match.end()
    best = "".join([*parts, _words(model, text[end:])])
    n = len(text.split())
    texts = [best, *(f"{best} ({number})" for number in range(2, options.get("n_best", 1) + 1))]
    alternatives = [{"text": other, "score": -0.5 * n - rank, "finished": True} for rank, other in enumerate(texts)]
    aligned = [[word, word] for word in range(min(n, len(best.split())))] if options.get("alignment") else None
    return {
        "text": best, "score": -0.5 * n, "alternatives": alternatives, "flags": [], "copied": False,
        "alignment": aligned, "source_tokens": n, "target_tokens": len(best.split()),
        **({"confidence": 0.21, "unsure": True} if "unclear" in text else {}),
    }  # fmt: skip


def continuation(options: Mapping[str, Any]) -> list[str]:
    """Returns the words of a continuation, up to the first one that contains a stop."""
    words = list(CONTINUATION[: options.get("max_tokens", len(CONTINUATION))])
    stops = options.get("stop", ())
    return words[: next((i for i, word in enumerate(words) if any(stop.strip() in word for stop in stops)), len(words))]


def vector(text: str) -> list[float]:
    """Returns a vector that depends on the text alone."""
    digest = hashlib.sha256(text.encode()).digest()
    return [byte / 255 for byte in digest[:VECTOR_SIZE]]


def _words(model: str, text: str) -> str:
    change = WORDS.get(model, str.upper)
    return re.sub(r"\w+", lambda word: change(word.group()), text)
