"""Deduplication: finds the duplicate pairs of a corpus of any size, by digests stored in files."""

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

N_BUCKETS: Final = 64
ENTRY_DTYPE: Final = np.dtype([("high", np.uint64), ("low", np.uint64), ("row", np.uint32)])


def pair_digests(sources: Sequence[str], targets: Sequence[str]) -> NDArray[np.uint64]:
    """Returns a digest of 128 bits per pair: shape (pairs, 2).

    Neither side contains a line feed, so different pairs never have the same bytes. The probability that two different
    pairs among n share a digest is about n^2 / 10^39: 10^-19 for ten billion pairs.
    """
    pairs = (f"{source}\n{target}".encode() for source, target in zip(sources, targets, strict=True))
    both = [hashlib.blake2b(pair, digest_size=16).digest() for pair in pairs]
    return np.frombuffer(b"".join(both), np.uint64).reshape(-1, 2)


class DuplicateFinder:
    """Distributes digests over bucket files: equal digests share a file, and only one file at a time is loaded."""

    def __init__(self, folder: Path) -> None:
        """Opens the bucket files.

        Args:
            folder: Folder that is created here and removed by `close`.
        """
        folder.mkdir(parents=True)
        self._folder = folder
        self._rows = 0
        self._buckets: list[BinaryIO] = [(folder / str(bucket)).open("wb") for bucket in range(N_BUCKETS)]

    def add(self, digests: NDArray[np.uint64]) -> None:
        """Adds the digests of the next rows."""
        entries = np.empty(len(digests), ENTRY_DTYPE)
        entries["high"], entries["low"] = digests.T
        entries["row"] = np.arange(self._rows, self._rows + len(digests))
        self._rows += len(digests)
        bucket = (entries["high"] % N_BUCKETS).astype(np.uint8)
        order = np.argsort(bucket, kind="stable")
        ends = np.cumsum(np.bincount(bucket, minlength=N_BUCKETS))
        for file, part in zip(self._buckets, np.split(entries[order], ends[:-1]), strict=True):
            file.write(part.tobytes())

    def repeated(self) -> NDArray[np.bool_]:
        """Returns True for each row that repeats an earlier one. No digests can be added afterwards."""
        repeated = np.zeros(self._rows, np.bool_)
        for file in self._buckets:
            file.close()
            entries = np.fromfile(file.name, ENTRY_DTYPE)
            order = np.lexsort((entries["low"], entries["high"]))  # stable: the earliest of equal rows stays first
            entries = entries[order]
            same = (entries["high"][1:] == entries["high"][:-1]) & (entries["low"][1:] == entries["low"][:-1])
            repeated[entries["row"][1:][same]] = True
        return repeated

    def close(self) -> None:
        """Removes the files."""
        for file in self._buckets:
            file.close()
        shutil.rmtree(self._folder)
