"""BPE dropout: another segmentation of the same words at each reading, by leaving out merges at random.

Source: Provilkov et al. 2020, Sec. 3, Algorithm 1. The tokenizers library has the same dropout, but without a seed.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from transformer.tokenizers.byte_pair import BytePairTokenizer

Ids = NDArray[np.int64]
Keys = NDArray[np.uint64]

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_FACTORS: Final = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_SHIFTS: Final = np.uint64(30), np.uint64(27), np.uint64(31)
_UNUSED_BITS: Final = np.uint64(11)
"""Bits of a random number that a float64 between 0 and 1 cannot hold."""
_NO_MERGE: Final = np.iinfo(np.int64).max


class BpeDropout:
    """Segments words with the merges of a byte-pair tokenizer, each of which is left out with a probability.

    Random numbers are computed from the key of a word, the number of the step and the place in the word, so that a
    segmentation depends on nothing but its key.

    Attributes:
        rate: Probability with which a possible merge is left out at each step.
    """

    def __init__(self, tokenizer: BytePairTokenizer, rate: float) -> None:
        """Reads the merges of a tokenizer.

        Args:
            tokenizer: Trained tokenizer.
            rate: Probability with which a possible merge is left out at each step.
        """
        self.rate = rate
        self._vocab_size = tokenizer.vocab_size
        merges = {(left, right): (rank, merged) for rank, (left, right, merged) in enumerate(tokenizer.merges())}
        pairs = np.array([left * self._vocab_size + right for left, right in merges], np.int64)
        order = np.argsort(pairs)
        self._pairs = np.append(pairs[order], _NO_MERGE)
        self._rank, self._merged = np.array([*merges.values(), (_NO_MERGE, 0)], np.int64)[[*order, -1]].T
        spelled = tokenizer.spell()
        self._spelling = np.array([byte for token in spelled for byte in token], np.int64)
        self._n_bytes = np.array([len(token) for token in spelled], np.int64)
        self._first_byte = np.cumsum(self._n_bytes) - self._n_bytes

    def segment(self, tokens: Ids, token_counts: Ids, keys: Keys) -> tuple[Ids, Ids]:
        """Segments words anew.

        Args:
            tokens: Tokens of all words in any segmentation, one word after another.
            token_counts: Number of tokens of each word, at least one.
            keys: Key of each word, which determines its random numbers.

        Returns:
            The tokens of all words, and the number of tokens of each.
        """
        n_bytes = self._n_bytes[tokens]
        before = np.cumsum(n_bytes) - n_bytes
        spelled = self._spelling[np.repeat(self._first_byte[tokens] - before, n_bytes) + np.arange(n_bytes.sum())]
        words = np.repeat(np.arange(len(keys)), token_counts)
        lengths = np.bincount(words, n_bytes, len(keys)).astype(np.int64)
        return self._merge(spelled, lengths, keys)

    def _merge(self, spelled: Ids, lengths: Ids, keys: Keys) -> tuple[Ids, Ids]:
        """Applies merges to spelled words until none is left, or all that are left are dropped in one step.

        All words take a step together. Words that are finished are set aside.
        """
        final_tokens, final_counts = np.empty_like(spelled), lengths.copy()
        first = np.cumsum(lengths) - lengths  # of each word in `final_tokens`
        words, tokens, counts = np.arange(len(lengths)), spelled, lengths
        merges = self._find(tokens, _is_last(counts))
        step = 0
        while len(words):
            starts = np.cumsum(counts) - counts
            places = np.arange(len(tokens)) - np.repeat(starts, counts)
            numbers = _mix(np.repeat(_mix(keys[words] + np.uint64(step)), counts) + places.astype(np.uint64))
            is_dropped = (numbers >> _UNUSED_BITS) * 2.0**-53 < self.rate
            ranks = np.where(is_dropped, _NO_MERGE, self._rank[merges])
            best = np.minimum.reduceat(ranks, starts)
            is_active = best < _NO_MERGE
            is_open = np.repeat(is_active, counts)
            finished = words[~is_active]
            final_counts[finished] = counts[~is_active]
            final_tokens[np.repeat(first[finished], counts[~is_active]) + places[~is_open]] = tokens[~is_open]

            chosen = np.flatnonzero(is_open & (ranks == np.repeat(best, counts)))
            chosen = chosen[np.diff(np.repeat(words, counts)[chosen], prepend=-1) > 0]  # the leftmost of equal rank
            tokens = tokens.copy()
            tokens[chosen] = self._merged[merges[chosen]]
            is_kept = is_open
            is_kept[chosen + 1] = False
            new_place = np.cumsum(is_kept) - 1
            words, counts = words[is_active], counts[is_active] - 1
            tokens, merges = tokens[is_kept], merges[is_kept]
            self._find_beside(tokens, merges, new_place[chosen], _is_last(counts))
            step += 1
        kept = np.repeat(first - (np.cumsum(final_counts) - final_counts), final_counts)
        return final_tokens[kept + np.arange(len(kept))], final_counts

    def _find_beside(self, tokens: Ids, merges: Ids, places: Ids, is_last: NDArray[np.bool_]) -> None:
        """Looks up the merges of the tokens at the given places with their neighbours on both sides."""
        before = places[places > 0] - 1
        for left in (places, before):
            right = np.minimum(left + 1, len(tokens) - 1)
            merges[left] = self._look_up(tokens[left], tokens[right], is_last[left])

    def _find(self, tokens: Ids, is_last: NDArray[np.bool_]) -> Ids:
        return self._look_up(tokens, np.roll(tokens, -1), is_last)

    def _look_up(self, left: Ids, right: Ids, is_last: NDArray[np.bool_]) -> Ids:
        """Returns the index of the merge of each pair of tokens; that of no merge for the last token of a word."""
        pairs = left * self._vocab_size + right
        index = np.searchsorted(self._pairs, pairs)
        return np.where((self._pairs[index] == pairs) & ~is_last, index, len(self._pairs) - 1)


def word_keys(numbers: Sequence[int], *indices: Ids) -> Keys:
    """Returns keys of words.

    Args:
        numbers: Numbers that all words share, such as the seed of the run.
        indices: Numbers of each word, such as the index of its line and its place there.
    """
    key = np.zeros(1, np.uint64)
    for number in numbers:
        key = _mix(key + np.uint64(number % 2**64))
    for index in indices:
        key = _mix(key + index.astype(np.uint64))
    return key


def _mix(state: Keys) -> Keys:
    """Returns random bits that a number determines: the output of SplitMix64 (Steele et al. 2014)."""
    state = state + _GOLDEN
    for shift, factor in zip(_SHIFTS, _FACTORS, strict=False):
        state = (state ^ (state >> shift)) * factor
    return state ^ (state >> _SHIFTS[-1])


def _is_last(counts: Ids) -> NDArray[np.bool_]:
    """Returns True for the last token of each word."""
    is_last = np.zeros(int(counts.sum()), np.bool_)
    is_last[np.cumsum(counts) - 1] = True
    return is_last
