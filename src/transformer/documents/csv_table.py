"""Tables (CSV and TSV): the cells of the columns that hold text are translated where they stand."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final

import regex

from transformer.documents.codes import CodedText
from transformer.documents.document import Document, Outcome, Segment, Writing
from transformer.documents.json_messages import NO_TEXT
from transformer.documents.text_file import Edit, TextFile, read_text_file
from transformer.errors import DataError
from transformer.text.sentences import has_letter

Column = int | str
"""Number of a column, from 1, or its name in the first row."""
DELIMITERS: Final = (",", "\t", ";", "|")
SAMPLE_ROWS: Final = 200
"""Number of rows by which the delimiter is found."""
MIN_SHARE: Final = 0.9
"""Share of these rows that have the same number of cells."""
_PATTERN: Final = (
    r"(?:\"(?P<quoted>(?:QUOTED|\"\")*+)\"(?=DELIMITER|\r|\n|\Z)|(?P<plain>PLAIN*+))(?P<end>DELIMITER|\r?\n|\r|\Z)"
)
_WORD: Final = regex.compile(r"\p{L}[\p{L}\p{M}'\u2019-]*+")
_UNSPACED: Final = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]{4}")
_FORMULA: Final = ("=", "+", "-", "@")
"""Beginnings of cells that spreadsheets take for formulas."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table.

    Attributes:
        start: Where it begins in the file, its quotation mark included.
        end: Its exclusive end.
        text: Its text.
        is_quoted: Whether it is written in quotation marks.
    """

    start: int
    end: int
    text: str
    is_quoted: bool

    @property
    def is_prose(self) -> bool:
        """Whether it is natural language: several words, not all of which are names."""
        words = _WORD.findall(self.text)
        if len(words) < 2 or NO_TEXT.fullmatch(self.text):
            return _UNSPACED.search(self.text) is not None
        return not all(word[0].isupper() for word in words)


Row = Sequence[Cell]


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        file: The file.
        delimiter: Character between cells; empty for a single column.
        rows: Its rows, without blank ones.
    """

    file: TextFile
    delimiter: str
    rows: Sequence[Row]

    def column(self, index: int, first: int = 0) -> list[Cell]:
        """Returns the filled cells of a column from a row on."""
        return [row[index] for row in self.rows[first:] if index < len(row) and row[index].text.strip()]

    def text_columns(self, first: int) -> list[int]:
        """Returns the indices of the columns of which at least half of the filled cells are natural language.

        Args:
            first: Index of the first row that counts.
        """
        columns = ((index, self.column(index, first)) for index in range(max(map(len, self.rows), default=0)))
        return [index for index, cells in columns if cells and 2 * sum(cell.is_prose for cell in cells) >= len(cells)]

    @property
    def has_header(self) -> bool:
        """Whether the first row names the columns: it has words where others have numbers, or no sentence."""
        if len(self.rows) < 2:
            return False
        header = self.rows[0]
        names = [cell.text.strip() for cell in header]
        for index, cell in enumerate(header):
            others = self.column(index, 1)
            if has_letter(cell.text) and others and not any(has_letter(other.text) for other in others):
                return True
        is_named = all(names) and len(set(names)) == len(names)
        return is_named and not any(header[index].is_prose for index in self.text_columns(1) if index < len(header))

    def problem(self, cell: Cell, translation: str) -> str:
        """Describes why a translation cannot be written into a cell; empty if it can."""
        if missing := self.file.unencodable(translation):
            return f"{missing!r} cannot be written in {self.file.encoding}; convert the file to UTF-8"
        if translation.startswith(_FORMULA) and not cell.text.startswith(translation[0]):
            return "a spreadsheet would take the translation for a formula"
        if self.delimiter == "\t" and "\t" in translation:
            return "the translation has a tab, which separates cells"
        return ""

    def edit(self, cell: Cell, translation: str) -> Edit:
        """Returns the edit that writes a translation into a cell, in quotation marks if it needs them."""
        is_split = bool(self.delimiter) and self.delimiter in translation
        needs_quotes = self.delimiter != "\t" and (is_split or translation.startswith('"'))
        if cell.is_quoted or needs_quotes:
            translation = '"' + translation.replace('"', '""') + '"'
        return cell.start, cell.end, translation


def parse(content: bytes, name: str, columns: Sequence[Column] = ()) -> Document:
    """Reads a table; the cells are separated by commas, tabs, semicolons or bars.

    Args:
        content: Bytes of the file.
        name: Name of the file, for messages.
        columns: Columns to translate; by default those that hold natural language.

    Raises:
        DataError: A quotation mark is never closed, a column is missing, or no column holds natural language.
    """
    file = read_text_file(content, name)
    delimiter = _find_delimiter(file)
    table = Table(file, delimiter, [*_rows(file, delimiter)])
    first = int(table.has_header or any(isinstance(column, str) for column in columns))
    chosen = [_index(table, column) for column in columns] or table.text_columns(first)
    if not chosen and table.rows:
        raise DataError(f"{name}: no column holds sentences; name those to translate, e.g. --columns title,text or 2,3")
    cells = [row[index] for row in table.rows[first:] for index in sorted({*chosen}) if index < len(row)]
    cells = [cell for cell in cells if _may_be_text(cell.text)]
    segments = [Segment(CodedText(cell.text), cell.start, check=partial(table.problem, cell)) for cell in cells]
    note = "" if columns or not chosen else _note(table, chosen, first)
    return Document(segments, partial(_write, table, cells), line_of=file.line_of, note=note)


def _pattern(delimiter: str) -> re.Pattern[str]:
    is_strict = delimiter == "\t"  # in tables of tabs, a quotation mark may be text
    quoted = r"[^\"\t\r\n]" if is_strict else r"[^\"]"
    escaped = re.escape(delimiter) if delimiter else "(?!)"
    plain = rf"[^{escaped}\r\n]" if delimiter else r"[^\r\n]"
    return re.compile(_PATTERN.replace("QUOTED", quoted).replace("DELIMITER", escaped).replace("PLAIN", plain))


def _rows(file: TextFile, delimiter: str, *, is_sample: bool = False) -> Iterator[Row]:
    """Yields the rows of a file that are not blank.

    Raises:
        DataError: A quotation mark is never closed, or text stands behind it, unless the rows are a sample.
    """
    row: list[Cell] = []
    for match in _pattern(delimiter).finditer(file.text):
        quoted, plain = match["quoted"], match["plain"]
        if quoted is None and plain.startswith('"') and delimiter != "\t" and not is_sample:
            raise file.error(match.start(), "a quotation mark is not closed, or text stands behind it; correct the row")
        text = plain if quoted is None else quoted.replace('""', '"')
        row.append(Cell(match.start(), match.start("end"), text, quoted is not None))
        if not delimiter or match["end"] != delimiter:
            if len(row) > 1 or row[0].text.strip():
                yield row
            row = []


def _find_delimiter(file: TextFile) -> str:
    """Returns the delimiter by which most rows have the same number of cells; empty if a row is one cell."""
    best = (0.0, 0, "")
    for delimiter in DELIMITERS:
        widths = Counter(len(row) for row in islice(_rows(file, delimiter, is_sample=True), SAMPLE_ROWS))
        width, count = widths.most_common(1)[0] if widths else (0, 0)
        share = count / max(widths.total(), 1)
        if width > 1 and share >= MIN_SHARE and (share, width) > best[:2]:
            best = (share, width, delimiter)
    return best[2]


def _index(table: Table, column: Column) -> int:
    """Returns the index of a column.

    Raises:
        DataError: The table does not have it, or has several of this name.
    """
    header = [cell.text.strip() for cell in table.rows[0]] if table.rows else []
    if isinstance(column, int):
        if not 1 <= column <= max(map(len, table.rows), default=0):
            raise DataError(f"{table.file.name}: it has {len(header)} columns, but --columns names column {column}")
        return column - 1
    if header.count(column) != 1:
        problem = "several columns are" if column in header else "no column is"
        names = ", ".join(header)
        raise DataError(
            f"{table.file.name}: {problem} named {column!r:.60} in its first row ({names:.200}); give numbers"
        )
    return header.index(column)


def _may_be_text(text: str) -> bool:
    """Whether a cell of a column with text is translated: it is neither a name, a number, an address nor a formula."""
    return has_letter(text) and not text.startswith("=") and NO_TEXT.fullmatch(text.strip()) is None


def _note(table: Table, chosen: Sequence[int], first: int) -> str:
    """Describes which columns are translated."""
    header = table.rows[0]
    names = [header[index].text.strip() if first and index < len(header) else str(index + 1) for index in chosen]
    columns = f"column{'s' * (len(chosen) > 1)} {', '.join(names):.200}"
    return (
        f"{columns} of {max(map(len, table.rows))} translated{', row 1 taken for their names' * first}; see --columns"
    )


def _write(table: Table, cells: Sequence[Cell], outcomes: Sequence[Outcome], writing: Writing) -> bytes:
    pairs = zip(cells, outcomes, strict=True)
    return table.file.splice(table.edit(cell, out.translation) for cell, out in pairs if out.translation is not None)
