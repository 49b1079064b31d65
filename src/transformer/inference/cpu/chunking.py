"""Chunking: large batches are computed a few rows at a time, to bound the memory of intermediate results.

Intermediate results are as large as the batch and short-lived. Freeing them fragments the heap, and not all of the
gaps are reused.
"""

from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor

TOKENS_PER_THREAD: Final = 1024
"""Maximum number of tokens per thread and chunk, if no row has more; 512 to 2048 are as fast as a whole batch."""


def n_chunks(x: Float[Tensor, "B S D"]) -> int:
    """Returns the number of chunks of rows that are computed one after the other."""
    max_tokens = TOKENS_PER_THREAD * torch.get_num_threads()
    return max(1, min(x.size(0), -(-x.size(0) * x.size(1) // max_tokens)))
