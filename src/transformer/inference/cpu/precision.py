"""Choice of the fastest precision on this machine."""

import torch

from transformer.errors import ConfigError
from transformer.kernels import PRECISIONS, Precision, instruction_set, unavailable_reason

PRECISION_CHOICES = ("auto", *PRECISIONS)


def choose_precision(wanted: str = "auto", fastest: Precision = "int8") -> Precision:
    """Returns the requested precision; `auto` is `fastest` if the compiled kernels run, and float32 otherwise.

    AVX2 has no products of bfloat16, so that `auto` replaces bfloat16 by float32 there.

    Args:
        wanted: One of `PRECISION_CHOICES`.
        fastest: Precision that `auto` may choose.

    Raises:
        ConfigError: `wanted` is unknown.
    """
    if wanted == "auto":
        lacks_bf16 = fastest == "bf16" and instruction_set() in ("avx_vnni", "avx2")
        return "float32" if instruction_set() is None or lacks_bf16 else fastest
    for precision in PRECISIONS:
        if wanted == precision:
            return precision
    raise ConfigError(f"precision={wanted!r} is unknown; choose one of {', '.join(PRECISION_CHOICES)}")


def describe_precision(precision: Precision, workers: int) -> str:
    """Describes the precision and the number of processes or threads, for the output of a command."""
    threads = torch.get_num_threads()
    units = f"up to {workers} processes" if workers > 1 else f"{threads} threads" if threads > 1 else "1 thread"
    return f"{precision} on {units}{'' if unavailable_reason() is None else ', without compiled kernels'}"
