"""Ragged (jagged) arrays: rows of different length in one flat array, without a Python list per row."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


@dataclass(frozen=True)
class Ragged:
    """Rows of different length, stored one after another.

    Attributes:
        values: Values of all rows.
        lengths: Number of values in each row.
    """

    values: NDArray[np.integer]
    lengths: NDArray[np.int64]

    @classmethod
    def from_rows(cls, rows: Sequence[NDArray[np.integer]]) -> "Ragged":
        """Concatenates rows."""
        return cls(np.concatenate([np.zeros(0, np.int32), *rows]), np.array([len(row) for row in rows], np.int64))

    @classmethod
    def join(cls, *parts: "Ragged") -> "Ragged":
        """Concatenates the rows of several arrays."""
        return cls(np.concatenate([part.values for part in parts]), np.concatenate([part.lengths for part in parts]))

    def select(self, chosen: NDArray[np.bool_]) -> "Ragged":
        """Returns the rows marked True."""
        return Ragged(self.values[np.repeat(chosen, self.lengths)], self.lengths[chosen])

    def take(self, rows: NDArray[np.integer]) -> "Ragged":
        """Returns the rows with the given indices, in the given order."""
        starts, lengths = (np.cumsum(self.lengths) - self.lengths)[rows], self.lengths[rows]
        return Ragged(self.values[flat_indices(starts, lengths)], lengths)

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.lengths)


def flat_indices(starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the indices of all values of all rows in an array in which row i begins at `starts[i]`."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(lengths.sum())


def list_array(rows: Ragged, dtype: pa.DataType) -> pa.ListArray:
    """Returns rows as an Arrow column."""
    offsets = np.concatenate([[0], np.cumsum(rows.lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(
        pa.array(offsets), pa.array(rows.values.astype(dtype.to_pandas_dtype(), copy=False))
    )
