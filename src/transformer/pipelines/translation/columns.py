"""Columns of tables: values that may be no text, and texts that may have several lines."""

from collections.abc import Iterable, Sequence
from math import isnan
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformer.pipelines.translation.results import Translation
    from transformer.pipelines.translation.translator import Translator

MISSING = ("NAType", "NaTType")
"""Types of the values that stand for a missing one in pandas."""


def arrow_values(column: Iterable[Any]) -> list[object]:
    """Returns the values of an Arrow column, with bytes for a text that is not UTF-8."""
    return [_arrow_value(value) for value in column]


def _arrow_value(value: Any) -> object:
    try:
        return value.as_py()
    except UnicodeDecodeError as error:
        return error.object


def read_text(value: object, limit: int) -> tuple[str | None, str]:
    """Returns the text that a value holds, and why it holds none, to follow "the text".

    Args:
        value: Value of a column.
        limit: Number of characters of a text that are read.
    """
    if isinstance(value, str):
        text = str(value[:limit])
        return (text, "") if text.isascii() or _is_utf8(text) else (None, "is not UTF-8")
    if value is None or type(value).__name__ in MISSING or (isinstance(value, float) and isnan(value)):
        return None, "is missing"
    return None, "is not UTF-8" if isinstance(value, bytes) else f"is a value of type {type(value).__name__}"


def _is_utf8(text: str) -> bool:
    """Whether a text has no half of a character (a surrogate without its partner)."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def translate_texts(
    translator: "Translator", texts: Sequence[str | None], n_before: int = 0
) -> list[tuple[str | None, float | None]]:
    """Returns translation and confidence of each text, which are translated line by line; None without a text.

    Args:
        translator: The translator.
        texts: The texts.
        n_before: Number of texts before these, for random streams.
    """
    lines = [[] if text is None else text.split("\n") for text in texts]
    flat = [line for part in lines for line in part]
    translated = iter(translator.finish(translator.begin(flat, None, n_before)))
    return [join_lines([next(translated) for _ in part]) if part else (None, None) for part in lines]


def join_lines(translations: "Sequence[Translation]") -> tuple[str, float | None]:
    """Returns the text of several lines, and the least of their confidences."""
    known = [line.confidence for line in translations if line.confidence is not None]
    return "\n".join(line.text for line in translations), min(known, default=None)
