"""Random numbers that depend on where a run stands, not on what happened before."""

import hashlib

import torch


def seed_for(seed: int, *place: int) -> int:
    """A seed that is a function of the run's seed and a place in it, such as (step, micro-batch)."""
    digest = hashlib.blake2b(repr((seed, *place)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def reseed(seed: int, *place: int) -> None:
    """Makes what torch draws next (dropout) depend on the seed and the place alone."""
    torch.manual_seed(seed_for(seed, *place))
