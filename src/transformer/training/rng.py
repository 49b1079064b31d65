"""Random numbers that depend on where a run stands, not on what happened before."""

import hashlib

import torch


def derive_seed(seed: int, *place: int) -> int:
    """A seed that is a function of the run's seed and a place in it, such as (step, micro-batch)."""
    digest = hashlib.blake2b(repr((seed, *place)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def reseed(seed: int, *place: int) -> None:
    """Makes what torch draws next (dropout), on a CPU or on GPUs in use, depend on the seed and the place alone.

    As `torch.manual_seed`, which writes down where it was called from as long as no GPU is in use: 0.8 ms a step.
    """
    chosen = derive_seed(seed, *place)
    torch.default_generator.manual_seed(chosen)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(chosen)
