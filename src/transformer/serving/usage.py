"""Counts the work of each request for the log."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from transformer.serving.interfaces import Engine, EngineStatus, Job, ModelInfo


@dataclass
class Usage:
    """Work of one request.

    Attributes:
        items: Number of units of work.
        tokens: Number of tokens read and written.
        texts: Texts of the units of work, if they are kept.
    """

    items: int = 0
    tokens: int = 0
    texts: list[str] | None = None


USAGE: ContextVar[Usage | None] = ContextVar("usage", default=None)
"""Usage of the request that is being answered."""
TOKEN_FIELDS = ("tokens", "source_tokens", "target_tokens", "prompt_tokens")


class CountedEngine:
    """An engine whose work is counted in `USAGE`.

    Args:
        engine: The engine that does the work.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def models(self) -> Mapping[str, ModelInfo]:
        """Models by name."""
        return self._engine.models

    async def open(self) -> None:
        """Same as `Engine.open`."""
        await self._engine.open()

    async def run(self, job: Job) -> list[Mapping[str, Any]]:
        """Same as `Engine.run`."""
        _count_items(job)
        results = await self._engine.run(job)
        for result in results:
            _count_tokens(result)
        return results

    async def run_each(self, job: Job) -> list[Mapping[str, Any] | Exception]:
        """Same as `Engine.run_each`."""
        _count_items(job)
        results = await self._engine.run_each(job)
        for result in results:
            if not isinstance(result, Exception):
                _count_tokens(result)
        return results

    async def stream(self, job: Job) -> AsyncGenerator[Mapping[str, Any], None]:
        """Same as `Engine.stream`."""
        _count_items(job)
        async with aclosing(self._engine.stream(job)) as parts:
            async for part in parts:
                if "finished" in part:
                    _count_tokens(part)
                yield part

    def check_capacity(self) -> None:
        """Same as `Engine.check_capacity`."""
        self._engine.check_capacity()

    def status(self) -> EngineStatus:
        """Returns the present state."""
        return self._engine.status()

    async def reload(self) -> None:
        """Same as `Engine.reload`."""
        await self._engine.reload()

    async def drain(self) -> None:
        """Same as `Engine.drain`."""
        await self._engine.drain()

    async def close(self) -> None:
        """Same as `Engine.close`."""
        await self._engine.close()


def _count_items(job: Job) -> None:
    usage = USAGE.get()
    if usage is None:
        return
    usage.items += len(job.items)
    if usage.texts is not None:
        usage.texts += [item.text for item in job.items]


def _count_tokens(result: Mapping[str, Any]) -> None:
    usage = USAGE.get()
    if usage is None:
        return
    usage.tokens += sum(result.get(name, 0) for name in TOKEN_FIELDS)
    usage.tokens += sum(alternative.get("tokens", 0) for alternative in result.get("alternatives", ()))
