"""Settings of worker processes that compute with torch."""

from itertools import count
from typing import Final

import torch

from transformer.runtime.allocator import retain_heap, trim_heap

TRIM_INTERVAL: Final = 16
"""Batches after which a worker returns free heap memory, which takes 4 % of the time of one batch by a base model."""
_batch_numbers = count(1)
_inference_mode = torch.inference_mode()
"""Inference mode that a worker is in from start to end."""


def initialize_compute_worker() -> None:
    """Limits a process to one thread, and makes it compute without gradients and keep freed memory."""
    torch.set_num_threads(1)
    retain_heap()
    _inference_mode.__enter__()


def end_batch() -> None:
    """Returns free memory to the system after some batches."""
    if next(_batch_numbers) % TRIM_INTERVAL == 0:
        trim_heap()
