"""How translations are written: as text, several a line, or as JSON."""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from transformer.pipelines.translation.translator import Translation

Format = Literal["text", "jsonl"]
Shown = Callable[[int, str, "Translation"], str]


def shown_as(output_format: Format, *, all_of_them: bool) -> Shown:
    """What a line's number, source and translation are written as."""
    if output_format == "jsonl":
        return as_json
    return as_list if all_of_them else as_text


def as_text(number: int, source: str, translation: "Translation") -> str:
    """The best translation."""
    return translation.text


def as_list(number: int, source: str, translation: "Translation") -> str:
    """All alternatives, one a line: `line ||| translation ||| what it was ranked by`."""
    return "\n".join(f"{number} ||| {each.text} ||| {each.value:.4f}" for each in translation.alternatives)


def as_json(number: int, source: str, translation: "Translation") -> str:
    """One object, on one line."""
    alternatives = [
        {"text": each.text, "score": each.score, "value": each.value, "pieces": each.pieces,
         "finish": "end" if each.finished else "limit"}
        for each in translation.alternatives
    ]  # fmt: skip
    found = {"line": number, "source": source, "translation": translation.text, "flags": translation.flags}
    return json.dumps({**found, "alternatives": alternatives}, ensure_ascii=False)
