"""Capitals and Title Case: a line is translated in ordinary case, and its translation gets the case back."""

from collections.abc import Callable, Collection, Iterator
from functools import lru_cache
from typing import Final

import regex

from transformer.pipelines.translation.alignment import Links
from transformer.pipelines.translation.config import TranslatorConfig
from transformer.text.case import Truecased, Truecaser, restore_case
from transformer.text.sentences import Span
from transformer.text.spans import ADDRESS, PATTERNS, is_plain
from transformer.tokenizers.base import Tokenizer

_KEPT: Final = regex.compile(
    "|".join([f"(?i:{ADDRESS.pattern})", *(PATTERNS[kind] for kind in ("tags", "entities", "placeholders"))])
)
_IN_WORD: Final = regex.compile(r"\w")
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
    spans = [] if is_plain(text) else [match.span() for match in _KEPT.finditer(text)]
    return spans + [span for phrase in phrases for span in _occurrences(phrase, text)]


def _occurrences(phrase: str, text: str) -> Iterator[Span]:
    """Yields where a phrase occurs in a text as whole words."""
    start = text.find(phrase)
    while start >= 0:
        end = start + len(phrase)
        is_whole = not _IN_WORD.match(text[start - 1 : start]) and not _IN_WORD.match(text, end)
        if is_whole:
            yield start, end
        start = text.find(phrase, end if is_whole else start + 1)


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
