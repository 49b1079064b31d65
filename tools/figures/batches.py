"""Drawing of sentences in batches: padded as they come, and in buckets of similar length."""

from collections.abc import Sequence

import numpy as np

from figures.svg import Drawing
from transformer.data.token_batching import batch_by_tokens

LENGTHS = (5, 21, 8, 13, 6, 19, 7, 14, 5, 20, 9, 12)
"""Tokens of the sentences, in the order of the corpus."""
BUDGET = 48
SIZE = 7


def batches(drawing: Drawing, y: float, groups: Sequence[Sequence[int]]) -> float:
    """Draws batches one below the other and returns the place below them."""
    for number, group in enumerate(groups):
        longest = max(LENGTHS[sentence] for sentence in group)
        kinds = [["attention"] * LENGTHS[sentence] + [""] * (longest - LENGTHS[sentence]) for sentence in group]
        drawing.table(62, y, [[""] * longest] * len(group), kinds, width=SIZE, height=SIZE)
        middle = y + SIZE * len(group) / 2
        drawing.label(56, middle, f"batch {number + 1}", anchor="end", size=11)
        filled, total = sum(LENGTHS[sentence] for sentence in group), longest * len(group)
        drawing.label(216, middle, f"{len(group)} × {longest} = {total}, {filled} filled", anchor="start", size=11)
        y += SIZE * len(group) + 10
    return y


def padded_batches() -> Drawing:
    """Draws twelve sentences in three batches as they come, and in batches of similar length with a token budget."""
    drawing = Drawing(350, 296)
    drawing.label(4, 10, "three batches of four sentences, as they come", anchor="start", bold=True)
    y = batches(drawing, 24, [range(start, start + 4) for start in range(0, 12, 4)])
    drawing.label(4, y + 14, f"similar lengths, at most {BUDGET} tokens a batch", anchor="start", bold=True)
    made = batch_by_tokens(np.array(LENGTHS, np.int32)[:, None], BUDGET, seed=1, epoch=0)
    ordered = sorted(
        ([int(sentence) for sentence in batch] for batch in made), key=lambda b: max(LENGTHS[i] for i in b)
    )
    batches(drawing, y + 28, ordered)
    return drawing


DRAWINGS = {"padded-batches": padded_batches}
