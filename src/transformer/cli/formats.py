"""Output formats of translations: text, n-best lists, and JSON."""

import json
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal

from transformer.errors import ConfigError

if TYPE_CHECKING:
    from transformer.pipelines.translation.results import Translation

Format = Literal["text", "jsonl", "moses"]
Formatter = Callable[[int, str, "Translation"], str]


MARK = "[unsure] "
"""What precedes a translation whose confidence is too low."""


def formatter(
    output_format: str, *, all_alternatives: bool, min_confidence: float | None = None, seed: int | None = None
) -> Formatter:
    """Returns the function that formats a line's number, source and translation.

    Args:
        output_format: One of `Format`.
        all_alternatives: Whether all alternatives are written.
        min_confidence: Confidence below which the text is marked; None marks none.
        seed: Seed of the samples, which JSON records; None if there are none.

    Raises:
        ConfigError: Translations are to be marked in another format than plain text.
    """
    if min_confidence is not None:
        if output_format != "text" or all_alternatives:
            raise ConfigError("--min-confidence marks plain text; with --format jsonl, read the field confidence")
        return lambda number, source, translation: as_marked_text(translation, min_confidence)
    if output_format == "jsonl":
        return partial(as_json, seed=seed)
    if output_format == "moses":
        return as_moses_list
    return as_list if all_alternatives else as_text


def as_text(number: int, source: str, translation: "Translation") -> str:
    """Returns the best translation."""
    return translation.text


def as_marked_text(translation: "Translation", min_confidence: float) -> str:
    """Returns the best translation, marked if its confidence is known and too low."""
    is_unsure = translation.confidence is not None and translation.confidence < min_confidence
    return MARK * is_unsure + translation.text


def as_list(number: int, source: str, translation: "Translation") -> str:
    """Returns all alternatives, one per line: `line ||| translation ||| ranking score`."""
    return "\n".join(
        f"{number} ||| {alternative.text} ||| {alternative.value:.4f}" for alternative in translation.alternatives
    )


def as_moses_list(number: int, source: str, translation: "Translation") -> str:
    """Returns all alternatives in the format of Moses: `0 ||| translation ||| F0= log-probability ||| ranking score`.

    Lines count from 0. As in lists of other programs, `F0` stands for the only feature, the model.
    """
    return "\n".join(
        f"{number - 1} ||| {alternative.text} ||| F0= {alternative.score:.4f} ||| {alternative.value:.4f}"
        for alternative in translation.alternatives
    )


def as_json(number: int, source: str, translation: "Translation", *, seed: int | None = None) -> str:
    """Returns a JSON object on one line."""
    alternatives = [
        {"text": alternative.text, "score": alternative.score, "value": alternative.value, "pieces": alternative.pieces,
         "finish": "end" if alternative.finished else "limit"}
        for alternative in translation.alternatives
    ]  # fmt: skip
    fields = {"line": number, "source": source, "translation": translation.text, "flags": translation.flags,
              "confidence": translation.confidence}  # fmt: skip
    sampled = {} if seed is None else {"seed": seed}
    return json.dumps({**fields, **sampled, "alternatives": alternatives}, ensure_ascii=False)
