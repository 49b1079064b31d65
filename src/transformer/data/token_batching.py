"""Batching by tokens: the batches of an epoch as a pure function of lengths, weights, token budget, seed and epoch."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from transformer.interfaces import ExampleGroup

CHUNK: Final = 1 << 18
"""Examples processed at a time, so that temporary memory does not grow with the corpus."""


def batch_by_tokens(
    lengths: NDArray[np.int32], batch_tokens: int, seed: int, epoch: int, mix: Sequence[ExampleGroup] = ()
) -> list[NDArray[np.uint32]]:
    """Batches an epoch by tokens: examples of similar length share a batch (bucketing), in random order.

    Every example of the epoch is in exactly one batch. Examples are shuffled, then sorted by their longest side; ties
    are ordered by the lengths of the other sides, then as shuffled. The sorted examples are cut so that longest side x
    number of examples stays within the budget, and the batches are shuffled. An example longer than the budget forms a
    batch of one. If every example is seen once, all epochs have the same number of batches. The function needs at most
    16 bytes per example while it runs, and 4 bytes per example for the result.

    Args:
        lengths: Tokens of each example, one column per side.
        batch_tokens: Maximum number of tokens in a batch, padding included.
        seed: Random seed of the run.
        epoch: Epoch number, counted from 0.
        mix: Groups of examples and their weights, see `epoch_examples`.

    Returns:
        The example ids of each batch.
    """
    generator = np.random.default_rng([seed, epoch])
    order = epoch_examples(len(lengths), mix, seed, epoch)
    if not len(order):
        return []
    generator.shuffle(order)
    keys, shift = _sort_keys(lengths, order)
    keys.sort()
    batches = np.split(_examples_in(keys, order), _batch_starts(keys, shift, batch_tokens))
    return [batches[index] for index in generator.permutation(len(batches))]


def epoch_examples(count: int, mix: Sequence[ExampleGroup], seed: int, epoch: int) -> NDArray[np.uint32]:
    """Returns the example ids of an epoch, each repeated according to the weight of its group.

    The fractional part of a weight selects the examples of its group in turn: with 0.5, each half is seen every
    other epoch. Over many epochs, all examples of a group are seen equally often.

    Args:
        count: Number of examples.
        mix: Groups of consecutive examples and their weights; if empty, every example is seen once.
        seed: Random seed of the run.
        epoch: Epoch number, counted from 0.
    """
    if all(part.weight == 1 for part in mix):
        return np.arange(count, dtype=np.uint32)
    chosen: list[NDArray[np.uint32]] = []
    first = 0
    for index, part in enumerate(mix):
        examples = np.arange(first, first + part.examples, dtype=np.uint32)
        copies, fraction = divmod(Fraction(str(part.weight)), 1)
        chosen.extend([examples] * copies)
        if fraction:
            np.random.default_rng([seed, index]).shuffle(examples)
            start, end = (int(fraction * turn * part.examples) for turn in (epoch, epoch + 1))
            chosen.append(np.take(examples, np.arange(start, end), mode="wrap"))
        first += part.examples
    return np.concatenate(chosen)


def update_shares(lengths: NDArray[np.int32], mix: Sequence[ExampleGroup]) -> list[float]:
    """Returns the share of each group in the tokens of an epoch, padding to the longest side included.

    Batches have about as many tokens each, so it is about the group's share of the updates.

    Args:
        lengths: Tokens of each example, one column per side.
        mix: Groups of consecutive examples and their weights.
    """
    ends = np.cumsum([part.examples for part in mix])[:-1]
    longest = np.split(lengths.max(axis=1), ends)
    tokens = [part.weight * int(group.sum(dtype=np.int64)) for part, group in zip(mix, longest, strict=True)]
    return [count / max(1, sum(tokens)) for count in tokens]


def _sort_keys(lengths: NDArray[np.int32], order: NDArray[np.uint32]) -> tuple[NDArray[np.uint64], int]:
    """Returns one sort key per example: longest side, other sides, position in `order`, from high bits to low.

    The second value is the number of bits below the longest side. If not all sides fit into 64 bits, the low bits of
    the first sides are omitted: examples that differ only there keep their order in `order`.
    """
    position_bits = _position_bits(order)
    width = max(1, int(lengths.max()).bit_length())
    free = 64 - width - position_bits
    used = [min(width, max(0, free - width * before)) for before in range(lengths.shape[1])]
    keys = np.empty(len(order), np.uint64)
    for start in range(0, len(order), CHUNK):
        columns = np.ascontiguousarray(lengths[order[start : start + CHUNK]].T, np.uint64)
        key = columns.max(axis=0)
        for column, bits in zip(reversed(columns), used, strict=True):
            key = key << np.uint64(bits) | column >> np.uint64(width - bits)
        position = np.arange(start, start + len(key), dtype=np.uint64)
        keys[start : start + CHUNK] = key << np.uint64(position_bits) | position
    return keys, sum(used) + position_bits


def _position_bits(order: NDArray[np.uint32]) -> int:
    return max(1, (len(order) - 1).bit_length())


def _batch_starts(keys: NDArray[np.uint64], shift: int, batch_tokens: int) -> NDArray[np.int64]:
    """Returns the positions at which sorted examples are cut into batches as large as the token budget allows.

    The size of a batch is the length of its last example x the number of its examples. Examples of equal length are cut
    at regular steps, so the loop takes one iteration per distinct length, not per example.
    """
    cuts: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
    start = begin = 0  # of the current batch; of the examples of the current length
    while begin < len(keys):
        length = int(keys[begin]) >> shift
        end = int(np.searchsorted(keys, np.uint64((length << shift) | ((1 << shift) - 1)), side="right"))
        size = max(1, batch_tokens // max(1, length))
        if begin > start and start + size <= begin:  # not even one example of this length fits into the current batch
            cuts.append(np.array([begin]))
            start = begin
        inside = np.arange(start + size, end, size)
        cuts.append(inside)
        start, begin = int(inside[-1]) if len(inside) else start, end
    return np.concatenate(cuts)


def _examples_in(keys: NDArray[np.uint64], order: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Returns the example ids of sorted keys."""
    position = np.uint64((1 << _position_bits(order)) - 1)
    examples = np.empty(len(keys), np.uint32)
    for start in range(0, len(keys), CHUNK):
        examples[start : start + CHUNK] = order[keys[start : start + CHUNK] & position]
    return examples


def split_micro(ids: NDArray[np.integer], accumulation: int) -> list[NDArray[np.integer]]:
    """Splits a batch for gradient accumulation into up to `accumulation` micro-batches, none of them empty."""
    return [part for part in np.array_split(ids, accumulation) if len(part)]
