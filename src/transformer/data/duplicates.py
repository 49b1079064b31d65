"""Equal pairs of a corpus of any size, found by digests that wait in files."""

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

N_BUCKETS: Final = 64
ENTRY: Final = np.dtype([("high", np.uint64), ("low", np.uint64), ("row", np.uint32)])


def digests(sources: Sequence[str], targets: Sequence[str]) -> NDArray[np.uint64]:
    """128 bits a pair: shape (pairs, 2). Neither side holds a line feed, so no two pairs are written alike.

    Two different pairs share a digest with a probability of about n^2 / 10^39: 10^-19 for ten thousand million pairs.
    """
    pairs = (f"{source}\n{target}".encode() for source, target in zip(sources, targets, strict=True))
    both = [hashlib.blake2b(pair, digest_size=16).digest() for pair in pairs]
    return np.frombuffer(b"".join(both), np.uint64).reshape(-1, 2)


class DuplicateFinder:
    """Sorts digests into files by their first bits, so that equal ones meet and one file at a time is in memory."""

    def __init__(self, folder: Path) -> None:
        """Starts the files.

        Args:
            folder: made; `close` removes it.
        """
        folder.mkdir(parents=True)
        self._folder = folder
        self._rows = 0
        self._buckets: list[BinaryIO] = [(folder / str(bucket)).open("wb") for bucket in range(N_BUCKETS)]

    def add(self, found: NDArray[np.uint64]) -> None:
        """Adds the digests of the next rows."""
        entries = np.empty(len(found), ENTRY)
        entries["high"], entries["low"] = found.T
        entries["row"] = np.arange(self._rows, self._rows + len(found))
        self._rows += len(found)
        bucket = (entries["high"] % N_BUCKETS).astype(np.uint8)
        order = np.argsort(bucket, kind="stable")
        ends = np.cumsum(np.bincount(bucket, minlength=N_BUCKETS))
        for file, part in zip(self._buckets, np.split(entries[order], ends[:-1]), strict=True):
            file.write(part.tobytes())

    def repeated(self) -> NDArray[np.bool_]:
        """True for each row that repeats an earlier one. No more can be added."""
        repeated = np.zeros(self._rows, np.bool_)
        for file in self._buckets:
            file.close()
            entries = np.fromfile(file.name, ENTRY)
            order = np.lexsort((entries["low"], entries["high"]))  # stable: the first of equal rows stays first
            entries = entries[order]
            same = (entries["high"][1:] == entries["high"][:-1]) & (entries["low"][1:] == entries["low"][:-1])
            repeated[entries["row"][1:][same]] = True
        return repeated

    def close(self) -> None:
        """Removes the files."""
        for file in self._buckets:
            file.close()
        shutil.rmtree(self._folder)
