"""Token ids of a corpus in one memory-mapped Arrow file."""

from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from transformer.errors import DataError

CHUNK_PAIRS: Final = 65_536
SCHEMA: Final = pa.schema([("source", pa.list_(pa.int32())), ("target", pa.list_(pa.int32()))])


def write_tokens(path: Path, pairs: Iterable[tuple[list[int], list[int]]]) -> None:
    """Writes pairs of token ids in a stream, `CHUNK_PAIRS` to a record batch."""
    stream = iter(pairs)
    temporary = path.with_name(f".writing-{path.name}")
    with pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as writer:
        while chunk := list(islice(stream, CHUNK_PAIRS)):
            columns = [pa.array(side, type=pa.list_(pa.int32())) for side in zip(*chunk, strict=True)]
            writer.write_batch(pa.record_batch(columns, schema=SCHEMA))
    temporary.replace(path)


class TokenStore:
    """Pairs of token ids by number, read from the file on demand."""

    def __init__(self, path: Path) -> None:
        """Opens a file that `write_tokens` wrote.

        Raises:
            DataError: the file is missing or something else.
        """
        try:
            reader = pa.ipc.open_file(pa.memory_map(str(path)))
        except (OSError, pa.ArrowInvalid) as error:
            raise DataError(f"{path}: not a token file ({error}); prepare the data again") from error
        batches = [reader.get_batch(index) for index in range(reader.num_record_batches)]
        self._sides = [[_Ragged(batch.column(side)) for batch in batches] for side in range(2)]

    @property
    def lengths(self) -> NDArray[np.int32]:
        """Tokens of source and target of each pair: shape (pairs, 2)."""
        empty = np.zeros(0, np.int32)
        sides = [np.concatenate([empty, *(chunk.lengths for chunk in side)]) for side in self._sides]
        return np.stack(sides, axis=1)

    def source(self, pair: int) -> NDArray[np.int32]:
        """The source tokens of a pair, a view of the file."""
        return self._sides[0][pair // CHUNK_PAIRS][pair % CHUNK_PAIRS]

    def target(self, pair: int) -> NDArray[np.int32]:
        """The target tokens of a pair, a view of the file."""
        return self._sides[1][pair // CHUNK_PAIRS][pair % CHUNK_PAIRS]


class _Ragged:
    """Rows of different length, one after another in one array."""

    def __init__(self, column: pa.ListArray) -> None:
        self._offsets = column.offsets.to_numpy()
        self._values = column.values.to_numpy()

    @property
    def lengths(self) -> NDArray[np.int32]:
        return np.diff(self._offsets).astype(np.int32)

    def __getitem__(self, row: int) -> NDArray[np.int32]:
        return self._values[self._offsets[row] : self._offsets[row + 1]]
