"""A copy of a text without quotes, brackets and signs, in which sentence ends are searched."""

import unicodedata
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import regex

from transformer.text.normalization import INVISIBLE, SPACE

_TAG: Final = r"</?[A-Za-z][^<>]{0,200}>"
_REFERENCE: Final = r"\[\d{1,3}\]"
_SIGN: Final = (
    r"[¹²³⁰⁴-⁹*†‡§_~\p{Extended_Pictographic}\p{Emoji_Modifier}\p{Regional_Indicator}\ufe0f\u200d\u20e3"
    r"\U000e0020-\U000e007f]"
)
"""Mark of a footnote, sign of mark-up, or part of an emoji."""
_APOSTROPHE: Final = r"(?<![\p{L}\p{N}])['’]|['’](?![\p{L}\p{N}])"
_ENCLOSING: Final = rf"{_TAG}|[\p{{Ps}}\p{{Pe}}\p{{Pi}}\"`<>«»”]|{_APOSTROPHE}|[\p{{Pf}}](?<!’)"
_HIDDEN: Final = rf"[{SPACE}]|{_ENCLOSING}|{INVISIBLE}"
MARKS: Final = r"[\p{Sentence_Break=STerm}\p{Sentence_Break=ATerm}…⋯]"
"""Pattern of a mark that may end a sentence."""
_DECOMPOSED: Final = r"\p{L}[\u0300-\u036f\u0653-\u0655\u3099\u309a]++|[\u1100-\u1112][\u1161-\u1175][\u11a8-\u11c2]?"
_CHANGED: Final = regex.compile(
    rf"(?<marks>{MARKS}++)(?<after>(?:{_REFERENCE}|{_SIGN}|{_HIDDEN})*+)|(?<letter>{_DECOMPOSED})|(?:{_HIDDEN})++"
)
_PLAIN: Final = regex.compile(r"(?:[\w.,;:!?-]|(?<=\w)'(?=\w)| (?! ))*+", regex.ASCII)
_SPACE: Final = regex.compile(rf"[{SPACE}]")
_ELLIPSES: Final = str.maketrans("…⋯", "..")
_PARAGRAPH: Final = regex.compile(r"\u2029|(?:\r\n|[\n\r\x85\u2028])(?:[ \t]*(?:\r\n|[\n\r\x85\u2028]))+")
_CLOSING: Final = regex.compile(
    rf"(?:</[^<>]*>|[\p{{Pe}}\p{{Pf}}\"'`]|\p{{Pi}}(?=[\s\p{{P}}]|\Z)|{_REFERENCE}|{_SIGN}|{INVISIBLE})*+"
    rf"(?:\s+(?:[\p{{Pe}}\p{{Pf}}]+|{_REFERENCE})(?=\s|\Z))?"
)
"""What belongs to the sentence whose full stop it follows; in French, a space may be before it."""
_END: Final = regex.compile(rf"{MARKS}|[:\p{{Pf}}\"]")
_LONGEST_BRACKET, _LONGEST_GAP = 1000, 40
_BRACKET: Final = regex.compile(r"\p{Pe}")


@dataclass(frozen=True)
class PlainCopy:
    """A copy of a text without what hides its sentence ends.

    Each run of white space is one space, and letters are composed (NFC). Quotes, brackets, tags and invisible
    characters are left out, and so are emoji and the marks of footnotes after a full stop. An ellipsis before white
    space is a full stop.

    Attributes:
        original: The text.
        text: The copy.
        positions: Position in the text of each character of the copy, and its length at the end.
    """

    original: str
    text: str
    positions: Sequence[int]

    @classmethod
    def of(cls, text: str) -> "PlainCopy":
        """Copies a text."""
        if _PLAIN.fullmatch(text):
            return cls(text, text, range(len(text) + 1))
        parts: list[str] = []
        positions: list[int] = []
        done = 0
        for match in _CHANGED.finditer(text):
            start, end = match.span()
            kept = match["marks"] or unicodedata.normalize("NFC", match["letter"] or "")
            hidden = match["after"] if match["marks"] else match[0]
            has_space = end > len(hidden) and _SPACE.search(hidden) is not None
            if has_space or end == len(text):
                kept = kept.translate(_ELLIPSES)
            if has_space:
                kept += " "
            parts += [text[done:start], kept]
            positions += range(done, start + len(kept))
            done = end
        parts.append(text[done:])
        positions += range(done, len(text) + 1)
        return cls(text, "".join(parts), positions)

    def paragraph_ends(self) -> list[int]:
        """Returns the positions in the copy after each end of a paragraph."""
        return [bisect_left(self.positions, match.end()) for match in _PARAGRAPH.finditer(self.original)]

    def hidden_at(self, end: int) -> str:
        """Returns what the copy lacks, or has as a space, between the last mark before a position and the position."""
        return self.original[self._after_mark(end) : self.positions[end]]

    def original_end(self, end: int) -> int:
        """Returns the end in the text of a sentence that ends in the copy, with its closing quotes and brackets."""
        start = self._after_mark(end)
        closing = _CLOSING.match(self.original, start)
        return min(closing.end(), self.positions[end]) if closing else start

    def closes_bracket(self, end: int) -> bool:
        """Whether a bracket is closed between the mark before a position and the position."""
        return _BRACKET.search(self.original, self._after_mark(end), self.original_end(end)) is not None

    def bracket_is_sentence(self, end: int) -> bool:
        """Whether the bracket that is closed before a position was opened at the start of a sentence."""
        first, last = max(0, self._after_mark(end) - _LONGEST_BRACKET), self._after_mark(end)
        opening = max(self.original.rfind(sign, first, last) for sign in "([（")
        before = self.original[max(first, opening - _LONGEST_GAP) : max(opening, 0)].rstrip()[-1:]
        return not before or _END.match(before) is not None

    def _after_mark(self, end: int) -> int:
        last = end - 1 if self.text[end - 1] != " " else end - 2
        return self.positions[last] + 1 if last >= 0 else 0
