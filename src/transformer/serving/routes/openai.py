"""Routes of OpenAI's interface: models, completions, chats and embeddings."""

import base64
import struct
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final

from starlette.responses import Response

from transformer.serving.chat import ROLES, ChatPrompt, Message, chat_prompt
from transformer.serving.errors import ServiceError
from transformer.serving.interfaces import TASKS, Item, Job, ModelInfo
from transformer.serving.operations import Call, Operation
from transformer.serving.routes.event_stream import EventStream
from transformer.serving.routes.models import check_texts, find_model, make_job, model_for, openai_error, run
from transformer.serving.routes.openai_types import (
    ChatCompletion,
    ChatMessage,
    ChatRequest,
    Completion,
    CompletionRequest,
    EmbeddingList,
    EmbeddingRequest,
    GenerationRequest,
    ModelCard,
    ModelList,
)
from transformer.serving.routes.translate_fields import TranslateFields, translate
from transformer.serving.translation import TranslateOptions

COMPLETION_TOKENS: Final = 16
"""Maximum number of tokens of a completion if a request names none, as OpenAI documents it."""
MAX_STOPS: Final = 16
MAX_STOP_CHARACTERS: Final = 1000
Answer = dict[str, Any] | Response
Parts = AsyncGenerator[Mapping[str, Any], None]
Events = AsyncGenerator[dict[str, Any], None]


async def list_models(call: Call) -> ModelList:
    """Returns all models."""
    return ModelList(data=[_model_card(info) for info in call.services.engine.models.values()])


async def show_model(call: Call) -> ModelCard:
    """Returns one model."""
    return _model_card(find_model(call, call.request.path_params["model"]))


async def complete(call: Call) -> Answer:
    """Continues prompts."""
    body: CompletionRequest = call.body
    body.refuse_unsupported()
    if body.best_of not in (None, body.n or 1):
        raise ServiceError("invalid_request", "best_of is not supported; leave it out", param="best_of")
    model_for(call, body.model, "generate")
    prompts = _texts(call, body.prompt, "prompt")
    job = _generation_job(call, prompts, body.max_tokens or COMPLETION_TOKENS)
    shared = _shared_fields("cmpl", "text_completion", body.model)
    if body.stream:
        parts, prompt = call.services.engine.stream(job), prompts[0] if body.echo else ""
        return await _stream(call, parts, lambda parts: _completion_events(parts, shared, prompt))
    results = await run(call, job)
    texts = [
        (f"{prompt if body.echo else ''}{alternative['text']}", alternative["finished"])
        for prompt, result in zip(prompts, results, strict=True)
        for alternative in result["alternatives"]
    ]
    choices = [_completion_choice(text, index, finished) for index, (text, finished) in enumerate(texts)]
    return {**shared, "choices": choices, "usage": _usage_of(results)}


async def chat(call: Call) -> Answer:
    """Answers a chat."""
    body: ChatRequest = call.body
    body.refuse_unsupported()
    info = find_model(call, body.model)
    messages = [_message(message) for message in body.messages]
    check_texts(call, [message.content for message in messages], "messages")
    if info.kind == "encoder-decoder":
        return await _translate(call, info, messages)
    model_for(call, body.model, "generate")
    prompt = chat_prompt(messages, info.chat)
    job = _generation_job(call, [prompt.text], body.max_completion_tokens or body.max_tokens, prompt)
    if body.stream:
        return await _stream_chat(call, call.services.engine.stream(job))
    return _chat_answer(body.model, await run(call, job))


async def _translate(call: Call, info: ModelInfo, messages: Sequence[Message]) -> Answer:
    """Answers a message with its translation.

    Raises:
        ServiceError: There are several messages, or an option has no meaning for a translation.
    """
    body: ChatRequest = call.body
    _check_number(call, n_prompts=1)
    if [message.role for message in messages] != ["user"]:
        rule = f"model {info.name} translates, and takes one message of the user alone"
        raise ServiceError("invalid_request", rule, param="messages")
    if body.stop:
        raise ServiceError("invalid_request", "stop is not supported by a translator; leave it out", param="stop")
    if body.stream:
        return await _stream_chat(call, _translation_parts(call, info, messages[0].content))
    return _chat_answer(body.model, [await _translation(call, info, messages[0].content)])


async def _translation(call: Call, info: ModelInfo, text: str) -> Mapping[str, Any]:
    """Returns the translation of a text in the form of a continuation.

    Raises:
        ServiceError: It has more tokens than the request allows, or fails.
    """
    body: ChatRequest = call.body
    if not info.source_language or not info.target_language:
        problem = "translates several pairs of languages" if info.directions else "has languages that are not known"
        message = f"model {info.name} {problem}; name them with POST /translate"
        raise ServiceError("invalid_request", message, param="model")
    fields = TranslateFields(model=info.name, alternatives=(body.n or 1) - 1)
    (translated,) = await translate(
        call, [text], info.source_language, info.target_language, fields, TranslateOptions()
    )
    max_tokens, n_tokens = body.max_completion_tokens or body.max_tokens, translated.target_tokens
    if max_tokens is not None and n_tokens > max_tokens:
        message = f"the translation has {n_tokens} tokens, more than max_tokens; a translation is not cut"
        raise ServiceError("invalid_request", message, param="max_tokens")
    texts = [translated.text, *translated.alternatives]
    alternatives = [{"text": one, "finished": True, "tokens": n_tokens} for one in texts]
    return {"alternatives": alternatives, "prompt_tokens": translated.source_tokens}


async def _translation_parts(call: Call, info: ModelInfo, text: str) -> Parts:
    """Yields a translation as the parts of a stream: all of it, and the numbers of tokens."""
    result = await _translation(call, info, text)
    (alternative,) = result["alternatives"]
    yield {"text": alternative["text"], "tokens": alternative["tokens"]}
    yield {**alternative, "text": "", "prompt_tokens": result["prompt_tokens"]}


def _chat_answer(model: str, results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    choices = [
        {
            "index": index,
            "message": {"role": "assistant", "content": alternative["text"].lstrip(), "refusal": None},
            "logprobs": None,
            "finish_reason": _finish_reason(alternative["finished"]),
        }
        for index, alternative in enumerate(results[0]["alternatives"])
    ]
    return {
        **_shared_fields("chatcmpl", "chat.completion", model),
        "choices": choices,
        "usage": _usage_of(results),
    }


async def embed(call: Call) -> dict[str, Any]:
    """Returns the vectors of texts."""
    body: EmbeddingRequest = call.body
    body.refuse_unsupported()
    model_for(call, body.model, "embed")
    texts = _texts(call, body.input, "input")
    job = make_job(
        call, body.model, "embed", [Item(text) for text in texts],
        dimensions=body.dimensions, truncate=body.truncate or None,
    )  # fmt: skip
    results = await run(call, job)
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


def _model_card(info: ModelInfo) -> ModelCard:
    tasks = [task for task in TASKS[info.kind] if task != "classify" or info.has_labels]
    return ModelCard(id=info.name, created=info.created, kind=info.kind, tasks=[*tasks], description=info.description)


def _texts(call: Call, value: str | Sequence[Any], param: str) -> list[str]:
    """Returns the texts of a field.

    Raises:
        ServiceError: They are token ids, or exceed a limit.
    """
    texts = [value] if isinstance(value, str) else list(value)
    if not all(isinstance(text, str) for text in texts):
        message = (
            f"{param} is a list of token ids, which differ between tokenizers; send texts "
            "(LangChain does with check_embedding_ctx_length=False)"
        )
        raise ServiceError("invalid_request", message, param=param)
    check_texts(call, texts, param)
    return texts


def _message(message: ChatMessage) -> Message:
    """Returns a message whose content is one text; parts are separated by line ends.

    Raises:
        ServiceError: The role is unknown, or a part is not a text.
    """
    role = "system" if message.role == "developer" else message.role
    if role not in ROLES:
        known = ", ".join(ROLES)
        raise ServiceError("invalid_request", f"messages have one of the roles {known}", param="messages")
    if isinstance(message.content, str):
        return Message(role, message.content)
    parts = message.content or []
    if not all(part.type == "text" and part.text is not None for part in parts):
        raise ServiceError("invalid_request", "messages can have parts of the type text alone", param="messages")
    return Message(role, "\n".join(part.text or "" for part in parts))


def _generation_job(call: Call, prompts: Sequence[str], max_tokens: int | None, chat: ChatPrompt | None = None) -> Job:
    """Returns the work for continuations.

    Raises:
        ServiceError: A limit is exceeded.
    """
    body: GenerationRequest = call.body
    limits = call.services.settings.limits
    _check_number(call, len(prompts))
    if max_tokens is not None and max_tokens > limits.tokens:
        raise ServiceError("invalid_request", f"max_tokens is above {limits.tokens}; choose less", param="max_tokens")
    n = body.n or 1
    return make_job(
        call, body.model, "generate", [Item(prompt) for prompt in prompts],
        max_tokens=limits.tokens if max_tokens is None else max_tokens,
        temperature=1.0 if body.temperature is None else body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        n_best=n if n > 1 else None,
        seed=body.seed,
        stop=[*_stop_sequences(body.stop), *(chat.stops if chat else ())] or None,
        special_tokens=True if chat and chat.special_tokens else None,
    )  # fmt: skip


def _check_number(call: Call, n_prompts: int) -> None:
    """Checks the number of answers that a request asks for.

    Raises:
        ServiceError: It exceeds a limit.
    """
    body: GenerationRequest = call.body
    limits = call.services.settings.limits
    n = body.n or 1
    if n > limits.alternatives:
        raise ServiceError("invalid_request", f"n is above {limits.alternatives}; ask for fewer", param="n")
    if n * n_prompts > limits.texts:
        raise ServiceError("too_large", f"more than {limits.texts} continuations; send fewer prompts", param="prompt")
    if body.stream and (n > 1 or n_prompts > 1):
        message = "a stream has one continuation of one prompt; leave stream out, or ask for one"
        raise ServiceError("invalid_request", message, param="n" if n > 1 else "prompt")


def _stop_sequences(stop: str | Sequence[str] | None) -> list[str]:
    """Returns the texts that end a continuation.

    Raises:
        ServiceError: They are too many or too long, or one is empty.
    """
    stops = [stop] if isinstance(stop, str) else list(stop or ())
    if len(stops) > MAX_STOPS or any(not 0 < len(text) <= MAX_STOP_CHARACTERS for text in stops):
        message = f"stop has up to {MAX_STOPS} texts of 1 to {MAX_STOP_CHARACTERS} characters"
        raise ServiceError("invalid_request", message, param="stop")
    return stops


async def _stream_chat(call: Call, parts: Parts) -> Response:
    shared = _shared_fields("chatcmpl", "chat.completion.chunk", call.body.model)
    return await _stream(call, parts, lambda parts: _chat_events(parts, shared))


async def _stream(call: Call, parts: Parts, make_events: Callable[[Parts], Events]) -> Response:
    """Returns the stream of a continuation, once its first part is there; an error before it has an HTTP status."""
    body: GenerationRequest = call.body
    has_usage = bool(body.stream_options and body.stream_options.include_usage)
    try:
        first = await anext(parts)
    except BaseException:
        await parts.aclose()
        raise
    return EventStream(_with_usage(make_events(_prepend(first, parts)), has_usage=has_usage))


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


async def _completion_events(parts: Parts, shared: Mapping[str, Any], prompt: str) -> Events:
    async with aclosing(parts):
        if prompt:
            yield {**shared, "choices": [_completion_choice(prompt)]}
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


def _usage_of(results: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    n_read = sum(result["prompt_tokens"] for result in results)
    return _usage(n_read, sum(alternative["tokens"] for result in results for alternative in result["alternatives"]))


def _usage(n_read: int, n_written: int) -> dict[str, int]:
    return {"prompt_tokens": n_read, "completion_tokens": n_written, "total_tokens": n_read + n_written}


OPERATIONS: Final = (
    Operation(
        "GET", "/v1/models", "Lists the models", list_models, openai_error, response=ModelList, interface="OpenAI"
    ),
    Operation(
        "GET", "/v1/models/{model:path}", "Describes a model", show_model, openai_error,
        response=ModelCard, interface="OpenAI", errors=(404,),
    ),
    Operation(
        "POST", "/v1/completions", "Continues prompts", complete, openai_error,
        request=CompletionRequest, response=Completion, interface="OpenAI", errors=(404,),
        description="With `stream`, the answer is a stream of server-sent events. `logprobs` is refused.",
    ),
    Operation(
        "POST", "/v1/chat/completions", "Answers a chat", chat, openai_error,
        request=ChatRequest, response=ChatCompletion, interface="OpenAI", errors=(404,),
        description="With `stream`, the answer is a stream of server-sent events. Messages are texts alone. "
        "A translator takes one message of the user, and answers its translation.",
    ),
    Operation(
        "POST", "/v1/embeddings", "Computes vectors of texts", embed, openai_error,
        request=EmbeddingRequest, response=EmbeddingList, interface="OpenAI", errors=(404,),
        description="Vectors have length 1, and as many numbers as the model makes: other `dimensions` are refused. "
        "A text that is longer than the model reads is refused, or cut with `truncate`.",
    ),
)  # fmt: skip
