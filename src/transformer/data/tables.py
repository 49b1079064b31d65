"""Readers of files with both sides in columns: TSV, JSON lines, Parquet."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformer.data.readers import Pair, PairCounts
from transformer.errors import DataError
from transformer.text.lines import Invalid, read_lines

Columns = tuple[int | str, int | str]


def read_tsv(path: Path, columns: Columns, counts: PairCounts, invalid: Invalid) -> Iterator[Pair]:
    """Yields two columns of a file of tab-separated lines.

    Column names are looked up in the first line, which is then a header; column numbers count from 1. Quotation marks
    are ordinary text, as is usual in parallel corpora.

    Raises:
        DataError: the file cannot be read, a name is not in the first line, or a line has too few columns.
    """
    lines = read_lines(path, counts.source, invalid)
    named = any(isinstance(column, str) for column in columns)
    header = next(lines, "").split("\t") if named else []
    indices = [_column_index(column, header, path) for column in columns]
    for number, line in enumerate(lines, start=2 if named else 1):
        fields = line.split("\t")
        if len(fields) <= max(indices):
            raise DataError(
                f"{path}, line {number}: {len(fields)} columns, but data.columns={list(columns)} needs "
                f"{max(indices) + 1}; repair the line or set data.columns"
            )
        yield fields[indices[0]], fields[indices[1]]


def _column_index(column: int | str, header: list[str], path: Path) -> int:
    if isinstance(column, int):
        return column - 1
    if column not in header:
        raise DataError(f"{path}: no column {column!r} in its first line ({', '.join(header)}); set data.columns")
    return header.index(column)


def read_jsonl(
    path: Path, columns: Columns, counts: PairCounts, invalid: Invalid, *, labels: bool = False
) -> Iterator[Pair]:
    """Yields two values of the JSON object in each line.

    A dot in a name selects a nested value (`translation.en`); null is read as an empty text. With `labels`, the second
    value may be an integer, which becomes the name of a label.

    Raises:
        DataError: the file cannot be read, or a line is not an object with two texts of these names.
    """
    steps = [str(column).split(".") for column in columns]
    for number, line in enumerate(read_lines(path, counts.source, invalid), start=1):
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}, line {number}: not JSON ({error}); write one object per line") from error
        location = f"{path}, line {number}"
        yield _text(values, steps[0], location), _text(values, steps[1], location, may_be_number=labels)


def _text(values: Any, names: list[str], location: str, *, may_be_number: bool = False) -> str:
    for name in names:
        if not isinstance(values, dict) or name not in values:
            raise DataError(f"{location}: no {'.'.join(names)!r}; set data.columns to the names of source and target")
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


def read_parquet(path: Path, columns: Columns, *, labels: bool = False) -> Iterator[Pair]:
    """Yields two columns of a Parquet file, one row group at a time.

    A dot in a name selects a nested column; null is read as an empty text. With `labels`, the second column may contain
    integers, which become the names of labels.

    Raises:
        DataError: the file cannot be read, or does not have two text columns of these names.
    """
    import pyarrow as pa
    import pyarrow.parquet as parquet

    try:
        with path.open("rb") as file, parquet.ParquetFile(file) as table:
            for name in columns:
                if name not in (existing := _leaf_columns(table)):
                    raise DataError(f"{path}: no column {name!r} ({', '.join(existing)}); set data.columns")
            for batch in table.iter_batches(batch_size=4096, columns=[str(name) for name in columns]):
                first, second = (str(name) for name in columns)
                sides = _column(batch, first, path), _column(batch, second, path, may_be_numbers=labels)
                yield from zip(*sides, strict=True)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not a Parquet file, damaged or cut short ({error}); write it again") from error
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or f'damaged or cut short ({error})'}; check the file") from error


def _leaf_columns(table: Any) -> list[str]:
    return [table.schema.column(index).path for index in range(len(table.schema))]


def _column(batch: Any, name: str, path: Path, *, may_be_numbers: bool = False) -> list[str]:
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
