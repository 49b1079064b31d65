"""Sentence splitting (sentence segmentation) of text in any script."""

import re
from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import Final

import regex
from sentencex.sentencex import segment

from transformer.text.languages import base_language
from transformer.text.normalization import remove_invisible
from transformer.text.one_letter_words import LOWER, ONE_LETTER, one_letter_word_ends, starts_sentence
from transformer.text.plain_copy import MARKS, PlainCopy
from transformer.text.reported_speech import has_reporting_clause

BLOCK: Final = 4096
"""Maximum number of characters that are segmented at once."""

_UNSPACED_END: Final = regex.compile(
    r"(?<!\p{Sentence_Break=STerm})[^\P{Sentence_Break=STerm}!?]++(?=\S)"
    r"|(?<=\p{L}{4})[…⋯]++(?=[\p{Han}\p{Hiragana}\p{Katakana}])"
)
"""Sentence ends after which no space is needed; sentencex does not know all of them.

An ellipsis is one after a few letters: after fewer, it is a hesitation.
"""
_COMMON_WORD: Final = regex.compile(r"\b(?:me|[Nn]o|ill|art|miss|may|OK|ID|mich|mag|Bart)\.\s+(?=\p{Lu})")
"""Ends after words that sentencex takes for abbreviations: they end 2 in 100 English sentences of Tatoeba."""
_ORDINAL: Final = regex.compile(r"(?<![\w.,])\d{1,3}\. (?=(?<next>[\p{L}'’]*))")
_ORDINAL_LANGUAGES: Final = frozenset(
    ["bs", "cs", "da", "de", "et", "fi", "hr", "hu", "is", "lb", "lv", "nn", "no", "pl", "sk", "sl", "sr", "tr"]
)
"""Languages that write ordinal numbers with a period: `am 3. Oktober`."""
_NOUNS_WITH_CAPITALS: Final = frozenset({"de", "lb"})
_CONTINUED: Final = regex.compile(rf"[\p{{Pd}},;:]|{LOWER}")
"""Start of a text that continues a sentence after a quote, a bracket or an ellipsis."""
_CONTINUED_DASH: Final = regex.compile(rf"\p{{Pd}}+ ?{LOWER}")
_WORD: Final = regex.compile(r"[\p{L}'’]+")
_FALLBACK: Final = regex.compile(r"[.!?\p{Sentence_Break=STerm}]++\s+(?=[^\p{Ll}])")
"""Ends in a text that sentencex cannot read."""
_LETTER: Final = regex.compile(r"\p{L}")
_MARK: Final = regex.compile(rf"{MARKS}|[;\n\r\x85\u2028\u2029]")
"""Character that may end a sentence."""
_ASCII_MARK: Final = re.compile(r"[.!?;\n\r]")
"""Those of ASCII."""
CLUSTER: Final = regex.compile(r"\X")
"""Pattern of a grapheme cluster: what a reader sees as one character."""

Span = tuple[int, int]
"""Start and exclusive end, in characters."""


def sentence_spans(text: str, language: str = "") -> list[Span]:
    """Splits a text into sentences; the spans exclude the white space between them.

    The boundaries are those of the library sentencex, which knows the abbreviations of many languages, and those after
    the full stops of scripts without spaces, also within quotes and brackets. No sentence ends within a number or an
    address, after an initial, before a clause that reports a quote, or next to text without letters, such as the number
    of a list item. Invisible characters and the kind of white space make no difference.

    Args:
        text: Text of one line.
        language: Language of the text (BCP 47); English rules if it is not known.
    """
    if not _might_have_several(text):
        return [span] if (span := _strip(text, 0, len(text))) else []
    code = base_language(language) or "en"
    copy = PlainCopy.of(text)
    spans: list[Span] = []
    start = 0
    for end in _boundaries(copy, code):
        bound = copy.original_end(end)
        spans += [span] if (span := _strip(text, start, bound)) else []
        start = bound
    spans += [span] if (span := _strip(text, start, len(text))) else []
    return _join_without_letters(text, spans)


def count_sentences(text: str, language: str = "") -> int:
    """Returns the number of sentences of a text, see `sentence_spans`."""
    return len(sentence_spans(text, language))


def has_letter(text: str) -> bool:
    """Whether a text has a letter of any script."""
    return text[:1].isalpha() or _LETTER.search(text) is not None


def _might_have_several(text: str) -> bool:
    """Whether the text has a character that may end a sentence before its last one; fast."""
    mark = (_ASCII_MARK if text.isascii() else _MARK).search(text)
    return mark is not None and mark.end() < len(text)


def _boundaries(copy: PlainCopy, code: str) -> list[int]:
    """Returns the positions in the copy after its sentence ends, in order, without the end of the text."""
    text = copy.text
    paragraphs = set(copy.paragraph_ends())
    ends = {end for end in _candidates(text, code) if _is_boundary(text, end)}
    for word in ONE_LETTER.finditer(text):
        is_end = one_letter_word_ends(text, word.start(), word.end(), code)
        if is_end is not None:
            (ends.add if is_end else ends.discard)(word.end())
    if code in _ORDINAL_LANGUAGES:
        ends -= {match.end() for match in _ORDINAL.finditer(text) if not starts_sentence(match["next"], code)}
    ends = {end for end in ends if not _continues(copy, end, code)}
    return sorted(end for end in ends | paragraphs if 0 < end < len(text))


def _candidates(text: str, code: str) -> Iterator[int]:
    """Yields the positions after possible sentence ends.

    A long text is read in blocks, since the time of sentencex can grow with the square of the length.
    """
    for pattern in (_UNSPACED_END, _COMMON_WORD):
        yield from (match.end() for match in pattern.finditer(text))
    start = 0
    while start < len(text):
        ends = list(accumulate(map(len, _segment(code, text[start : start + BLOCK]))))
        is_last = start + BLOCK >= len(text)
        yield from (start + end for end in ends[:-1])
        start += ends[-2] if len(ends) > 1 and not is_last else BLOCK


def _segment(code: str, block: str) -> list[str]:
    """Segments a text by sentencex, or by a simple pattern where that library, written in Rust, panics."""
    try:
        return segment(code, block)
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        bounds = [0, *(match.end() for match in _FALLBACK.finditer(block)), len(block)]
        return [block[start:end] for start, end in pairwise(bounds)]


def _is_boundary(text: str, end: int) -> bool:
    """Whether a sentence may end at a position: after white space, or after a full stop of a script without spaces."""
    if text[end - 1] == " " or text[end : end + 1] == " ":
        return True
    mark = text[end - 1]
    return not (mark in ".!?．" and (mark.isascii() or text[end : end + 1].isdigit()))


def _continues(copy: PlainCopy, end: int, code: str) -> bool:
    """Whether a sentence continues after a position: after a quote, a bracket or an ellipsis within it."""
    text = copy.text
    end += text[end : end + 1] == " "
    if _CONTINUED_DASH.match(text, end):
        return True
    hidden = copy.hidden_at(end)
    if not remove_invisible(hidden).strip() and copy.original[copy.positions[end] - len(hidden) - 1] not in "…⋯":
        return False
    if _CONTINUED.match(text, end) or has_reporting_clause(hidden, text, end):
        return True
    if code not in _NOUNS_WITH_CAPITALS or not copy.closes_bracket(end):
        return False
    word = _WORD.match(text, end)
    return not (word and starts_sentence(word[0], code)) and not copy.bracket_is_sentence(end)


def _join_without_letters(text: str, spans: list[Span]) -> list[Span]:
    """Joins each span without letters to the following one, the last ones to the one before."""
    joined: list[Span] = []
    start = None
    for first, last in spans:
        start = first if start is None else start
        if has_letter(text[first:last]):
            joined.append((start, last))
            start = None
    if start is not None:
        joined = [*joined[:-1], (joined[-1][0] if joined else start, spans[-1][1])]
    return joined


def _strip(text: str, start: int, end: int) -> Span | None:
    """Returns the span without the white space at its ends; None if nothing is left."""
    part = text[start:end]
    left = start + len(part) - len(part.lstrip())
    right = end - (len(part) - len(part.rstrip()))
    return (left, right) if left < right else None
