"""A streaming reader of translation memories (TMX)."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from xml.parsers import expat

from transformer.data.readers import Pair, PairCounts
from transformer.data.xml_text import BAD_CHARACTER, BAD_REFERENCE, read_xml_text
from transformer.errors import DataError
from transformer.text.lines import MAX_LINE_CHARACTERS, Invalid, open_bytes

MAX_TAG_BYTES: Final = 1 << 22
"""Maximum size of a tag or comment, which the parser holds in memory."""
MAX_UNIT_PAIRS: Final = 10_000
"""Maximum number of pairs of a unit, which combines each segment of one language with each of the other."""
MARKUP_ELEMENTS: Final = ("bpt", "ept", "it", "ph", "ut")
"""Elements of a segment that contain formatting codes, not text."""
MAX_CODE_CHARACTERS: Final = 200
"""Length up to which a code is examined for a line break."""
MAX_LANGUAGES, MAX_LANGUAGE_CHARACTERS = 10, 40
"""Limits of what a message shows."""
BREAK_TYPE: Final = re.compile(r"(?:.*[-:_])?(?:[lpc]b|br|tab|nl|(?:line|page|soft)-?(?:break|return)|new-?line)")
"""Types of codes that stand for white space: line, page and column breaks of TMX 1.4, and names that tools write."""
_SIGN: Final = r"&#0*(?:9|10|13);|&#x0*[9ad];"
BREAK_CODES: Final = (
    r"</?(?:[\w-]+:)?(?:br|p|div|li|tr|td|th|h[1-6]|lb|pb|cb|nl|tab|line-?break)\d*\b[^>]*>",  # elements
    rf"<(?:mq:)?ch\s[^>]*val=[\"'](?:{_SIGN}|\s)[\"'][^>]*>",  # a character, as memoQ writes it
    r"\{?\\+(?:n|r|t|line|par|tab|page|softline)\b\s*\}?",  # RTF, and escapes of programs
    _SIGN,
    r"\{(?:br|tab|nl)\}",
)
BREAK_CODE: Final = re.compile(rf"\s*(?:{'|'.join(BREAK_CODES)})\s*", re.IGNORECASE)
"""Codes that stand for white space."""


def read_tmx(
    path: Path, languages: tuple[str, str], counts: PairCounts | None = None, invalid: Invalid = "error"
) -> Iterator[Pair]:
    """Yields the segments of two languages of each translation unit.

    `en` also matches `en-GB`, and `en_US` matches `en-US`. A unit with several segments of a language yields every
    combination; if a unit lacks a language, that side is empty. A code that stands for a line break or a tab becomes a
    space. A segment with a character that XML does not allow costs its pairs, which are counted. A file that declares
    entities or its own document type is refused: entities are not needed here, and they can expand without limit.

    Args:
        path: Path of the file.
        languages: Languages of source and target.
        counts: Counts that are updated while reading.
        invalid: Treatment of bytes that the file's encoding does not allow, as in `read_lines`.

    Raises:
        DataError: the file cannot be read, is not XML, declares entities, or has no unit with both languages.
    """
    counts = counts if counts is not None else PairCounts()
    units = _Units(path, languages, counts)
    with open_bytes(path) as file:
        for text in read_xml_text(file, str(path), counts.source, invalid):
            yield from units.feed(text)
        yield from units.feed("", is_last=True)
    units.check_languages()


class _Segment:
    """The text of a segment while it is parsed; None stands for a break.

    Attributes:
        is_overlong: Whether the text is too long for a tokenizer; the rest of it is then ignored.
        is_damaged: Whether the text has a character that XML does not allow.
    """

    def __init__(self) -> None:
        self._parts: list[str | None] = []
        self._length = 0
        self.is_overlong = self.is_damaged = False

    def add(self, text: str) -> None:
        """Appends text."""
        self.is_damaged |= BAD_CHARACTER in text or BAD_REFERENCE in text
        self._length += len(text)
        self.is_overlong |= self._length > MAX_LINE_CHARACTERS
        if not self.is_overlong:
            self._parts.append(text)

    def add_break(self) -> None:
        """Appends a code that stands for white space."""
        if self._parts and self._parts[-1] is not None:
            self._parts.append(None)

    def text(self) -> str:
        """Returns the text, with a space at each break between two words."""
        parts: list[str] = []
        is_break = False
        for part in self._parts:
            if part is None:
                is_break = True
            else:
                if is_break and parts and not parts[-1][-1].isspace() and not part[0].isspace():
                    parts.append(" ")
                parts.append(part)
                is_break = False
        return "".join(parts)


class _Units:
    """Collects the translation units of a document while it is parsed."""

    def __init__(self, path: Path, languages: tuple[str, str], counts: PairCounts) -> None:
        self._path, self._languages, self._counts = path, languages, counts
        self._parser = expat.ParserCreate("utf-8")  # whatever encoding the file declares
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.StartCdataSectionHandler = lambda: self._set_cdata(is_inside=True)
        self._parser.EndCdataSectionHandler = lambda: self._set_cdata(is_inside=False)
        self._parser.StartDoctypeDeclHandler = self._doctype
        self._parser.SkippedEntityHandler = self._skipped
        self._pairs: list[Pair] = []
        self._segments: tuple[list[_Segment], list[_Segment]] = ([], [])
        self._sides: list[int] = []
        self._segment: _Segment | None = None
        self._codes: list[str] = []  # kind and text of each code that is open
        self._fed, self._is_cdata = 0, False
        self._n_segments = Counter[str]()
        self._has_pairs = False

    def feed(self, text: str, *, is_last: bool = False) -> list[Pair]:
        """Parses a part of the file and returns the pairs that it completes."""
        data = text.encode()
        try:
            self._parser.Parse(data, is_last)
        except expat.ExpatError as error:
            place = f"line {error.lineno}, column {error.offset + 1}"
            raise DataError(f"{self._path}: not XML, or cut short ({place}); export the memory again") from error
        self._fed += len(data)
        if self._fed - self._parser.CurrentByteIndex > MAX_TAG_BYTES:
            raise DataError(
                f"{self._path}, line {self._parser.CurrentLineNumber}: a tag or comment of more than "
                f"{MAX_TAG_BYTES:,} bytes; export the memory again"
            )
        pairs, self._pairs = self._pairs, []
        return pairs

    def check_languages(self) -> None:
        """Checks that some unit had both languages, after the whole file.

        Raises:
            DataError: no unit had both.
        """
        if self._has_pairs:
            return
        first, second = self._languages
        languages = ", ".join(f"{name} ({count:,})" for name, count in self._n_segments.most_common(MAX_LANGUAGES))
        more = ", ..." if len(self._n_segments) > MAX_LANGUAGES else ""
        holds_both = all(
            any(_matches_language(name, wanted) for name in self._n_segments) for wanted in self._languages
        )
        others = "which it holds in other units only" if holds_both else f"it holds {languages or 'none'}{more}"
        raise DataError(
            f"{self._path}: no unit has a segment in {first!r} and one in {second!r}; {others}; choose two of its "
            "languages, e.g. --languages en,de"
        )

    def _doctype(self, name: str, system: str | None, public: str | None, has_internal_subset: int) -> None:
        if has_internal_subset:
            raise DataError(
                f"{self._path}, line {self._parser.CurrentLineNumber}: the document type declares entities or elements "
                "of its own, which is not safe to read; remove the DOCTYPE"
            )

    def _skipped(self, name: str, is_parameter: bool) -> None:
        raise DataError(
            f"{self._path}, line {self._parser.CurrentLineNumber}: &{name}; is declared elsewhere, which is not read; "
            "write the character itself"
        )

    def _set_cdata(self, *, is_inside: bool) -> None:
        self._is_cdata = is_inside

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "tu":
            self._segments = ([], [])
        elif name == "tuv":
            language = attributes.get("xml:lang", attributes.get("lang", ""))[:MAX_LANGUAGE_CHARACTERS]
            self._n_segments[language] += 1
            self._sides = [side for side, wanted in enumerate(self._languages) if _matches_language(language, wanted)]
        elif name == "seg":
            self._segment = _Segment()
        if name in MARKUP_ELEMENTS:
            kind = attributes.get("type", "")[:MAX_CODE_CHARACTERS].lower()
            if BREAK_TYPE.fullmatch(kind) and self._segment is not None:
                self._segment.add_break()
            self._codes.append("")

    def _end(self, name: str) -> None:
        if name in MARKUP_ELEMENTS:
            code = self._codes.pop()
            if self._segment is not None and (BREAK_CODE.fullmatch(code) or _is_break_text(code)):
                self._segment.add_break()
        if name == "seg" and self._segment is not None:
            for side in self._sides:
                self._segments[side].append(self._segment)
            self._segment = None
        elif name == "tu":
            self._end_unit()

    def _end_unit(self) -> None:
        sources, targets = (segments or [_Segment()] for segments in self._segments)
        if len(sources) * len(targets) > MAX_UNIT_PAIRS:
            raise DataError(
                f"{self._path}, line {self._parser.CurrentLineNumber}: a unit of {len(sources):,} and "
                f"{len(targets):,} segments; they cannot all be translations of each other"
            )
        self._has_pairs |= all(self._segments)
        for source in sources:
            for target in targets:
                if source.is_damaged or target.is_damaged:
                    self._counts.damaged += 1
                elif source.is_overlong or target.is_overlong:
                    self._counts.too_long += 1
                else:
                    self._pairs.append((source.text(), target.text()))

    def _characters(self, text: str) -> None:
        if self._is_cdata:  # not a reference there
            text = text.replace(BAD_REFERENCE, "&")
        if self._codes:
            self._codes[-1] += text[: MAX_CODE_CHARACTERS - len(self._codes[-1])]
        elif self._segment is not None:
            self._segment.add(text)


def _is_break_text(code: str) -> bool:
    """Whether a code consists of white space with a line break or a tab."""
    return code.isspace() and not code.isprintable()


def _matches_language(language: str, wanted: str) -> bool:
    """Whether a language is the wanted one, or that of a region; case does not matter, nor `_` instead of `-`."""
    language, wanted = (name.lower().replace("_", "-") for name in (language, wanted))
    return language == wanted or language.startswith(f"{wanted}-")
