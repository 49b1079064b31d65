"""How much of a batch is computed at a time.

What is computed on the way to a result is as large as the batch, and gone soon; the holes that it leaves among what
stays are not all found again.
"""

from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor

TOKENS: Final = 1024
"""Most for a thread at a time, where no row has more: 512 to 2048 are as fast as a whole batch."""


def groups_of(x: Float[Tensor, "B S D"]) -> int:
    """How many groups of rows are computed one after the other."""
    most = TOKENS * torch.get_num_threads()
    return max(1, min(x.size(0), -(-x.size(0) * x.size(1) // most)))
