"""Inline codes: what stands within a text and is not translated, such as bold print or a placeholder.

The translator sees a stand-in for each code, which it keeps. This is a short tag (`<x0>`)
for markup and a numbered one (`%1$s`, `%1$d`) for placeholders. See `docs/decisions/0093-one-markup-parser.md`.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Final, Literal

import regex

from transformer.text.spans import PATTERNS

COPIED: Final = regex.compile(
    rf"{PATTERNS['urls']}|{PATTERNS['identifiers']}"
    r"|[\w.-]*+#\d+|(?=[a-f]*+\d)[0-9a-f]{7,40}|v?+\d+(?:\.\d+){2,}|[\p{Ps}\p{Pi}]\d+[\p{Pe}\p{Pf}]"
)
"""Text within a pair of codes that is copied: an address, a file, an issue, a commit, a version, a note's number."""
MAX_CODES: Final = 1000
"""Number of codes above which a text is not translated."""


@dataclass(frozen=True)
class Code:
    """An inline code.

    Attributes:
        source: The code as written in the file.
        kind: "start" and "end" of a pair that encloses text, "empty" for markup that stands alone, "value" for a
            placeholder of a text, or "count" for a placeholder of a number.
        pair: Key that the two codes of a pair have in common.
    """

    source: str
    kind: Literal["start", "end", "empty", "value", "count"]
    pair: str = ""


@dataclass(frozen=True)
class CodedText:
    """A text with stand-ins for its codes.

    Attributes:
        text: Text that is translated.
        codes: Code of each stand-in, in order; each stand-in occurs once in the text.
        has_too_many: Whether the text has more codes than are translated; it has no stand-ins then.
    """

    text: str
    codes: Mapping[str, Code] = field(default_factory=dict[str, Code])
    has_too_many: bool = False

    def problem(self, translation: str) -> str:
        """Describes what a translation does wrong with the codes; empty if every code occurs once and pairs nest."""
        if not self.codes:
            return ""
        stand_ins = [part for number, part in enumerate(self._pattern().split(translation)) if number % 2]
        counts = Counter(stand_ins)
        for stand_in, code in self.codes.items():
            if counts[stand_in] != 1:
                return f"the translation {'repeats' if counts[stand_in] else 'lacks'} {code.source!r:.60}"
        if empty := self._empty_pairs(translation) - self._empty_pairs(self.text):
            return f"the translation leaves {self.codes[min(empty)].source!r:.60} empty"
        open_pairs: list[str] = []
        for code in map(self.codes.__getitem__, stand_ins):
            if code.kind == "start":
                open_pairs.append(code.pair)
            elif code.kind == "end" and (not open_pairs or open_pairs.pop() != code.pair):
                return f"the translation misplaces {code.source!r:.60}"
        return ""

    def _empty_pairs(self, translation: str) -> set[str]:
        """Returns the stand-ins of start codes that have no text before their end."""
        pieces = self._pattern().split(translation)
        n_texts = accumulate(bool(text.strip()) for text in pieces[::2])
        opened: dict[str, tuple[str, int]] = {}
        empty: set[str] = set()
        for stand_in, n_before in zip(pieces[1::2], n_texts, strict=False):
            code = self.codes[stand_in]
            if code.kind == "start":
                opened[code.pair] = stand_in, n_before
            elif code.kind == "end" and opened.get(code.pair, ("", -1))[1] == n_before:
                empty.add(opened[code.pair][0])
        return empty

    def restore(self, translation: str, escape: Callable[[str], str] = str) -> str:
        """Returns a translation as it is written in the file.

        Args:
            translation: Translation with all stand-ins, see `problem`.
            escape: Function that escapes the text between codes.
        """
        parts = self.split(translation)
        return "".join(part.source if isinstance(part, Code) else escape(part) for part in parts)

    def split(self, translation: str) -> list[str | Code]:
        """Splits a translation into its texts and codes."""
        if not self.codes:
            return [translation]
        parts = enumerate(self._pattern().split(translation))
        return [self.codes[part] if number % 2 else part for number, part in parts]

    def aligned(self, parts: Sequence[str | Code], within: str | None = None) -> str | None:
        """Returns a translation with the stand-ins of the codes that it has in common with this text.

        Args:
            parts: Texts of the translation and the codes between them, in order.
            within: Part of the text whose codes the translation has; the default is the whole text.

        Returns:
            The translation; None if its codes are not those of the text, see `problem`.
        """
        if self.has_too_many:
            return None
        unused = defaultdict[str, dict[str, None]](dict)  # stand-ins by the source of their code
        for stand_in in self.order(self.text if within is None else within):
            unused[self.codes[stand_in].source][stand_in] = None
        ends = {code.pair: stand_in for stand_in, code in self.codes.items() if code.kind == "end"}
        open_pairs: list[str] = []
        written: list[str] = []
        for part in parts:
            if isinstance(part, str):
                written.append(part)
                continue
            alike = unused[part.source]
            if not alike:
                return None
            closing = ends.get(open_pairs[-1], "") if part.kind == "end" and open_pairs else ""
            stand_in = closing if closing in alike else next(iter(alike))
            if self.codes[stand_in].kind == "start":
                open_pairs.append(self.codes[stand_in].pair)
            elif stand_in == closing:
                open_pairs.pop()
            del alike[stand_in]
            written.append(stand_in)
        translation = "".join(written)
        is_whole = within is None or within == self.text
        return None if any(unused.values()) or (is_whole and self.problem(translation)) else translation

    def order(self, translation: str) -> list[str]:
        """Returns the stand-ins in the order of a translation."""
        return self._pattern().findall(translation) if self.codes else []

    def _pattern(self) -> re.Pattern[str]:
        return re.compile(f"({'|'.join(map(re.escape, self.codes))})")


def coded_text(parts: Sequence[str | Code]) -> CodedText:
    """Returns a text with stand-ins for its codes.

    Start and end codes without their counterpart become codes that stand alone. A placeholder beside a letter gets a
    short tag, which may stand within a word.

    Args:
        parts: Texts, unescaped, and the codes between them, in order.
    """
    literal = "".join(part for part in parts if isinstance(part, str))
    prefix, first = "x", 1
    while re.search(rf"</?{prefix}\d", literal):
        prefix += "x"
    while f"%{first}$" in literal:
        first += 10 * MAX_CODES
    codes = [part for part in parts if isinstance(part, Code)]
    if len(codes) > MAX_CODES:
        return CodedText("".join(part if isinstance(part, str) else part.source for part in parts), has_too_many=True)
    pairs = _complete_pairs(codes)
    numbers: dict[str, int] = {}
    n_placeholders = 0
    text, mapping = list[str](), dict[str, Code]()
    for index, part in enumerate(parts):
        if isinstance(part, str):
            text.append(part)
            continue
        if part.kind in ("value", "count") and not _touches_word(parts, index):
            stand_in = f"%{first + n_placeholders}${'d' if part.kind == 'count' else 's'}"
            n_placeholders += 1
        elif part.pair in pairs:
            number = numbers.setdefault(part.pair, len(numbers))
            stand_in = f"<{'/' * (part.kind == 'end')}{prefix}{number}>"
        else:
            part = replace(part, kind="empty", pair="")
            number = numbers.setdefault(f"\0{len(numbers)}", len(numbers))
            stand_in = f"<{prefix}{number}/>"
        mapping[stand_in] = part
        text.append(stand_in)
    return CodedText("".join(text), mapping)


def _touches_word(parts: Sequence[str | Code], index: int) -> bool:
    """Whether a letter or digit stands beside a code, as in `file%s`, so that a word cannot hide it."""
    texts = parts[index - 1] if index else "", parts[index + 1] if index + 1 < len(parts) else ""
    before, after = ("" if isinstance(text, Code) else text for text in texts)
    return before[-1:].isalnum() or after[:1].isalnum()


def _complete_pairs(codes: Sequence[Code]) -> set[str]:
    """Returns the keys of the pairs that have a start followed by an end, and enclose whole pairs alone."""
    complete: set[str] = set()
    open_pairs: dict[str, None] = {}
    for code in codes:
        if code.kind == "start" and code.pair:
            open_pairs[code.pair] = None
        elif code.kind == "end" and code.pair in open_pairs:
            while open_pairs.popitem()[0] != code.pair:
                pass
            complete.add(code.pair)
    return complete
