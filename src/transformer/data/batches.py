"""Which examples form which batch: a pure function of lengths, weights, budget, seed and epoch."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from transformer.interfaces import DatasetMix

CHUNK: Final = 1 << 18
"""Examples that are looked at together, so that memory beside the order itself does not grow with the corpus."""


def plan_epoch(
    lengths: NDArray[np.int32], batch_tokens: int, seed: int, epoch: int, mix: Sequence[DatasetMix] = ()
) -> list[NDArray[np.uint32]]:
    """Cuts one epoch into batches of examples of like length, in random order.

    Every example of the epoch is in exactly one batch. Examples are shuffled, then sorted by their longest side (ties
    by the other sides' length, then as shuffled), cut so that longest side x examples stays within the budget, and
    the batches are shuffled. An example longer than the budget is a batch of its own. Where every example is seen
    once, the number of batches is the same in every epoch. Takes 16 bytes an example at most and 4 that stay.

    Args:
        lengths: tokens of each example, one column a side.
        batch_tokens: budget of a batch, padding included.
        seed: of the run.
        epoch: counted from 0.
        mix: see `epoch_examples`.

    Returns:
        The example ids of each batch.
    """
    generator = np.random.default_rng([seed, epoch])
    order = epoch_examples(len(lengths), mix, seed, epoch)
    if not len(order):
        return []
    generator.shuffle(order)
    keys, shift = _sortable(lengths, order)
    keys.sort()
    batches = np.split(_examples_in(keys, order), _cut(keys, shift, batch_tokens))
    return [batches[index] for index in generator.permutation(len(batches))]


def epoch_examples(count: int, mix: Sequence[DatasetMix], seed: int, epoch: int) -> NDArray[np.uint32]:
    """The examples of one epoch: each as often as its part's weight says.

    The fraction of a weight takes the examples of its part in turn: with 0.5, each half every other epoch; over many
    epochs all are seen equally often.

    Args:
        count: of all examples.
        mix: consecutive examples and their weight; none stands for all examples once.
        seed: of the run.
        epoch: counted from 0.
    """
    if all(part.weight == 1 for part in mix):
        return np.arange(count, dtype=np.uint32)
    chosen: list[NDArray[np.uint32]] = []
    first = 0
    for index, part in enumerate(mix):
        every = np.arange(first, first + part.examples, dtype=np.uint32)
        copies, fraction = divmod(Fraction(str(part.weight)), 1)
        chosen.extend([every] * copies)
        if fraction:
            np.random.default_rng([seed, index]).shuffle(every)
            start, end = (int(fraction * turn * part.examples) for turn in (epoch, epoch + 1))
            chosen.append(np.take(every, np.arange(start, end), mode="wrap"))
        first += part.examples
    return np.concatenate(chosen)


def _sortable(lengths: NDArray[np.int32], order: NDArray[np.uint32]) -> tuple[NDArray[np.uint64], int]:
    """One integer an example that sorts as wanted: longest side, other sides, position in `order`, high bits first.

    The second value is how many bits lie below the longest side. Where not all sides fit, the low bits of the first
    ones are left out: pairs that differ only there are in the order of `order`.
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


def _cut(keys: NDArray[np.uint64], shift: int, batch_tokens: int) -> NDArray[np.int64]:
    """Where to cut sorted examples so that the last length x the number stays within the budget, as late as can be.

    Examples of one length are cut evenly, so this takes a step for each different length, not for each example.
    """
    cuts: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
    start = begin = 0  # of the batch under way; of the examples of this length
    while begin < len(keys):
        length = int(keys[begin]) >> shift
        end = int(np.searchsorted(keys, np.uint64((length << shift) | ((1 << shift) - 1)), side="right"))
        size = max(1, batch_tokens // max(1, length))
        if begin > start and start + size <= begin:  # not even one of this length fits into the batch under way
            cuts.append(np.array([begin]))
            start = begin
        inside = np.arange(start + size, end, size)
        cuts.append(inside)
        start, begin = int(inside[-1]) if len(inside) else start, end
    return np.concatenate(cuts)


def _examples_in(keys: NDArray[np.uint64], order: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The examples that sorted keys stand for."""
    position = np.uint64((1 << _position_bits(order)) - 1)
    examples = np.empty(len(keys), np.uint32)
    for start in range(0, len(keys), CHUNK):
        examples[start : start + CHUNK] = order[keys[start : start + CHUNK] & position]
    return examples


def split_micro(ids: NDArray[np.integer[Any]], accumulation: int) -> list[NDArray[np.integer[Any]]]:
    """Cuts a batch into up to `accumulation` micro-batches of nearly equal size, none of them empty."""
    return [part for part in np.array_split(ids, accumulation) if len(part)]
