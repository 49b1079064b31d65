"""Documents of programs in two languages: pages of the same name whose blocks correspond."""

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

from corpora.pairs import TextPair, one_line

BLOCKS: Final = frozenset({"p", "h1", "h2", "h3", "h4", "h5", "h6", "dt", "title", "td", "th", "li", "dd", "caption"})
CONTAINERS: Final = frozenset(
    {"div", "ul", "ol", "dl", "table", "tr", "section", "page", "links", "info", "note", "steps", "item", "list"}
)
CODE: Final = frozenset({"pre", "script", "style", "screen", "select"})
HIDDEN: Final = "MAC"
"""Class of the alternative text that LibreOffice's help has for macOS."""


class Blocks(HTMLParser):
    """Collects the text of each block of a page, with its tag and its id."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.blocks: list[tuple[str, str, str]] = []
        self._tag = self._id = ""
        self._text: list[str] = []
        self._code = 0
        self._hidden: list[bool] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begins a block, or code or hidden text within one."""
        attributes = dict(attrs)
        if tag in CODE:
            self._code += 1
        elif tag == "span":
            self._hidden.append(HIDDEN in (attributes.get("class") or "").split())
        elif tag in BLOCKS or (tag == "div" and "para" in (attributes.get("class") or "").split()):
            self.finish()
            self._tag, self._id = tag, attributes.get("id") or ""
        elif tag in CONTAINERS:
            self.finish()
        elif tag == "br":
            self._text.append(" ")

    def handle_endtag(self, tag: str) -> None:
        """Ends a block, code or hidden text."""
        if tag in CODE:
            self._code = max(0, self._code - 1)
        elif tag == "span" and self._hidden:
            self._hidden.pop()
        elif tag in BLOCKS or tag in CONTAINERS:
            self.finish()

    def handle_data(self, data: str) -> None:
        """Adds text to the block that is open."""
        if self._tag and not self._code and not any(self._hidden):
            self._text.append(data)

    def finish(self) -> None:
        """Ends the block that is open."""
        text = one_line("".join(self._text))
        if self._tag and text:
            self.blocks.append((self._tag, self._id, text))
        self._tag, self._text = "", []


def read_blocks(path: Path) -> list[tuple[str, str, str]]:
    """Returns tag, id and text of each block of a page."""
    parser = Blocks()
    parser.feed(path.read_text(encoding="utf-8", errors="replace"))
    parser.close()
    parser.finish()
    return parser.blocks


def pairs_by_structure(
    english: Path, german: Path, pattern: str, suffix: tuple[str, str] = ("", "")
) -> Iterator[TextPair]:
    """Yields the blocks of pages that have the same sequence of tags in both languages.

    Args:
        english: Folder of the English pages.
        german: Folder of the German pages.
        pattern: Pattern of the names of the pages.
        suffix: Part of the names that tells the language, in English and in German.
    """
    for page in sorted(english.glob(pattern)):
        other = (
            german / str(page.relative_to(english)).replace(*suffix)
            if suffix[0]
            else german / page.relative_to(english)
        )
        if not other.is_file():
            continue
        sides = read_blocks(page), read_blocks(other)
        if [tag for tag, _, _ in sides[0]] == [tag for tag, _, _ in sides[1]]:
            yield from (TextPair(block[2], translation[2]) for block, translation in zip(*sides, strict=True))


def pairs_by_id(english: Path, german: Path, pattern: str) -> Iterator[TextPair]:
    """Yields the blocks of pages that have the same name and the same id in both languages."""
    for page in sorted(english.glob(pattern)):
        other = german / page.relative_to(english)
        if other.is_file():
            translations = {block_id: text for _, block_id, text in read_blocks(other) if block_id}
            for _, block_id, text in read_blocks(page):
                if block_id in translations:
                    yield TextPair(text, translations[block_id])
