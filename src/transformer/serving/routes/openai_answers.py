"""Answers of OpenAI's interface, whole or as a stream of events."""

import base64
import struct
import time
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from transformer.serving.errors import ServiceError
from transformer.serving.routes.event_stream import EventStream
from transformer.serving.routes.models import openai_error
from transformer.serving.routes.openai_types import ChatRequest, CompletionRequest, EmbeddingRequest

Result = Mapping[str, Any]
"""Result of a job: the alternatives for one prompt, or the vector of one text."""
Parts = AsyncGenerator[Mapping[str, Any], None]
"""Parts of a continuation; the last one says whether it is `finished`."""
Events = AsyncGenerator[dict[str, Any], None]


def completion_answer(model: str, echoes: Sequence[str], results: Sequence[Result]) -> dict[str, Any]:
    """Returns the continuations of prompts.

    Args:
        model: Name of the model.
        echoes: Text before the continuations of each prompt.
        results: Result for each prompt.
    """
    continuations = [
        (echo + alternative["text"], alternative["finished"])
        for echo, result in zip(echoes, results, strict=True)
        for alternative in result["alternatives"]
    ]
    choices = [_completion_choice(text, index, finished) for index, (text, finished) in enumerate(continuations)]
    return {**_shared_fields("cmpl", "text_completion", model), "choices": choices, "usage": _usage_of(results)}


def chat_answer(model: str, results: Sequence[Result]) -> dict[str, Any]:
    """Returns the answers to one chat."""
    choices = [
        {
            "index": index,
            "message": {"role": "assistant", "content": alternative["text"].lstrip(), "refusal": None},
            "logprobs": None,
            "finish_reason": _finish_reason(alternative["finished"]),
        }
        for index, alternative in enumerate(results[0]["alternatives"])
    ]
    return {**_shared_fields("chatcmpl", "chat.completion", model), "choices": choices, "usage": _usage_of(results)}


def embedding_answer(body: EmbeddingRequest, results: Sequence[Result]) -> dict[str, Any]:
    """Returns the vectors of texts, encoded as the request asks."""
    encode = encode_base64 if body.encoding_format == "base64" else list
    data = [
        {"object": "embedding", "index": index, "embedding": encode(result["vector"])}
        for index, result in enumerate(results)
    ]
    n_tokens = sum(result["tokens"] for result in results)
    usage = {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
    return {"object": "list", "data": data, "model": body.model, "usage": usage}


def encode_base64(vector: Sequence[float]) -> str:
    """Returns a vector as base64 of its numbers as little-endian float32."""
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode("ascii")


async def stream_completion(body: CompletionRequest, parts: Parts, echo: str) -> EventStream:
    """Returns the stream of a continuation, after the text `echo`; see `_begin`."""
    events = _completion_events(await _begin(parts), _shared_fields("cmpl", "text_completion", body.model), echo)
    return EventStream(_with_usage(events, has_usage=body.wants_usage))


async def stream_chat(body: ChatRequest, parts: Parts) -> EventStream:
    """Returns the stream of an answer to a chat; see `_begin`."""
    events = _chat_events(await _begin(parts), _shared_fields("chatcmpl", "chat.completion.chunk", body.model))
    return EventStream(_with_usage(events, has_usage=body.wants_usage))


async def _begin(parts: Parts) -> Parts:
    """Returns the same parts once the first one is there; an error before it has an HTTP status."""
    try:
        first = await anext(parts)
    except BaseException:
        await parts.aclose()
        raise
    return _prepend(first, parts)


async def _prepend(first: Mapping[str, Any], parts: Parts) -> Parts:
    async with aclosing(parts):
        yield first
        async for part in parts:
            yield part


async def _with_usage(events: Events, *, has_usage: bool) -> Events:
    """Yields the events of a stream, with usage if it was asked for, and an error as the last event if it fails.

    With usage, each event has the field, which is null except in an additional last event without choices.
    """
    async with aclosing(events):
        try:
            async for event in events:
                usage = event.pop("usage", None)
                yield {**event, "usage": None} if has_usage else event
                if has_usage and usage is not None:
                    yield {**event, "choices": [], "usage": usage}
        except ServiceError as error:
            yield openai_error(error)


async def _completion_events(parts: Parts, shared: Mapping[str, Any], echo: str) -> Events:
    async with aclosing(parts):
        if echo:
            yield {**shared, "choices": [_completion_choice(echo)]}
        async for part in parts:
            if "finished" not in part:
                yield {**shared, "choices": [_completion_choice(part["text"])]}
                continue
            yield {**shared, "choices": [_completion_choice("", 0, part["finished"])], "usage": _usage_of_part(part)}


async def _chat_events(parts: Parts, shared: Mapping[str, Any]) -> Events:
    async with aclosing(parts):
        yield {**shared, "choices": [_chunk({"role": "assistant", "content": "", "refusal": None})]}
        has_begun = False
        async for part in parts:
            if "finished" in part:
                yield {**shared, "choices": [_chunk({}, part["finished"])], "usage": _usage_of_part(part)}
                continue
            text = part["text"] if has_begun else part["text"].lstrip()
            has_begun = has_begun or bool(text)
            if text:
                yield {**shared, "choices": [_chunk({"content": text})]}


def _chunk(delta: Mapping[str, Any], finished: bool | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": _finish_reason(finished)}


def _completion_choice(text: str, index: int = 0, finished: bool | None = None) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": None, "finish_reason": _finish_reason(finished)}


def _finish_reason(finished: bool | None) -> str | None:
    """Returns why a continuation ended; None if it has not."""
    return None if finished is None else "stop" if finished else "length"


def _shared_fields(prefix: str, kind: str, model: str) -> dict[str, Any]:
    """Returns the fields that all events of a response share."""
    return {"id": f"{prefix}-{uuid.uuid4().hex}", "object": kind, "created": int(time.time()), "model": model}


def _usage_of_part(part: Mapping[str, Any]) -> dict[str, int]:
    return _usage(part["prompt_tokens"], part["tokens"])


def _usage_of(results: Sequence[Result]) -> dict[str, int]:
    n_read = sum(result["prompt_tokens"] for result in results)
    return _usage(n_read, sum(alternative["tokens"] for result in results for alternative in result["alternatives"]))


def _usage(n_read: int, n_written: int) -> dict[str, int]:
    return {"prompt_tokens": n_read, "completion_tokens": n_written, "total_tokens": n_read + n_written}
