"""Options of a task, as a worker receives them."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, Final

from annotated_types import Ge, Le, MinLen
from pydantic import Strict, TypeAdapter, ValidationError

from transformer.errors import TransformerError
from transformer.options.fields import Positive
from transformer.options.search import Beam, Seed, TopK, TopP
from transformer.serving.errors import ServiceError
from transformer.serving.interfaces import Task

MAX_SEED: Final = 2**63 - 1

Number = Annotated[float, Ge(0), Strict()]
Count = Annotated[Positive, Strict()]
Flag = Annotated[bool, Strict()]


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """Options of a task; those of each are a subclass."""

    __pydantic_config__: ClassVar = {"extra": "forbid", "allow_inf_nan": False}

    def refusal(self, error: TransformerError) -> ServiceError:
        """Returns the error for the client whose options the package refuses, e.g. with `beam=0 is below 1; ...`."""
        name = str(error).partition("=")[0]
        is_known = name in {field.name for field in fields(self)}
        return ServiceError("invalid_request", str(error), param=name if is_known else None)


@dataclass(frozen=True, kw_only=True)
class ScoreTaskOptions(TaskOptions):
    """Options of "score": the language of the translations, for a model of several; None is that of the translator."""

    target_language: str | None = None


@dataclass(frozen=True, kw_only=True)
class SearchTaskOptions(TaskOptions):
    """Options of tasks that search; a temperature of 0 is greedy search, and without a seed, each call chooses one."""

    n_best: Count = 1
    temperature: Number = 0.0
    seed: Annotated[Seed, Ge(-MAX_SEED), Le(MAX_SEED), Strict()] | None = None


@dataclass(frozen=True, kw_only=True)
class TranslateTaskOptions(SearchTaskOptions):
    """Options of "translate".

    Attributes:
        beam: Beam size; None is that of the translator.
        length_penalty: Exponent of the paper's length penalty; None is that of the translator.
        glossary: Pairs of source and target term.
        protected: Kinds of spans to keep unchanged.
        banned: Phrases that must not occur.
        alignment: Whether word alignments are returned.
        source_language: Language of the texts, for a model of several languages; None is that of the translator.
        target_language: Language of the translations, likewise.
    """

    beam: Annotated[Beam, Strict()] | None = None
    length_penalty: Number | None = None
    glossary: tuple[tuple[str, str], ...] = ()
    protected: tuple[str, ...] = ()
    banned: tuple[str, ...] = ()
    alignment: Flag = False
    source_language: str | None = None
    target_language: str | None = None


@dataclass(frozen=True, kw_only=True)
class GenerateTaskOptions(SearchTaskOptions):
    """Options of "generate".

    Attributes:
        max_tokens: Maximum number of tokens; None is as many as the model has positions for.
        stop: Texts that end the continuation, which excludes them.
        special_tokens: Whether names of special tokens in the prompt are these tokens.
    """

    max_tokens: Count | None = None
    top_k: Annotated[TopK, Strict()] = 0
    top_p: Annotated[TopP, Strict()] = 1.0
    stop: tuple[Annotated[str, MinLen(1)], ...] = ()
    special_tokens: Flag = False


@dataclass(frozen=True, kw_only=True)
class EncodeTaskOptions(TaskOptions):
    """Options of tasks that read whole texts: whether texts that are too long are truncated instead of refused."""

    truncate: Flag = False


@dataclass(frozen=True, kw_only=True)
class EmbedTaskOptions(EncodeTaskOptions):
    """Options of "embed": whether vectors have length 1, and how many numbers they must have."""

    normalize: Flag = True
    dimensions: Count | None = None


@dataclass(frozen=True, kw_only=True)
class FillTaskOptions(TaskOptions):
    """Options of "fill": the number of guesses per mask."""

    top: Count = 5


@dataclass(frozen=True, kw_only=True)
class ClassifyTaskOptions(EncodeTaskOptions):
    """Options of "classify": the number of labels."""

    top: Count = 5


ADAPTERS: Final[Mapping[Task, TypeAdapter[Any]]] = {
    "translate": TypeAdapter(TranslateTaskOptions),
    "generate": TypeAdapter(GenerateTaskOptions),
    "embed": TypeAdapter(EmbedTaskOptions),
    "classify": TypeAdapter(ClassifyTaskOptions),
    "fill": TypeAdapter(FillTaskOptions),
    "score": TypeAdapter(ScoreTaskOptions),
}


def read_options(task: Task, values: Mapping[str, Any]) -> Any:
    """Returns the options of a task; None stands for an option that was left out.

    Raises:
        ServiceError: An option is unknown or wrong.
    """
    chosen = {name: _cleaned(value) for name, value in values.items() if value is not None}
    try:
        return ADAPTERS[task].validate_python(chosen)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
        name = str(problem["loc"][0])
        raise ServiceError("invalid_request", f"{name} of {task}: {problem['msg']}", param=name) from None


def _cleaned(value: Any) -> Any:
    """Returns a JSON-like value whose texts have no surrogates."""
    if isinstance(value, list | tuple):
        return [_cleaned(entry) for entry in value]
    return without_surrogates(value) if isinstance(value, str) else value


def without_surrogates(text: str) -> str:
    """Returns a text with U+FFFD for surrogates without a partner, which JSON allows and tokenizers do not."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
