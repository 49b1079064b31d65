"""Chunking: large batches are computed a few rows at a time, to bound the memory of intermediate results.

Intermediate results are as large as the batch and short-lived. Freeing them fragments the heap, and not all of the
gaps are reused.
"""

from collections.abc import Callable
from itertools import repeat
from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor

from transformer.blocks.attention import Mask

TOKENS_PER_THREAD: Final = 1024
"""Maximum number of tokens per thread and chunk, if no row has more; 512 to 2048 are as fast as a whole batch."""


def n_chunks(x: Float[Tensor, "B S D"]) -> int:
    """Returns the number of chunks of rows that are computed one after the other."""
    max_tokens = TOKENS_PER_THREAD * torch.get_num_threads()
    return max(1, min(x.size(0), -(-x.size(0) * x.size(1) // max_tokens)))


def compute_in_chunks(
    forward: Callable[[Tensor, Mask | None], Tensor], x: Float[Tensor, "B S D"], mask: Mask | None
) -> Float[Tensor, "B T D"]:
    """Returns `forward(x, mask)`, computed in chunks of rows."""
    chunks = n_chunks(x)
    if chunks == 1:
        return forward(x, mask)
    is_shared = mask is None or mask.dim() <= x.dim() or mask.size(0) == 1
    masks = repeat(mask) if mask is None or is_shared else mask.chunk(chunks)
    outputs = map(forward, x.chunk(chunks), masks)
    first = next(outputs)
    result, row = first.new_empty(x.size(0), *first.shape[1:]), len(first)
    result[:row] = first
    del first
    for out in outputs:
        result[row : row + len(out)] = out
        row += len(out)
    return result
