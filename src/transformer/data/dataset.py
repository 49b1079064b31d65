"""The dataset of sentence pairs, and the padding of batches."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from transformer.data.batch import PairBatch
from transformer.data.ragged import Ragged, flat_indices
from transformer.data.token_store import TokenStore
from transformer.interfaces import ExampleGroup
from transformer.tokenizers.special_tokens import DEFAULT_SPECIAL_TOKENS, PAD_ID, SpecialTokenIds


class PairDataset:
    """A dataset of the pairs of a token store, whose rows contain no special tokens."""

    def __init__(
        self,
        store: TokenStore,
        mix: tuple[ExampleGroup, ...] = (),
        special_tokens: tuple[SpecialTokenIds, SpecialTokenIds] = (DEFAULT_SPECIAL_TOKENS, DEFAULT_SPECIAL_TOKENS),
    ) -> None:
        """Creates a dataset of all examples of a store.

        Args:
            store: Store of the tokens.
            mix: Groups of consecutive examples and their weights; if empty, every example is seen once an epoch.
            special_tokens: Ids of the special tokens of source and target.
        """
        self._store = store
        self._special_tokens = special_tokens
        self.lengths: NDArray[np.int32] = store.lengths
        self.mix = mix

    def fetch(self, ids: NDArray[np.integer]) -> PairBatch:
        """Returns the padded batch of the given pairs."""
        return make_batch(self._store.take(ids, 0), self._store.take(ids, 1), *self._special_tokens)


class PairSubset:
    """Some examples of a dataset as a dataset, in which each example is seen once."""

    mix: tuple[ExampleGroup, ...] = ()

    def __init__(self, dataset: PairDataset, examples: NDArray[np.int64]) -> None:
        self._dataset, self._examples = dataset, examples
        self.lengths: NDArray[np.int32] = dataset.lengths[examples]

    def fetch(self, ids: NDArray[np.integer]) -> PairBatch:
        """Returns the padded batch of the given pairs of the subset."""
        return self._dataset.fetch(self._examples[ids])


def pair_batch(
    sources: Sequence[NDArray[np.int32]],
    targets: Sequence[NDArray[np.int32]],
    special_tokens: tuple[SpecialTokenIds, SpecialTokenIds] = (DEFAULT_SPECIAL_TOKENS, DEFAULT_SPECIAL_TOKENS),
) -> PairBatch:
    """Creates a batch from sentence pairs: adds the special tokens of source and target, and padding."""
    return make_batch(Ragged.from_rows(sources), Ragged.from_rows(targets), *special_tokens)


def make_batch(sources: Ragged, targets: Ragged, source_ids: SpecialTokenIds, target_ids: SpecialTokenIds) -> PairBatch:
    """Creates a batch from sentence pairs without a Python object per row, see `pair_batch`."""
    return PairBatch(
        src=pad(sources, after=source_ids.eos, fill=source_ids.padding),
        tgt=pad(targets, before=target_ids.bos, fill=target_ids.padding),
        labels=pad(targets, after=target_ids.eos, fill=target_ids.padding),
        scored_tokens=len(targets.values) + len(targets),
    )


def pad(rows: Ragged, *, before: int | None = None, after: int | None = None, fill: int = PAD_ID) -> Int[Tensor, "B T"]:
    """Returns all rows in one tensor, padded to the longest, with an optional id before and after each row."""
    shift = int(before is not None)
    width = int(rows.lengths.max()) + shift + int(after is not None)
    padded = np.full((len(rows), width), fill, dtype=np.int64)
    starts = np.arange(len(rows)) * width + shift
    flat = padded.reshape(-1)
    flat[flat_indices(starts, rows.lengths)] = rows.values
    if before is not None:
        padded[:, 0] = before
    if after is not None:
        flat[starts + rows.lengths] = after
    return torch.from_numpy(padded)
