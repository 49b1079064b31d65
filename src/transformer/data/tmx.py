"""A streaming reader of translation memories (TMX)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final
from xml.parsers import expat

from transformer.data.readers import Pair
from transformer.errors import DataError
from transformer.text.lines import open_bytes

READ_BYTES: Final = 1 << 16
MAX_UNIT_PAIRS: Final = 10_000
"""Maximum number of pairs of a unit, which combines each segment of one language with each of the other."""
MARKUP_ELEMENTS: Final = ("bpt", "ept", "it", "ph", "ut")
"""Elements of a segment that contain formatting codes, not text."""


def read_tmx(path: Path, languages: tuple[str, str]) -> Iterator[Pair]:
    """Yields the segments of two languages of each translation unit.

    `en` also matches `en-GB`. A unit with several segments of a language yields every combination; if a unit lacks a
    language, that side is empty. A file that declares entities or its own document type is refused: entities are not
    needed here, and they can expand without limit.

    Raises:
        DataError: the file cannot be read, is not XML, or declares entities.
    """
    units = _Units(path, languages)
    with open_bytes(path) as file:
        while chunk := file.read(READ_BYTES):
            yield from units.feed(chunk)
        yield from units.feed(b"", is_last=True)


class _Units:
    """Collects the translation units of a document while it is parsed."""

    def __init__(self, path: Path, languages: tuple[str, str]) -> None:
        self._path = path
        self._languages = [language.lower() for language in languages]
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.StartDoctypeDeclHandler = self._doctype
        self._parser.SkippedEntityHandler = self._skipped
        self._pairs: list[Pair] = []
        self._segments: tuple[list[str], list[str]] = ([], [])
        self._sides: list[int] = []
        self._text: list[str] | None = None
        self._markup = 0

    def feed(self, chunk: bytes, *, is_last: bool = False) -> list[Pair]:
        """Parses a part of the file and returns the pairs that it completes."""
        try:
            self._parser.Parse(chunk, is_last)
        except expat.ExpatError as error:
            raise DataError(f"{self._path}: not XML, or cut short ({error}); export the memory again") from error
        pairs, self._pairs = self._pairs, []
        return pairs

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

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "tu":
            self._segments = ([], [])
        elif name == "tuv":
            language = attributes.get("xml:lang", attributes.get("lang", "")).lower()
            self._sides = [side for side, wanted in enumerate(self._languages) if _matches_language(language, wanted)]
        elif name == "seg":
            self._text = []
        self._markup += name in MARKUP_ELEMENTS

    def _end(self, name: str) -> None:
        self._markup -= name in MARKUP_ELEMENTS
        if name == "seg" and self._text is not None:
            for side in self._sides:
                self._segments[side].append("".join(self._text))
            self._text = None
        elif name == "tu":
            sources, targets = (segments or [""] for segments in self._segments)
            if len(sources) * len(targets) > MAX_UNIT_PAIRS:
                raise DataError(
                    f"{self._path}, line {self._parser.CurrentLineNumber}: a unit of {len(sources):,} and "
                    f"{len(targets):,} segments; they cannot all be translations of each other"
                )
            self._pairs.extend((source, target) for source in sources for target in targets)

    def _characters(self, text: str) -> None:
        if self._text is not None and not self._markup:
            self._text.append(text)


def _matches_language(language: str, wanted: str) -> bool:
    return language == wanted or language.startswith(f"{wanted}-") or language.startswith(f"{wanted}_")
