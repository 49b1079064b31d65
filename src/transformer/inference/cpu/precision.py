"""Which precision a machine translates fastest in."""

import torch

from transformer.errors import ConfigError
from transformer.kernels import PRECISIONS, Precision, kind, unavailable_reason

CHOICES = ("auto", *PRECISIONS)


def choose_precision(wanted: str = "auto", fastest: Precision = "int8") -> Precision:
    """The precision that is asked for; `auto` is the fastest that may be where the compiled kernels run, else float32.

    AVX2 has no products of bfloat16, so that float32 is faster there.

    Args:
        wanted: one of `CHOICES`.
        fastest: that may be chosen.

    Raises:
        ConfigError: it is none.
    """
    if wanted == "auto":
        return "float32" if kind() is None or (kind(), fastest) == ("avx2", "bf16") else fastest
    for precision in PRECISIONS:
        if wanted == precision:
            return precision
    raise ConfigError(f"precision={wanted!r} is unknown; choose one of {', '.join(CHOICES)}")


def described(precision: Precision, workers: int) -> str:
    """What a command says of how it computes."""
    threads = torch.get_num_threads()
    by = f"up to {workers} processes" if workers > 1 else f"{threads} threads" if threads > 1 else "1 thread"
    reason = unavailable_reason()
    return f"{precision} on {by}" + (f"; without compiled kernels: {reason}" if reason else "")
