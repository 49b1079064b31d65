"""Requests and responses of OpenAI's interface. Fields without a meaning here are ignored or refused by name."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from transformer.options.fields import Positive
from transformer.options.search import Seed, TopK, TopP
from transformer.serving.errors import ServiceError

REFUSED: Final[Mapping[str, tuple[Any, ...]]] = {
    "audio": (None,),
    "frequency_penalty": (None, 0, 0.0),
    "function_call": (None, "none"),
    "functions": (None, []),
    "logit_bias": (None, {}),
    "logprobs": (None, False),
    "modalities": (None, ["text"]),
    "prediction": (None,),
    "presence_penalty": (None, 0, 0.0),
    "response_format": (None, {"type": "text"}),
    "suffix": (None, ""),
    "tool_choice": (None, "none"),
    "tools": (None, []),
    "top_logprobs": (None, 0),
    "web_search_options": (None,),
}
"""Fields that this server does not have, with the values that ask for nothing."""


class StreamOptions(BaseModel):
    """Options of a stream."""

    include_usage: bool = False


class _Request(BaseModel):
    model_config = ConfigDict(extra="allow")

    model: str
    user: str | None = None

    def refuse_unsupported(self) -> None:
        """Refuses fields that would change the answer, and that this server does not have.

        Raises:
            ServiceError: The request has such a field.
        """
        for name, value in (self.model_extra or {}).items():
            accepted = REFUSED.get(name, (value,))
            if not any(type(value) is type(nothing) and value == nothing for nothing in accepted):
                raise ServiceError("invalid_request", f"{name} is not supported; leave it out", param=name)


Texts = Annotated[list[str], Field(min_length=1)]
TokenIds = list[int] | list[list[int]]
Temperature = Annotated[float, Field(ge=0, le=2)]


class GenerationRequest(_Request):
    """Fields that completions and chats share; `top_k` is not OpenAI's."""

    n: Positive | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: Annotated[TopK, Field(lt=2**31)] | None = None
    seed: Annotated[Seed, Field(ge=-(2**63) + 1, lt=2**63)] | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    @property
    def n_answers(self) -> int:
        """Number of continuations of each prompt."""
        return self.n or 1

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with the numbers of tokens."""
        return bool(self.stream_options and self.stream_options.include_usage)


class CompletionRequest(GenerationRequest):
    """Request of `/v1/completions`."""

    prompt: str | Texts | TokenIds
    max_tokens: Positive | None = None
    echo: bool | None = None
    best_of: Positive | None = None


class ContentPart(BaseModel):
    """Part of a message."""

    type: str
    text: str | None = None


class ChatMessage(BaseModel):
    """Message of a chat."""

    role: str
    content: str | list[ContentPart] | None = None


class ChatRequest(GenerationRequest):
    """Request of `/v1/chat/completions`."""

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_tokens: Positive | None = None
    max_completion_tokens: Positive | None = None

    @property
    def token_limit(self) -> int | None:
        """Maximum number of tokens of the answer, by its new or its old name; None if the request has none."""
        return self.max_completion_tokens or self.max_tokens


class EmbeddingRequest(_Request):
    """Request of `/v1/embeddings`; `truncate` is not OpenAI's."""

    input: str | Texts | TokenIds
    dimensions: Positive | None = None
    truncate: bool | None = None
    encoding_format: Literal["float", "base64"] | None = None


class ModelCard(BaseModel):
    """Model of `/v1/models`; the fields after `owned_by` are not OpenAI's."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "transformer"
    kind: str
    tasks: list[str]
    description: str


class ModelList(BaseModel):
    """Response of `/v1/models`."""

    object: Literal["list"] = "list"
    data: list[ModelCard]


class Usage(BaseModel):
    """Numbers of tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


FinishReason = Literal["stop", "length"]


class CompletionChoice(BaseModel):
    """Continuation of a prompt."""

    index: int
    text: str
    logprobs: None = None
    finish_reason: FinishReason | None


class Completion(BaseModel):
    """Response of `/v1/completions`."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | None = None


class ChatAnswer(BaseModel):
    """Message of the model."""

    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None


class ChatChoice(BaseModel):
    """Answer to a chat."""

    index: int
    message: ChatAnswer
    logprobs: None = None
    finish_reason: FinishReason


class ChatCompletion(BaseModel):
    """Response of `/v1/chat/completions`."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage


class Embedding(BaseModel):
    """Vector of a text."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingUsage(BaseModel):
    """Numbers of tokens of texts."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(BaseModel):
    """Response of `/v1/embeddings`."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage
