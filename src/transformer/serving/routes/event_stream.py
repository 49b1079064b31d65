"""Streams of server-sent events."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, Final

from pydantic_core import to_json
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

HEADERS: Final = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
DONE: Final = b"data: [DONE]\n\n"


class EventStream(StreamingResponse):
    """Response whose events are JSON; when it ends, in whatever way, the source of the events is closed.

    Args:
        events: Contents of the events, in order.
    """

    def __init__(self, events: AsyncGenerator[Mapping[str, Any], None]) -> None:
        super().__init__(_encode(events), media_type="text/event-stream", headers=HEADERS)
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the events."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._events.aclose()


async def _encode(events: AsyncIterator[Mapping[str, Any]]) -> AsyncIterator[bytes]:
    failed = False
    async for event in events:
        failed = "error" in event
        yield b"data: " + to_json(event) + b"\n\n"
    if not failed:
        yield DONE
