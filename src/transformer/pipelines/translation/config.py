"""Options of a translator."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Final, Literal, TypedDict, get_origin

from transformer.config import Processors
from transformer.data.source_text import SourceText
from transformer.errors import ConfigError
from transformer.options.fields import Doc, Remedy, facts_of
from transformer.options.search import GREEDY, Search, SearchOptions
from transformer.options.translation import Case, Split, TranslationOptions
from transformer.pipelines.translation.confidence import Calibration
from transformer.pipelines.translation.terminology import Terminology
from transformer.tokenizers.base import Tokenizer
from transformer.transformer import Transformer

BATCH_TOKENS: Final = 4096
"""Fastest power of two for models from `tiny` to `base`, see `benchmarks/decoding/throughput.py`."""
GPU_BATCH_TOKENS: Final = 8192
"""Batch size in tokens per hypothesis on a GPU, see `benchmarks/decoding/throughput_gpu.py`."""


@dataclass(frozen=True, kw_only=True)
class TranslatorConfig(TranslationOptions):
    """Options of a translator, apart from its models.

    The longest source seen in training is a sensible `max_source_tokens`, since positions beyond it were never learned.
    A `batch_tokens` of 0 is `GPU_BATCH_TOKENS` per hypothesis on a GPU; on a CPU, it is `BATCH_TOKENS` for greedy
    search and twice as much for a beam. With `deterministic`, translations and scores are bitwise independent of the
    other lines; otherwise scores may differ in the last digits. Lines without letters are translated, in spite of
    `copy`, if the training text has such lines, or with a task.

    Attributes:
        search: Search options.
        terminology: Phrases that translations must contain and must not contain.
        source_text: Statistics of the training sources; None if they are not known.
        calibration: Models of the confidence in translations; none if the model was not calibrated.
        directions: Source and target languages that a model of several languages learned; none for other models.
        trained_target: Language that a model of one direction writes; empty if it is not recorded.

    Raises:
        ConfigError: A value, or a combination of values, is invalid.
    """

    search: Search = GREEDY
    terminology: Terminology = field(default_factory=Terminology)
    workers: Annotated[
        Processors,
        Remedy("choose 1, or more to translate in several processes"),
        Doc("maximum number of processes that search in parallel; 1 leaves all torch threads to a single search"),
    ] = 1
    length_ratio: Annotated[float, Doc("mean number of target tokens per source token in the training text")] = 1.0
    source_text: SourceText | None = None
    calibration: Calibration = field(default_factory=Calibration)
    directions: tuple[tuple[str, str], ...] = ()
    trained_target: str = ""
    source_language: Annotated[str, Doc("language of the lines, whose abbreviations end no sentence")] = ""
    target_language: Annotated[str, Doc("language of the translations; a model of several needs it")] = ""
    description: Annotated[str, Doc("device, precision and number of processes, for users")] = ""

    def __post_init__(self) -> None:
        """Validates the options."""
        for name, facts in facts_of(type(self)).items():
            value = getattr(self, name)
            origin = get_origin(facts.kind)
            kind = str if origin is Literal else origin or facts.kind
            is_wrong = not isinstance(value, kind) or (kind is int and isinstance(value, bool))
            if is_wrong and (value is not None or facts.default is not None):
                raise ConfigError(f"{name}={value!r:.40} has the type {type(value).__name__}; give {kind.__name__}")
        super().__post_init__()
        if 0 < self.max_target_tokens <= self.search.min_tokens:
            raise ConfigError(f"min_tokens={self.search.min_tokens} exceeds {self.max_target_tokens - 1}; choose fewer")
        if self.task and (self.terminology.glossary or "tags" in (self.terminology.protected or ())):
            raise ConfigError("tags and terms are placed by positions in the line, which a task shifts; leave one out")

    @property
    def source_languages(self) -> tuple[str, ...]:
        """The source language or, if none is chosen, those of a model of several; empty if they are not known."""
        if self.source_language:
            return (self.source_language,)
        return tuple(dict.fromkeys(source for source, _ in self.directions))

    def completed(self, models: Sequence[Transformer], target: Tokenizer, *, on_gpu: bool) -> "TranslatorConfig":
        """Returns the options with the defaults and limits that depend on the models and on their target tokenizer."""
        source_positions = min(model.src_pos.seq_len for model in models)
        target_positions = min(model.tgt_pos.seq_len for model in models)
        protected = self.terminology.protected
        if protected is None and (self.task or target.reads_special_tokens):  # which are not kept, or look like tags
            protected = ()
        return replace(
            self,
            terminology=replace(self.terminology, normalize=target.normalize, protected=protected),
            max_source_tokens=min(self.max_source_tokens or source_positions, source_positions),
            max_target_tokens=min(self.max_target_tokens or target_positions, target_positions),
            batch_tokens=self.batch_tokens or default_batch_tokens(self.search.beam, on_gpu=on_gpu),
        )


class Languages(TypedDict, total=False):
    """The languages of a call as keyword arguments; None stands for the translator's."""

    source_language: str | None
    target_language: str | None


LANGUAGES: Final = tuple(Languages.__annotations__)


class CallOptions(SearchOptions, Languages, total=False):
    """The options of a call of a translator, for editors and type checkers."""


def changed_search(search: Search, changes: dict[str, Any], n_best: int | None) -> Search | None:
    """Returns a search with other fields; None if none is given.

    Args:
        search: The search.
        changes: Fields that are changed.
        n_best: Number of translations per line; the beam is as wide, unless the changes say otherwise.

    Raises:
        ConfigError: A field is unknown or invalid.
    """
    if n_best is not None:
        changes = {"beam": max(search.beam, n_best), **changes, "n_best": n_best}
    if not changes:
        return None
    known = [field.name for field in fields(Search)]
    for name in changes:
        if name not in known:
            raise ConfigError(f"{name} is not an option of the search; choose one of {', '.join(known)}")
    return replace(search, **changes)


class TranslatorOptions(TypedDict, total=False):
    """The fields of `TranslatorConfig` as keyword arguments of `load`, for editors and type checkers.

    None stands for the default.
    """

    terminology: Terminology | None
    task: str
    max_source_tokens: int
    max_target_tokens: int
    batch_tokens: int
    deterministic: bool
    split: Split | None
    case: Case | None
    copy: bool
    length_ratio: float
    source_text: SourceText | None
    calibration: Calibration
    directions: tuple[tuple[str, str], ...]
    trained_target: str
    source_language: str | None
    target_language: str | None
    description: str


def default_batch_tokens(beam: int, *, on_gpu: bool) -> int:
    """Returns the batch size for a beam, in longest source x hypotheses."""
    return GPU_BATCH_TOKENS * beam if on_gpu else BATCH_TOKENS * min(beam, 2)


def renamed_lexicon(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns options without those that are None, and with `terminology` for `lexicon`, its deprecated name.

    Raises:
        ConfigError: Both names are used.
    """
    renamed = {name: value for name, value in options.items() if value is not None}
    if "lexicon" not in renamed:
        return renamed
    if "terminology" in renamed:
        raise ConfigError("lexicon is the old name of terminology; give terminology alone")
    warnings.warn("lexicon is deprecated; use terminology instead", DeprecationWarning, stacklevel=3)
    renamed["terminology"] = renamed.pop("lexicon")
    return renamed
