"""The filter of sentence pairs: empty sides, length and length ratio."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

REASONS: Final = ("empty", "too long", "length ratio", "duplicate")
KEPT: Final = -1


@dataclass(frozen=True)
class PairFilter:
    """Filters pairs by criteria that need one pair alone; `duplicates.py` finds duplicates.

    Attributes:
        max_source_tokens: Maximum source length in tokens, EOS included.
        max_target_tokens: Maximum target length in tokens, EOS included.
        max_length_ratio: Maximum ratio of the longer side to the shorter, with 5 additional tokens allowed.
    """

    max_source_tokens: int
    max_target_tokens: int
    max_length_ratio: float

    def reasons(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        source_tokens: NDArray[np.int64],
        target_tokens: NDArray[np.int64],
    ) -> NDArray[np.int8]:
        """Returns the index in `REASONS` of the first reason to drop each pair, or `KEPT`.

        The token counts exclude EOS.
        """
        empty = np.array(
            [not (source.strip() and target.strip()) for source, target in zip(sources, targets, strict=True)], bool
        )
        too_long = (source_tokens >= self.max_source_tokens) | (target_tokens >= self.max_target_tokens)
        shorter, longer = np.minimum(source_tokens, target_tokens), np.maximum(source_tokens, target_tokens)
        uneven = longer > self.max_length_ratio * shorter + 5
        return np.select([empty, too_long, uneven], [0, 1, 2], KEPT).astype(np.int8)
