"""Routes of our own for encoders and for scores: `/v1/classify`, `/v1/fill` and `/v1/score`."""

from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from transformer.serving.errors import ServiceError
from transformer.serving.interfaces import Item, ModelInfo, Task
from transformer.serving.operations import Call, Operation
from transformer.serving.routes.models import check_texts, make_job, model_for, openai_error, run
from transformer.text.languages import matching_tag

MAX_TOP: Final = 1000
Texts = str | Annotated[list[str], Field(min_length=1)]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid")

    model: str


class FillRequest(_Request):
    """Request of `/v1/fill`."""

    input: Texts
    top: Annotated[int, Field(ge=1, le=MAX_TOP)] = 5


class ClassifyRequest(FillRequest):
    """Request of `/v1/classify`."""

    truncate: bool = False


class ScoreRequest(_Request):
    """Request of `/v1/score`: sources, as many translations, and their language for a model of several languages."""

    source: Texts
    target: Texts
    target_language: str | None = None


class LabelProbability(BaseModel):
    """Label of a text."""

    label: str
    probability: float


class LabelledText(BaseModel):
    """Labels of a text, the most probable one first."""

    labels: list[LabelProbability]
    tokens: int


class LabelledTexts(BaseModel):
    """Response of `/v1/classify`, in the order of the texts."""

    model: str
    data: list[LabelledText]


class MaskGuess(BaseModel):
    """Guess for a mask: its token, the text with it, and its probability."""

    token: str
    text: str
    probability: float


class FilledText(BaseModel):
    """Guesses for each mask of a text, the most probable one first."""

    masks: list[list[MaskGuess]]
    tokens: int


class FilledTexts(BaseModel):
    """Response of `/v1/fill`, in the order of the texts."""

    model: str
    data: list[FilledText]


class PairScore(BaseModel):
    """Log-probability of a translation in nats, the mean of its tokens, and their number."""

    score: float
    per_token: float
    tokens: int


class PairScores(BaseModel):
    """Response of `/v1/score`, in the order of the pairs."""

    model: str
    data: list[PairScore]


async def classify(call: Call) -> dict[str, Any]:
    """Returns the labels of texts."""
    model = model_for(call, call.body.model, "classify")
    if not model.has_labels:
        raise ServiceError("invalid_request", f"model {model.name} has no labels", param="model")
    return await _encode(call, "classify", truncate=call.body.truncate or None)


async def fill(call: Call) -> dict[str, Any]:
    """Returns guesses for the masks of texts."""
    model_for(call, call.body.model, "fill")
    return await _encode(call, "fill")


async def score(call: Call) -> dict[str, Any]:
    """Returns the scores of given translations."""
    body: ScoreRequest = call.body
    language = _written_language(model_for(call, body.model, "score"), body.target_language)
    sources, targets = _as_list(body.source), _as_list(body.target)
    if len(sources) != len(targets):
        message = f"{len(sources)} sources, but {len(targets)} translations; send as many of both"
        raise ServiceError("invalid_request", message, param="target")
    check_texts(call, sources, "source")
    check_texts(call, targets, "target")
    items = [Item(source, second=target) for source, target in zip(sources, targets, strict=True)]
    job = make_job(call, body.model, "score", items, target_language=language)
    return {"model": body.model, "data": await run(call, job)}


def _written_language(model: ModelInfo, language: str | None) -> str | None:
    """Returns the tag of a target language of a model of several languages; None for other models.

    Raises:
        ServiceError: The model does not translate to the language, or to several, of which none is chosen.
    """
    targets = dict.fromkeys(target for _, target in model.directions)
    known = list(targets) or [tag for tag in (model.target_language,) if tag]
    tag = matching_tag(language, known) if language else None
    if language and known and tag is None:
        message = f"model {model.name} does not translate to {language[:35]!r}; choose {', '.join(known)}"
        raise ServiceError("invalid_request", message, param="target_language")
    if not language and len(targets) > 1:
        message = f"model {model.name} translates to several languages; choose {', '.join(known)}"
        raise ServiceError("invalid_request", message, param="target_language")
    return tag if targets else None


async def _encode(call: Call, task: Task, **options: Any) -> dict[str, Any]:
    body: FillRequest = call.body
    texts = _as_list(body.input)
    check_texts(call, texts, "input")
    job = make_job(call, body.model, task, [Item(text) for text in texts], top=body.top, **options)
    return {"model": body.model, "data": await run(call, job)}


def _as_list(texts: str | list[str]) -> list[str]:
    return [texts] if isinstance(texts, str) else texts


OPERATIONS: Final = (
    Operation(
        "POST", "/v1/classify", "Labels texts", classify, openai_error,
        request=ClassifyRequest, response=LabelledTexts, errors=(404,),
        description="A text that is longer than the model reads is refused, or cut with `truncate`.",
    ),
    Operation(
        "POST", "/v1/fill", "Guesses masked words", fill, openai_error,
        request=FillRequest, response=FilledTexts, errors=(404,),
        description="Each `[MASK]` in a text stands for a word.",
    ),
    Operation(
        "POST", "/v1/score", "Scores given translations", score, openai_error,
        request=ScoreRequest, response=PairScores, errors=(404,),
        description="A model of several languages needs `target_language`, the language of the translations.",
    ),
)  # fmt: skip
