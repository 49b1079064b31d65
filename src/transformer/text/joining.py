"""Joining of sentences as their script does."""

from collections.abc import Iterable
from typing import Final

import regex

_UNSPACED: Final = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Bopomofo}\u3000-\u303f\uff01-\uff9f"
_UNSPACED_END: Final = regex.compile(rf"[{_UNSPACED}](?:[^\p{{L}}\p{{N}}]|[\p{{L}}\p{{N}}]++(?![.!?]+\Z))*\Z")
_UNSPACED_START: Final = regex.compile(rf"[^\p{{L}}\p{{N}}]*[{_UNSPACED}]")
_EDGE: Final = 32
"""Number of characters at the end of a sentence that are looked at."""


def join_sentences(sentences: Iterable[str]) -> str:
    """Joins non-empty sentences by spaces, and Chinese and Japanese ones without."""
    parts: list[str] = []
    for sentence in filter(None, sentences):
        is_first = not parts
        is_unspaced = not is_first and _UNSPACED_END.search(parts[-1][-_EDGE:]) and _UNSPACED_START.match(sentence)
        parts += [sentence] if is_first or is_unspaced else [" ", sentence]
    return "".join(parts)
