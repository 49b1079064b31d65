"""What decoding computes most, compiled; and the same with torch where that is not possible."""

from transformer.kernels.attention import cached, can_fetch, fetch, remember, reorder
from transformer.kernels.decoder import LayerStep
from transformer.kernels.library import for_gpus, kind, library, why_not
from transformer.kernels.normalization import add_norm
from transformer.kernels.product import PRECISIONS, PackedMatrix, Precision, Weight
from transformer.kernels.ranking import best_tokens

__all__ = [
    "PRECISIONS",
    "LayerStep",
    "PackedMatrix",
    "Precision",
    "Weight",
    "add_norm",
    "best_tokens",
    "cached",
    "can_fetch",
    "fetch",
    "for_gpus",
    "kind",
    "library",
    "remember",
    "reorder",
    "why_not",
]
