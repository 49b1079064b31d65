"""Token ids of a corpus in memory-mapped Arrow files: one with all rows in order, one that lists the rows in use."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from transformer.data.ragged import Ragged, flat_indices, list_array
from transformer.errors import DataError

TOKENS_FILE: Final = "tokens.arrow"
EXAMPLES_FILE: Final = "examples.arrow"
SIDES: Final = ("source", "target")
MAX_UINT16_VOCAB: Final = 1 << 16
"""Largest vocabulary whose ids are stored in two bytes per token."""


class TokenWriter:
    """Writes a stream of rows of source and target tokens to a folder; `finish` selects the rows that are examples."""

    def __init__(self, folder: Path, vocab_size: int) -> None:
        """Opens the token file.

        Args:
            folder: Output folder, created if missing.
            vocab_size: Vocabulary size of the larger side.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.rows = 0
        self._folder = folder
        self._type = pa.uint16() if vocab_size <= MAX_UINT16_VOCAB else pa.int32()
        self._schema = pa.schema([(side, pa.list_(self._type)) for side in SIDES])
        self._writer = pa.ipc.new_file(str(folder / TOKENS_FILE), self._schema)

    def append(self, source: Ragged, target: Ragged) -> None:
        """Appends rows as one record batch."""
        if len(source):
            columns = [list_array(side, self._type) for side in (source, target)]
            self._writer.write_batch(pa.record_batch(columns, schema=self._schema))
            self.rows += len(source)

    def close(self) -> None:
        """Closes the token file."""
        self._writer.close()

    def finish(self, chosen: NDArray[np.bool_]) -> None:
        """Closes the token file and lists the rows marked True as examples, with their lengths, EOS included."""
        self.close()
        write_examples(self._folder, chosen)


def write_examples(folder: Path, chosen: NDArray[np.bool_]) -> None:
    """Writes the row number and the lengths of each example; temporary files bound the memory needed."""
    raw = folder / "rows.raw", folder / "lengths.raw"
    with raw[0].open("wb") as rows, raw[1].open("wb") as lengths:
        first = 0
        for batch in _TokenFile(folder / TOKENS_FILE).batches():
            kept = np.flatnonzero(chosen[first : first + batch.num_rows])
            rows.write((kept + first).astype(np.uint32).tobytes())
            sizes = [np.diff(_offsets(batch.column(side)))[kept] + 1 for side in range(2)]
            lengths.write(np.stack(sizes, axis=1).astype(np.int32).tobytes())
            first += batch.num_rows
    count = raw[0].stat().st_size // 4
    columns = [_memory_map(raw[0], pa.uint32(), count), _memory_map(raw[1], pa.int32(), 2 * count)]
    columns[1] = pa.FixedSizeListArray.from_arrays(columns[1], 2)
    table = pa.record_batch(columns, names=["row", "lengths"])
    with pa.ipc.new_file(str(folder / EXAMPLES_FILE), table.schema) as writer:
        writer.write_batch(table)
    for path in raw:
        path.unlink()


def write_pairs(folder: Path, rows: Iterable[tuple[Ragged, Ragged]], vocab_size: int) -> None:
    """Writes rows, all of which are examples."""
    writer = TokenWriter(folder, vocab_size)
    for source, target in rows:
        writer.append(source, target)
    writer.finish(np.ones(writer.rows, np.bool_))


class TokenStore:
    """Random access to examples, which are read from the files on demand.

    Attributes:
        lengths: Tokens of source and target of each example, EOS included: shape (examples, 2), a view of the file.
    """

    def __init__(self, folder: Path) -> None:
        """Opens the files that `TokenWriter` wrote.

        Raises:
            DataError: a file is missing or not a token file.
        """
        self._tokens = _TokenFile(folder / TOKENS_FILE)
        examples = _open(folder / EXAMPLES_FILE).get_batch(0)
        self._rows = examples.column("row").to_numpy()
        self.lengths: NDArray[np.int32] = examples.column("lengths").flatten().to_numpy().reshape(-1, 2)

    def take(self, examples: NDArray[np.integer], side: int) -> Ragged:
        """Returns the tokens of the given examples on one side (0 source, 1 target), without special tokens."""
        return self._tokens.take(self._rows[examples].astype(np.int64), side)


class _TokenFile:
    """Random access to the rows of a token file, mapped as one array, so that no row is a Python object."""

    def __init__(self, path: Path) -> None:
        reader = _open(path)
        mapped = pa.memory_map(str(path))
        whole = mapped.read_buffer(mapped.size() // 64 * 64)
        self._reader = pa.ipc.open_file(mapped)
        self._values = np.frombuffer(whole, np.int32 if reader.schema.field(0).type.value_type == pa.int32() else "u2")
        self._offsets = np.frombuffer(whole, np.int32)
        sizes = [0]
        origins: list[list[tuple[int, int]]] = [[], []]
        for batch in self.batches():
            sizes.append(batch.num_rows)
            for side in range(2):
                _, offsets, _, values = batch.column(side).buffers()
                width = self._values.itemsize
                start = (values.address - whole.address) // width if values.size else 0
                origins[side].append(((offsets.address - whole.address) // 4, start))
        self._first_row = np.cumsum(sizes)
        self._batch_origins = [np.array(side, np.int64).reshape(-1, 2) for side in origins]

    def batches(self) -> Iterator[pa.RecordBatch]:
        for index in range(self._reader.num_record_batches):
            yield self._reader.get_batch(index)

    def take(self, rows: NDArray[np.int64], side: int) -> Ragged:
        batch = np.searchsorted(self._first_row, rows, side="right") - 1
        offset, value = self._batch_origins[side][batch].T
        index = offset + rows - self._first_row[batch]
        starts = self._offsets[index].astype(np.int64)
        lengths = self._offsets[index + 1] - starts
        return Ragged(self._values[flat_indices(value + starts, lengths)], lengths)


def _open(path: Path) -> pa.ipc.RecordBatchFileReader:
    try:
        return pa.ipc.open_file(pa.memory_map(str(path)))
    except (OSError, pa.ArrowInvalid) as error:
        raise DataError(f"{path}: not a token file or damaged; prepare the data again") from error


def _offsets(column: pa.ListArray) -> NDArray[np.int32]:
    return column.offsets.to_numpy()


def _memory_map(path: Path, dtype: pa.DataType, count: int) -> pa.Array:
    buffer = pa.memory_map(str(path)).read_buffer() if count else pa.py_buffer(b"")
    return pa.Array.from_buffers(dtype, count, [None, buffer])
