"""Readers of files with both sides in columns: TSV, CSV, JSON lines, Parquet."""

import csv
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from transformer.config import describe_error
from transformer.data.readers import Pair, PairCounts
from transformer.errors import DataError
from transformer.text.languages import language_of_header
from transformer.text.lines import Invalid, is_overlong, read_lines

if TYPE_CHECKING:
    import pyarrow as pa

Columns = tuple[int | str, int | str]
Rows = Iterator[tuple[int, list[str]]]
"""The fields of each row, with the number of its first line."""
MAX_ROW_CHARACTERS: Final = 1 << 22
"""Maximum length of a row, which may hold much beside the two texts."""
DEFAULT_NAMES: Final = ("source", "target")
"""Names of the two columns of a table that has others, unless its languages are given."""
SIDE_NAMES: Final = (
    {"source", "src", "source_text", "src_text", "original", "input"},
    {"target", "tgt", "trg", "target_text", "tgt_text", "translation", "output"},
)
"""Names of the two columns by which a first row is a header, as the names of two languages are."""
NESTED: Final = "translation"
"""Name of the object that holds both texts in many data sets."""


def read_tsv(
    path: Path, columns: Columns | None, counts: PairCounts, invalid: Invalid, *, languages: bool = False
) -> Iterator[Pair]:
    """Yields two columns of a file of tab-separated lines.

    Column names are looked up in the first line, which is then a header; column numbers count from 1. Quotation marks
    are ordinary text, as is usual in parallel corpora.

    Args:
        path: Path of the file.
        columns: The two columns; None for a file of exactly two.
        counts: Counts that are updated while reading.
        invalid: Treatment of bytes that are not UTF-8, as in `read_lines`.
        languages: Whether, without `columns`, a first row of the names of two languages or sides is a header.

    Raises:
        DataError: the file cannot be read, a name is not in the first line, or a line has too few or too many columns.
    """
    rows = _tsv_rows(path, counts, invalid)
    if languages and columns is None:
        rows = _skip_header(rows, counts)
    return _select(path, rows, columns, counts)


def read_csv(
    path: Path,
    columns: Columns | None,
    counts: PairCounts,
    invalid: Invalid,
    names: Columns = DEFAULT_NAMES,
    *,
    languages: bool = False,
) -> Iterator[Pair]:
    """Yields two columns of a file of comma-separated values, by the rules of Python's csv module.

    Semicolons separate the values of a file whose first line has one, but no comma. Column names are looked up in the
    first row, as in `read_tsv`. Without `columns`, the first row is a header if it holds `names`, which then are the
    columns; with `languages`, also if it is the names of two languages or sides.

    Raises:
        DataError: same as `read_tsv`, or a quotation mark is never closed.
    """
    rows = csv_rows(path, counts, invalid)
    if columns is None and (first := next(rows, None)) is not None:
        columns = names if all(name in first[1] for name in names) else None
        rows = chain([first], rows)
        if languages and columns is None:
            rows = _skip_header(rows, counts)
    return _select(path, rows, columns, counts)


def _skip_header(rows: Rows, counts: PairCounts) -> Rows:
    """Skips and counts a header with the names of two languages, or of the sides."""
    for is_first, row in zip(chain([True], repeat(False)), rows, strict=False):
        if is_first and len(row[1]) == 2 and _is_header(row[1]):
            counts.headers += 1
        else:
            yield row


def _is_header(names: Sequence[str]) -> bool:
    if all(name.strip().lower() in known for name, known in zip(names, SIDE_NAMES, strict=True)):
        return True
    languages = {language_of_header(name) for name in names}
    return None not in languages and len(languages) == 2


def _tsv_rows(path: Path, counts: PairCounts, invalid: Invalid) -> Rows:
    lines = read_lines(path, counts.source, invalid, overlong="cut", limit=MAX_ROW_CHARACTERS)
    for number, line in enumerate(lines, start=1):
        if len(line) > MAX_ROW_CHARACTERS:
            counts.too_long += 1
        else:
            yield number, line.split("\t")


def csv_rows(path: Path, counts: PairCounts, invalid: Invalid) -> Rows:
    """Yields the rows of a file of values separated by commas or semicolons, see `read_csv`, without blank lines.

    Raises:
        DataError: the file cannot be read, or a quotation mark is never closed.
    """
    is_at_end = False

    def lines() -> Iterator[str]:
        nonlocal is_at_end
        for line in read_lines(path, counts.source, invalid, limit=MAX_ROW_CHARACTERS):
            yield f"{line}\n"
        is_at_end = True

    csv.field_size_limit(max(csv.field_size_limit(), MAX_ROW_CHARACTERS))
    all_lines = lines()
    first = next(all_lines, "")
    delimiter = ";" if ";" in first and "," not in first else ","
    reader, start = csv.reader(chain([first] if first else [], all_lines), delimiter=delimiter), 1
    try:
        for fields in reader:
            if is_at_end:  # a row ends with its line, unless a quotation mark is still open
                raise DataError(
                    f"{path}, line {start}: a quotation mark is never closed; close it, or double it within a text"
                )
            if fields:  # the csv module reads a blank line as a row without fields
                yield start, fields
            start = reader.line_num + 1
    except csv.Error as error:
        raise DataError(
            f"{path}, line {start}: not CSV, a text has a carriage return outside of quotation marks or more than "
            f"{MAX_ROW_CHARACTERS:,} characters; quote the one, and close the quotation marks before the other"
        ) from error


def _select(path: Path, rows: Rows, columns: Columns | None, counts: PairCounts) -> Iterator[Pair]:
    """Yields two columns of rows.

    Raises:
        DataError: a name is not in the first row, or a row has too few columns, or more than the first one.
    """
    wanted: Columns = columns or (1, 2)
    header: list[str] = []
    if any(isinstance(column, str) for column in wanted):
        _, header = next(rows, (1, []))
    indices = [_column_index(column, header, path) for column in wanted]
    width = len(header) if header else 0 if columns else 2
    is_first = not header
    for number, fields in rows:
        width, n_columns = width or len(fields), f"{len(fields)} column{'s' * (len(fields) != 1)}"
        if len(fields) <= max(indices):
            needed = f"data.columns={list(wanted)} needs {max(indices) + 1}" if columns else "two are expected"
            remedy = "repair the line or set data.columns" if columns else "repair the line"
            raise DataError(f"{path}, line {number}: {n_columns}, but {needed}; {remedy}")
        if len(fields) > width:
            expected = "two are expected" if columns is None else f"the first line has {width}"
            remedy = "repair the line (a tab or comma within a text makes two columns)"
            if is_first:
                remedy = "choose the two with the texts, e.g. --set data.columns=1,2, or " + remedy
            raise DataError(f"{path}, line {number}: {n_columns}, but {expected}; {remedy}")
        is_first = False
        pair = fields[indices[0]], fields[indices[1]]
        if any(map(is_overlong, pair)):
            counts.too_long += 1
        else:
            yield pair


def _column_index(column: int | str, header: list[str], path: Path) -> int:
    if isinstance(column, int):
        return column - 1
    check_column_name(path, column, header, " in its first line")
    return header.index(column)


def check_column_name(path: Path, name: int | str, names: Sequence[str], place: str) -> None:
    """Checks that a file has exactly one column of a name.

    Raises:
        DataError: no column has the name, or several have it.
    """
    if name not in names:
        raise DataError(f"{path}: no column {name!r}{place} ({', '.join(names)}); set data.columns")
    if names.count(str(name)) > 1:
        raise DataError(f"{path}: {names.count(str(name))} columns are named {name!r}; rename all but one")


class _JsonObject(dict[str, object]):
    """A JSON object that records its duplicate keys, of which the last one counts."""

    def __init__(self, fields: Sequence[tuple[str, object]]) -> None:
        super().__init__(fields)
        names = Counter(name for name, _ in fields) if len(self) < len(fields) else {}
        self.repeated = {name for name, count in names.items() if count > 1}


def _find_columns(columns: Columns | None, names: Columns, leaves: Sequence[str]) -> Columns:
    """Returns the names of two values: those that are given, or those within an object of both translations."""
    nested = [leaf for leaf in leaves if leaf.startswith(f"{NESTED}.")]
    if columns is not None or all(name in leaves for name in names):
        return columns or names
    within = f"{NESTED}.{names[0]}", f"{NESTED}.{names[1]}"
    if set(within) <= set(nested):
        return within
    return (nested[0], nested[1]) if names == DEFAULT_NAMES and len(nested) == 2 else names


def read_jsonl(
    path: Path,
    columns: Columns | None,
    counts: PairCounts,
    invalid: Invalid,
    names: Columns = DEFAULT_NAMES,
    *,
    labels: bool = False,
) -> Iterator[Pair]:
    """Yields two values of the JSON object in each line.

    A dot in a name selects a nested value (`translation.en`); null is read as an empty text. Without `columns`, the
    first object decides: the values are `names`, or the two within its object `translation`. With `labels`, the second
    value may be an integer, which becomes the name of a label.

    Raises:
        DataError: the file cannot be read, or a line is not an object with two texts of these names.
    """
    steps: list[list[str]] = []
    lines = read_lines(path, counts.source, invalid, overlong="cut", limit=MAX_ROW_CHARACTERS)
    for number, line in enumerate(lines, start=1):
        if len(line) > MAX_ROW_CHARACTERS:
            counts.too_long += 1
            continue
        try:
            values = json.loads(line, object_pairs_hook=_JsonObject)
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"{path}, line {number}: not JSON ({describe_error(error)}); write one object per line"
            ) from error
        if not steps:
            nested = _keys(values.get(NESTED)) if isinstance(values, _JsonObject) else []
            leaves = [*_keys(values), *(f"{NESTED}.{key}" for key in nested)]
            steps = [str(column).split(".") for column in _find_columns(columns, names, leaves)]
        location = f"{path}, line {number}"
        pair = _text(values, steps[0], location), _text(values, steps[1], location, may_be_number=labels)
        if any(map(is_overlong, pair)):
            counts.too_long += 1
        else:
            yield pair


def _keys(values: object) -> list[str]:
    return [*values] if isinstance(values, _JsonObject) else []


def _text(values: object, names: list[str], location: str, *, may_be_number: bool = False) -> str:
    for name in names:
        if not isinstance(values, _JsonObject) or name not in values:
            raise DataError(f"{location}: no {'.'.join(names)!r}; set data.columns to the names of source and target")
        if name in values.repeated:
            raise DataError(f"{location}: {'.'.join(names)!r} occurs twice; keep one of them")
        values = values[name]
    if may_be_number and type(values) is int:
        return str(values)
    if values is not None and not isinstance(values, str):
        raise DataError(f"{location}: {'.'.join(names)!r} is not a text; set data.columns to the names of the texts")
    try:
        (values or "").encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"{location}: {'.'.join(names)!r} holds half a character ({error.reason}); repair it"
        ) from error
    return values or ""


def read_parquet(
    path: Path,
    columns: Columns | None,
    counts: PairCounts,
    names: Columns = DEFAULT_NAMES,
    *,
    labels: bool = False,
) -> Iterator[Pair]:
    """Yields two columns of a Parquet file, one row group at a time.

    A dot in a name selects a nested column; null is read as an empty text. Without `columns`, they are `names`, or the
    two within the column `translation`. With `labels`, the second column may contain integers, which become the names
    of labels.

    Raises:
        DataError: the file cannot be read, or does not have two text columns of these names.
    """
    import pyarrow as pa
    import pyarrow.parquet as parquet

    try:
        with path.open("rb") as file, parquet.ParquetFile(file) as table:
            leaves = [table.schema.column(index).path for index in range(len(table.schema))]
            first, second = (str(name) for name in _find_columns(columns, names, leaves))
            for name in (first, second):
                check_column_name(path, name, leaves, "")
            for batch in table.iter_batches(batch_size=4096, columns=[first, second]):
                sides = _column(batch, first, path), _column(batch, second, path, may_be_numbers=labels)
                for pair in zip(*sides, strict=True):
                    if any(map(is_overlong, pair)):
                        counts.too_long += 1
                    else:
                        yield pair
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise DataError(
            f"{path}: not a Parquet file, damaged or cut short ({describe_error(error)}); write it again"
        ) from error
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else "damaged or cut short"
        raise DataError(f"{path}: {reason}; check the file") from error


def _column(batch: "pa.RecordBatch", name: str, path: Path, *, may_be_numbers: bool = False) -> list[str]:
    import pyarrow as pa

    first, *nested = name.split(".")
    column = batch.column(first)
    for field in nested:
        column = column.field(field)
    if pa.types.is_dictionary(column.type):  # categories, as pandas writes them
        column = column.dictionary_decode()
    if may_be_numbers and pa.types.is_integer(column.type):
        column = column.cast(pa.string())
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise DataError(f"{path}: column {name!r} holds {column.type}, not texts; set data.columns")
    return [text or "" for text in column.to_pylist()]
