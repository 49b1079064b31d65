"""Sentences of a text, in any script."""

from collections.abc import Iterator
from typing import Final

import regex
from sentencex.sentencex import segment

BLOCK: Final = 4096
"""Maximum number of characters that are segmented at once."""

_CLOSING: Final = r"[\p{Pe}\p{Pf}\p{Pi}\"']*+"
_UNSPACED_END: Final = regex.compile(
    rf"(?<!\p{{Sentence_Break=STerm}})[^\P{{Sentence_Break=STerm}}!?]++{_CLOSING}(?=\S)"
)
"""Sentence ends after which no space is needed; sentencex does not know all of them."""
_COMMON_WORD: Final = regex.compile(r"\b(?:me|no|ill|art|miss|may|OK|ID|mich|mag|Bart)\.\s+(?=\p{Lu})")
"""Ends after words that sentencex takes for abbreviations: they end 2 in 100 English sentences of Tatoeba."""
_ORDINAL: Final = regex.compile(r"(?<![\w.,])\d{1,3}\.\s*\Z")
_ORDINAL_LANGUAGES: Final = frozenset(
    ["bs", "cs", "da", "de", "et", "fi", "hr", "hu", "is", "lb", "lv", "nb", "nn", "no", "pl", "sk", "sl", "sr", "tr"]
)
"""Languages that write ordinal numbers with a period: `am 3. Oktober`."""
_INITIAL: Final = regex.compile(r"(?:^|[\s\p{Ps}])(?!I\.)\p{L}\.\s*\Z")
"""A single letter with a period: an initial, or an abbreviation as in `z. B.`."""
_LETTER: Final = regex.compile(r"\p{L}")
_MARK: Final = regex.compile(r"[\p{Sentence_Break=STerm}\p{Sentence_Break=ATerm}…;\n\r\x85\u2028\u2029]")
"""Character that may end a sentence."""
CLUSTER: Final = regex.compile(r"\X")
"""Pattern of a grapheme cluster: what a reader sees as one character."""

Span = tuple[int, int]
"""Start and exclusive end, in characters."""


def sentence_spans(text: str, language: str = "") -> list[Span]:
    """Returns the sentences of a text, without the white space between them.

    The boundaries are those of the library sentencex, which knows the abbreviations of many languages, and those after
    the full stops of scripts without spaces. A boundary within a number or an address, after an initial, or next to
    text without letters, such as the number of a list item, is none.

    Args:
        text: Text of one line.
        language: Language of the text (BCP 47); English rules if it is not known.
    """
    if not _might_have_several(text):
        return [span] if (span := _stripped(text, 0, len(text))) else []
    code = language.replace("_", "-").split("-")[0].lower() or "en"
    spans: list[Span] = []
    start = 0
    for end in _candidates(text, code):
        if end == len(text) or _is_boundary(text[max(start, end - 8) : end], text[end : end + 1], code):
            spans += [span] if (span := _stripped(text, start, end)) else []
            start = end
    return _join_without_letters(text, spans)


def count_sentences(text: str, language: str = "") -> int:
    """Returns the number of sentences of a text, see `sentence_spans`."""
    return len(sentence_spans(text, language))


def has_letter(text: str) -> bool:
    """Whether a text has a letter of any script."""
    return text.isalpha() or _LETTER.search(text) is not None


def _might_have_several(text: str) -> bool:
    """Whether the text has a character that may end a sentence before its last one; fast."""
    mark = _MARK.search(text)
    return mark is not None and mark.end() < len(text)


def _candidates(text: str, code: str) -> Iterator[int]:
    """Yields the positions after possible sentence ends, in order; the last one is the end of the text.

    A long text is read in blocks, since the time of sentencex can grow with the square of the length.
    """
    start = 0
    while start < len(text):
        block = text[start : start + BLOCK]
        ends: set[int] = set()
        position = 0
        for sentence in segment(code, block):
            for pattern in (_UNSPACED_END, _COMMON_WORD):
                ends.update(position + match.end() for match in pattern.finditer(sentence))
            position += len(sentence)
            ends.add(position)
        is_last = start + BLOCK >= len(text)
        inner = sorted(ends) if is_last else sorted(ends - {position})
        yield from (start + end for end in inner)
        start += inner[-1] if inner else BLOCK


def _is_boundary(last: str, following: str, code: str) -> bool:
    """Whether a sentence may end after its last characters, before the following one."""
    if last[-1:].isspace() or following.isspace():
        is_ordinal = code in _ORDINAL_LANGUAGES and _ORDINAL.search(last)
        return not (is_ordinal or _INITIAL.search(last))
    end = last.rstrip("\"'”’»)]")[-1:]
    return not (end in ".!?．" and (end.isascii() or following.isdigit()))


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


def _stripped(text: str, start: int, end: int) -> Span | None:
    """Returns the span without the white space at its ends; None if nothing is left."""
    part = text[start:end]
    left = start + len(part) - len(part.lstrip())
    right = end - (len(part) - len(part.rstrip()))
    return (left, right) if left < right else None
