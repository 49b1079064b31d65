"""Sentence pairs that are segmented anew in each epoch, by BPE dropout."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from transformer.data.batch import PairBatch
from transformer.data.dataset import make_batch
from transformer.data.progress import Progress, silent
from transformer.data.ragged import Ragged
from transformer.data.token_store import TokenStore
from transformer.interfaces import ExampleGroup
from transformer.tokenizers.bpe_dropout import BpeDropout, word_keys
from transformer.tokenizers.byte_pair import BytePairTokenizer
from transformer.tokenizers.special_tokens import DEFAULT_SPECIAL_TOKENS

CHUNK: Final = 1 << 13
"""Pairs segmented at a time where lengths are counted, so that temporary memory does not grow with the corpus."""


def encode_words(tokenizer: BytePairTokenizer, texts: Sequence[str]) -> Ragged:
    """Encodes texts; the size of the vocabulary is added to the id of each token that begins a word."""
    ids, lengths, starts = tokenizer.encode_words(texts)
    return Ragged(ids + np.int32(tokenizer.vocab_size) * starts, lengths)


def without_word_starts(rows: Ragged, vocab_size: int) -> Ragged:
    """Returns the tokens of `encode_words` as `encode_flat` returns them."""
    return Ragged(rows.values % vocab_size, rows.lengths)


@dataclass(frozen=True)
class SegmentedPairs:
    """Dataset of the pairs of a token store, whose words are segmented anew in each epoch.

    The seed, the epoch and the number of a pair determine its segmentation, and so in which batch it is. A pair that
    would become longer than the model allows keeps its usual segmentation.

    Attributes:
        store: Store of the tokens that `encode_words` made.
        dropout: Segmentation of source and target.
        vocab_sizes: Sizes of both vocabularies.
        max_lengths: Maximum source and target length, EOS included.
        seed: Random seed of the run.
        mix: Groups of consecutive examples and their weights; if empty, every example is seen once an epoch.
        progress: Callback for the progress of counting lengths.
        epoch: Number of the epoch, from 0.
    """

    store: TokenStore
    dropout: tuple[BpeDropout, BpeDropout]
    vocab_sizes: tuple[int, int]
    max_lengths: tuple[int, int]
    seed: int
    mix: tuple[ExampleGroup, ...] = ()
    progress: Progress = silent
    epoch: int = 0

    def in_epoch(self, epoch: int) -> "SegmentedPairs":
        """Returns the dataset as it is in an epoch."""
        return self if epoch == self.epoch else replace(self, epoch=epoch, progress=silent)

    @property
    def lengths(self) -> NDArray[np.int32]:
        """Tokens of source and target of each example in this epoch, EOS included: shape (examples, 2)."""
        return self._lengths

    @cached_property
    def _lengths(self) -> NDArray[np.int32]:
        count = len(self.store.lengths)
        lengths = np.empty((count, 2), np.int32)
        for first in range(0, count, CHUNK):
            self.progress("segmenting pairs", first, count)
            ids = np.arange(first, min(first + CHUNK, count))
            for side in range(2):
                lengths[ids, side] = self._segment(ids, side).lengths + 1
        return lengths

    def fetch(self, ids: NDArray[np.integer]) -> PairBatch:
        """Returns the padded batch of the given pairs."""
        return make_batch(self._segment(ids, 0), self._segment(ids, 1), DEFAULT_SPECIAL_TOKENS, DEFAULT_SPECIAL_TOKENS)

    def _segment(self, ids: NDArray[np.integer], side: int) -> Ragged:
        """Returns the tokens of pairs on one side (0 source, 1 target) in this epoch, without special tokens."""
        stored, size = self.store.take(ids, side), self.vocab_sizes[side]
        starts = np.flatnonzero(stored.values >= size)
        rows = np.repeat(np.arange(len(stored)), stored.lengths)[starts]
        keys = word_keys((self.seed, self.epoch, side), ids[rows].astype(np.int64), np.arange(len(rows)) - _first(rows))
        usual = without_word_starts(stored, size)
        tokens, counts = self.dropout[side].segment(
            usual.values.astype(np.int64), np.diff(starts, append=len(stored.values)), keys
        )
        segmented = Ragged(tokens, np.bincount(rows, counts, len(stored)).astype(np.int64))
        is_too_long = segmented.lengths >= self.max_lengths[side]
        if not is_too_long.any():
            return segmented
        return Ragged.join(segmented, usual).take(np.arange(len(stored)) + len(stored) * is_too_long)


def _first(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the index of the first word of each word's row; rows ascend."""
    return np.searchsorted(rows, rows)
