"""Sentence pairs as a source of batches."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from transformer.data.batch import PairBatch
from transformer.data.ragged import Ragged, positions
from transformer.data.token_store import TokenStore
from transformer.interfaces import DatasetMix
from transformer.tokenizers.special_tokens import DEFAULT_SPECIAL_TOKENS, PAD_ID, SpecialTokenIds


class PairDataset:
    """Serves the pairs of a token store, whose rows hold text tokens without control ids."""

    def __init__(
        self,
        store: TokenStore,
        mix: tuple[DatasetMix, ...] = (),
        special_tokens: tuple[SpecialTokenIds, SpecialTokenIds] = (DEFAULT_SPECIAL_TOKENS, DEFAULT_SPECIAL_TOKENS),
    ) -> None:
        """A source of the store's examples.

        Args:
            store: of the tokens.
            mix: the files that the examples come from, in order; none sees every example once an epoch.
            special_tokens: Ids of the special tokens, of source and of target.
        """
        self._store = store
        self._control = special_tokens
        self.lengths: NDArray[np.int32] = store.lengths
        self.mix = mix

    def fetch(self, ids: NDArray[np.integer[Any]]) -> PairBatch:
        """The padded batch of the given pairs."""
        return _batch(self._store.take(ids, 0), self._store.take(ids, 1), *self._control)


def pair_batch(
    sources: Sequence[NDArray[np.int32]],
    targets: Sequence[NDArray[np.int32]],
    special_tokens: tuple[SpecialTokenIds, SpecialTokenIds] = (DEFAULT_SPECIAL_TOKENS, DEFAULT_SPECIAL_TOKENS),
) -> PairBatch:
    """Adds control ids, those of source and of target, and padding to sentence pairs."""
    return _batch(Ragged.from_rows(sources), Ragged.from_rows(targets), *special_tokens)


def _batch(sources: Ragged, targets: Ragged, of_source: SpecialTokenIds, of_target: SpecialTokenIds) -> PairBatch:
    return PairBatch(
        src=pad(sources, after=of_source.eos, fill=of_source.pad or 0),
        tgt=pad(targets, before=of_target.bos, fill=of_target.pad or 0),
        labels=pad(targets, after=of_target.eos, fill=of_target.pad or 0),
        scored_tokens=len(targets.values) + len(targets),
    )


def pad(rows: Ragged, *, before: int | None = None, after: int | None = None, fill: int = PAD_ID) -> Int[Tensor, "B T"]:
    """One tensor of all rows, with an id before or after each, filled up to the longest."""
    shift = int(before is not None)
    width = int(rows.lengths.max()) + shift + int(after is not None)
    padded = np.full((len(rows), width), fill, dtype=np.int64)
    starts = np.arange(len(rows)) * width + shift
    flat = padded.reshape(-1)
    flat[positions(starts, rows.lengths)] = rows.values
    if before is not None:
        padded[:, 0] = before
    if after is not None:
        flat[starts + rows.lengths] = after
    return torch.from_numpy(padded)
