"""Options of a translator."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import UnionType
from typing import Any, Final, Literal, TypedDict, get_args

from transformer.config import MAX_PROCESSORS
from transformer.data.source_text import SourceText
from transformer.decoding import GREEDY, Search
from transformer.errors import ConfigError
from transformer.pipelines.translation.terminology import Terminology
from transformer.tokenizers.base import Tokenizer
from transformer.transformer import Transformer

BATCH_TOKENS: Final = 4096
"""Fastest power of two for models from `tiny` to `base`, see `benchmarks/decoding/throughput.py`."""
GPU_BATCH_TOKENS: Final = 8192
"""Batch size in tokens per hypothesis on a GPU, see `benchmarks/decoding/throughput_gpu.py`."""

Split = Literal["auto", "sentence", "none"]
"""When a line of several sentences is split, see `TranslatorConfig.split`."""

TYPES: Final[dict[str, type | UnionType]] = {
    "search": Search, "terminology": Terminology, "task": str, "max_source_tokens": int, "max_target_tokens": int,
    "batch_tokens": int, "workers": int, "deterministic": bool, "description": str,
    "split": str, "copy": bool, "length_ratio": float,
    "source_text": SourceText | None, "source_language": str, "target_language": str,
}  # fmt: skip
"""Type of each option."""


@dataclass(frozen=True)
class TranslatorConfig:
    """Options of a translator, apart from its models.

    Attributes:
        search: Search options.
        terminology: Phrases that translations must contain and must not contain.
        task: Prefix of each line, and of each segment of a split line, for text-to-text models, e.g. "summarize: ".
        max_source_tokens: Maximum number of source tokens, EOS included; longer lines are split. The longest source
            seen in training is a sensible choice, since positions beyond it were never learned. 0 is the number of
            positions.
        max_target_tokens: Maximum number of target tokens, EOS included; 0 is the number of positions.
        batch_tokens: Maximum of longest source x hypotheses in a batch. 0 is `GPU_BATCH_TOKENS` per hypothesis on a
            GPU; on a CPU, it is `BATCH_TOKENS` for greedy search and twice as much for a beam.
        workers: Maximum number of processes that search in parallel; 1 leaves all torch threads to a single search.
        deterministic: Whether each line is translated alone and on one thread. Translations and scores are then
            bitwise independent of the other lines; otherwise scores may differ in the last digits.
        split: When a line of several sentences is split into pieces that are translated separately: "auto" where it has
            more sentences than lines of the training text, or where its translation lacks some; "sentence" always;
            "none" only where it is too long.
        copy: Whether lines without a letter, and lines that are one address, are their own translations. Lines without
            letters are translated if the training text has such lines, or with a task.
        length_ratio: Mean number of target tokens per source token in the training text.
        source_text: Statistics of the training sources; None if they are not known.
        source_language: Language of the lines (BCP 47), whose abbreviations end no sentence; "" if not known.
        target_language: Language of the translations (BCP 47); "" if not known.
        description: Device, precision and number of processes, for users.

    Raises:
        ConfigError: A value, or a combination of values, is invalid.
    """

    search: Search = GREEDY
    terminology: Terminology = field(default_factory=Terminology)
    task: str = ""
    max_source_tokens: int = 0
    max_target_tokens: int = 0
    batch_tokens: int = 0
    workers: int = 1
    deterministic: bool = False
    split: Split = "auto"
    copy: bool = True
    length_ratio: float = 1.0
    source_text: SourceText | None = None
    source_language: str = ""
    target_language: str = ""
    description: str = ""

    def __post_init__(self) -> None:
        """Validates the options."""
        for name, kind in TYPES.items():
            value = getattr(self, name)
            if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
                wanted = getattr(kind, "__name__", str(kind))
                raise ConfigError(f"{name}={value!r:.40} has the type {type(value).__name__}; give {wanted}")
        if self.split not in get_args(Split):
            raise ConfigError(f"split={self.split!r} is unknown; choose one of {', '.join(get_args(Split))}")
        for name in ("max_source_tokens", "max_target_tokens", "batch_tokens"):
            if (value := getattr(self, name)) < 0:
                raise ConfigError(f"{name}={value} is below 0; give a positive number, or 0 for the default")
        if not 1 <= self.workers <= MAX_PROCESSORS:
            bound = "below 1" if self.workers < 1 else f"above {MAX_PROCESSORS}"
            raise ConfigError(f"workers={self.workers} is {bound}; choose 1, or more to translate in several processes")
        if 0 < self.max_target_tokens <= self.search.min_tokens:
            raise ConfigError(f"min_tokens={self.search.min_tokens} exceeds {self.max_target_tokens - 1}; choose fewer")
        if self.terminology.requires_phrases and (self.search.groups > 1 or self.search.sampling):
            raise ConfigError("glossary and protected spans need a beam; leave out groups and sampling")
        if self.task and "tags" in self.terminology.protected:
            raise ConfigError("tags are restored by their positions in the line, which a task shifts; leave one out")

    def completed(self, models: Sequence[Transformer], target: Tokenizer, *, on_gpu: bool) -> "TranslatorConfig":
        """Returns the options with the defaults and limits that depend on the models and on their target tokenizer."""
        source_positions = min(model.src_pos.seq_len for model in models)
        target_positions = min(model.tgt_pos.seq_len for model in models)
        return replace(
            self,
            terminology=replace(self.terminology, normalize=target.normalize),
            max_source_tokens=min(self.max_source_tokens or source_positions, source_positions),
            max_target_tokens=min(self.max_target_tokens or target_positions, target_positions),
            batch_tokens=self.batch_tokens or default_batch_tokens(self.search.beam, on_gpu=on_gpu),
        )


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
    copy: bool
    length_ratio: float
    source_text: SourceText | None
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
