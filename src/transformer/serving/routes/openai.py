"""Routes of OpenAI's interface: models, completions, chats and embeddings."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from starlette.responses import Response

from transformer.serving.chat import ROLES, ChatPrompt, Message, chat_prompt
from transformer.serving.errors import ServiceError
from transformer.serving.interfaces import TASKS, Item, Job, ModelInfo
from transformer.serving.operations import Call, Operation
from transformer.serving.routes.models import check_texts, find_model, make_job, model_for, openai_error, run
from transformer.serving.routes.openai_answers import (
    Parts,
    chat_answer,
    completion_answer,
    embedding_answer,
    stream_chat,
    stream_completion,
)
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
    if body.best_of not in (None, body.n_answers):
        raise ServiceError("invalid_request", "best_of is not supported; leave it out", param="best_of")
    model_for(call, body.model, "generate")
    prompts = _texts(call, body.prompt, "prompt")
    job = _generation_job(call, prompts, body.max_tokens or COMPLETION_TOKENS)
    echoes = prompts if body.echo else [""] * len(prompts)
    if body.stream:
        return await stream_completion(body, call.services.engine.stream(job), echoes[0])
    return completion_answer(body.model, echoes, await run(call, job))


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
    job = _generation_job(call, [prompt.text], body.token_limit, prompt)
    if body.stream:
        return await stream_chat(body, call.services.engine.stream(job))
    return chat_answer(body.model, await run(call, job))


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
        return await stream_chat(body, _translation_parts(call, info, messages[0].content))
    return chat_answer(body.model, [await _translation(call, info, messages[0].content)])


async def _translation(call: Call, info: ModelInfo, message: str) -> Mapping[str, Any]:
    """Returns the translation of a message in the form of a continuation.

    Raises:
        ServiceError: It has more tokens than the request allows, or fails.
    """
    body: ChatRequest = call.body
    if not info.source_language or not info.target_language:
        problem = "translates several pairs of languages" if info.directions else "has languages that are not known"
        rule = f"model {info.name} {problem}; name them with POST /translate"
        raise ServiceError("invalid_request", rule, param="model")
    fields = TranslateFields(model=info.name, alternatives=body.n_answers - 1)
    (translated,) = await translate(
        call, [message], info.source_language, info.target_language, fields, TranslateOptions()
    )
    n_tokens = translated.target_tokens
    if body.token_limit is not None and n_tokens > body.token_limit:
        rule = f"the translation has {n_tokens} tokens, more than max_tokens; a translation is not cut"
        raise ServiceError("invalid_request", rule, param="max_tokens")
    texts = [translated.text, *translated.alternatives]
    alternatives = [{"text": text, "finished": True, "tokens": n_tokens} for text in texts]
    return {"alternatives": alternatives, "prompt_tokens": translated.source_tokens}


async def _translation_parts(call: Call, info: ModelInfo, text: str) -> Parts:
    """Yields a translation as the parts of a stream: all of it, and the numbers of tokens."""
    result = await _translation(call, info, text)
    (alternative,) = result["alternatives"]
    yield {"text": alternative["text"], "tokens": alternative["tokens"]}
    yield {**alternative, "text": "", "prompt_tokens": result["prompt_tokens"]}


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
    return embedding_answer(body, await run(call, job))


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
    return make_job(
        call, body.model, "generate", [Item(prompt) for prompt in prompts],
        max_tokens=limits.tokens if max_tokens is None else max_tokens,
        temperature=1.0 if body.temperature is None else body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        n_best=body.n_answers if body.n_answers > 1 else None,
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
    n = body.n_answers
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
