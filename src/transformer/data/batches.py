"""Which examples form which batch: a pure function of lengths, budget, seed and epoch."""

import numpy as np
from numpy.typing import NDArray


def plan_epoch(lengths: NDArray[np.int32], batch_tokens: int, seed: int, epoch: int) -> list[NDArray[np.int64]]:
    """Cuts one epoch into batches of examples of like length, in random order.

    Every example is in exactly one batch. Examples are shuffled, then sorted by their longest side (ties stay
    shuffled but for the other sides' length), cut so that longest side x examples stays within the budget, and the
    batches are shuffled. An example longer than the budget is a batch of its own. The number of batches is the same
    in every epoch.

    Args:
        lengths: tokens of each example, one column a side.
        batch_tokens: budget of a batch, padding included.
        seed: of the run.
        epoch: counted from 0.

    Returns:
        The example ids of each batch.
    """
    generator = np.random.default_rng([seed, epoch])
    order = generator.permutation(len(lengths))
    shuffled = lengths[order]
    longest = shuffled.max(axis=1)
    by_length = np.lexsort((*shuffled.T, longest))
    cuts = _cut(longest[by_length], batch_tokens)
    batches = np.split(order[by_length], cuts)
    return [batches[index] for index in generator.permutation(len(batches))]


def _cut(ascending: NDArray[np.int32], batch_tokens: int) -> list[int]:
    """Where to cut examples of ascending length so that the last length x the number stays within the budget."""
    cuts: list[int] = []
    start = 0
    for position, length in enumerate(ascending.tolist()):
        if position > start and length * (position - start + 1) > batch_tokens:
            cuts.append(position)
            start = position
    return cuts


def split_micro(ids: NDArray[np.int64], accumulation: int) -> list[NDArray[np.int64]]:
    """Cuts a batch into up to `accumulation` micro-batches of nearly equal size, none of them empty."""
    return [part for part in np.array_split(ids, accumulation) if len(part)]
