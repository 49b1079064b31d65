"""Capitals and Title Case: a line is translated in ordinary case, and its translation gets the case back."""

from collections.abc import Callable, Collection
from functools import lru_cache
from typing import Final

import regex

from transformer.pipelines.translation.alignment import Links
from transformer.pipelines.translation.config import TranslatorConfig
from transformer.text.case import Truecased, Truecaser, restore_case
from transformer.text.sentences import Span
from transformer.text.spans import ADDRESS, PATTERNS
from transformer.tokenizers.base import Tokenizer

_KEPT: Final = "|".join([f"(?i:{ADDRESS.pattern})", *(PATTERNS[kind] for kind in ("tags", "entities", "placeholders"))])
_MAX_WORDS: Final = 1 << 14
"""Number of words whose tokens are remembered."""


def make_truecaser(tokenizer: Tokenizer, language: str) -> Truecaser:
    """Returns a truecaser that knows words by the vocabulary of a source tokenizer.

    The ids of tokens rank them, because vocabularies are ordered by frequency.
    """

    @lru_cache(_MAX_WORDS)
    def cost(word: str) -> tuple[int, int]:
        ids = tokenizer.encode(word)
        return len(ids), sum(ids)

    return Truecaser(cost, language)


def kept_spans(text: str, phrases: Collection[str]) -> list[Span]:
    """Returns the spans of a text whose case means something: addresses, placeholders, and given phrases."""
    pattern = "|".join([_KEPT, *(rf"(?<!\w){regex.escape(phrase)}(?!\w)" for phrase in phrases)])
    return [match.span() for match in regex.finditer(pattern, text)]


def restored_case(
    text: str, source: Truecased, config: TranslatorConfig, phrases: Collection[str], links: Callable[[], Links]
) -> str:
    """Returns a translation in the case of its source.

    Args:
        text: Translation of the source in ordinary case.
        source: The source.
        config: Options of the call.
        phrases: Phrases of the translation that keep their case.
        links: Function that links words of the source to those of the translation; for runs within a line.
    """
    pairs = [] if all(run.is_whole for run in source.runs) else links()
    for run in source.runs:
        linked = None if run.is_whole else {target for word, target in pairs if run.start <= word < run.end}
        kept = kept_spans(text, {*phrases, *source.kept})
        text = restore_case(text, run, config.target_language, kept, linked)
    return text
