"""Line breaks of a text laid back into its translation, in proportion to its length."""

from bisect import bisect_left
from collections.abc import Sequence


def choose_breaks(breaks: Sequence[int], length: int, candidates: Sequence[int], new_length: int) -> list[int | None]:
    """Returns the places in a translation that correspond to the line breaks of a text.

    A text that keeps its length and its spaces keeps its breaks.

    Args:
        breaks: Places of the breaks in the text, in order.
        length: Length of the text.
        candidates: Places in the translation where a line may end, in order.
        new_length: Length of the translation.

    Returns:
        A candidate for each break, in order and each at most once; None for breaks that find none.
    """
    chosen: list[int | None] = []
    first = 0
    for number, place in enumerate(breaks):
        last = len(candidates) - (len(breaks) - number - 1)  # leaves a candidate for each later break if there are any
        if first >= len(candidates):
            chosen.append(None)
            continue
        ideal = place * new_length / max(length, 1)
        index = min(bisect_left(candidates, ideal, first), len(candidates) - 1)
        if index > first and ideal - candidates[index - 1] <= abs(candidates[index] - ideal):
            index -= 1
        index = max(first, min(index, last - 1))
        chosen.append(candidates[index])
        first = index + 1
    return chosen
