"""Sentence pairs as a source of batches."""

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from transformer.data.store import TokenStore
from transformer.protocols import PairBatch
from transformer.text.control import BOS_ID, EOS_ID, PAD_ID


class PairSource:
    """Serves the pairs of a token store, whose rows hold text tokens without control ids."""

    def __init__(self, store: TokenStore) -> None:
        self._store = store
        self.lengths: NDArray[np.int32] = store.lengths + np.int32(1)  # EOS

    def fetch(self, ids: NDArray[np.int64]) -> PairBatch:
        """The padded batch of the given pairs."""
        sources = [self._store.source(int(pair)) for pair in ids]
        targets = [self._store.target(int(pair)) for pair in ids]
        return pair_batch(sources, targets)


def pair_batch(sources: list[NDArray[np.int32]], targets: list[NDArray[np.int32]]) -> PairBatch:
    """Adds control ids and padding to sentence pairs."""
    return PairBatch(
        src=pad(sources, after=EOS_ID),
        tgt=pad(targets, before=BOS_ID),
        labels=pad(targets, after=EOS_ID),
        scored_tokens=sum(len(target) + 1 for target in targets),
    )


def pad(rows: list[NDArray[np.int32]], *, before: int | None = None, after: int | None = None) -> Int[Tensor, "B T"]:
    """One tensor of all rows, with an id before or after each, padded to the longest."""
    shift = int(before is not None)
    extra = shift + int(after is not None)
    padded = np.full((len(rows), max(map(len, rows)) + extra), PAD_ID, dtype=np.int64)
    for row, tokens in zip(padded, rows, strict=True):
        row[shift : shift + len(tokens)] = tokens
        if before is not None:
            row[0] = before
        if after is not None:
            row[shift + len(tokens)] = after
    return torch.from_numpy(padded)
