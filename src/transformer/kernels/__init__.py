"""What decoding computes most, compiled; and the same with torch where that is not possible."""

from transformer.kernels.attention import cached, fetch, remember, reorder, supports_attention
from transformer.kernels.layer_step import LayerStep
from transformer.kernels.library import for_gpus, kind, library, unavailable_reason
from transformer.kernels.normalization import add_norm
from transformer.kernels.packed_linear import PRECISIONS, PackedMatrix, Precision, Weight
from transformer.kernels.shortlist_topk import ListedMatrix
from transformer.kernels.topk import MOST_RANKED, best_tokens

__all__ = [
    "MOST_RANKED",
    "PRECISIONS",
    "LayerStep",
    "ListedMatrix",
    "PackedMatrix",
    "Precision",
    "Weight",
    "add_norm",
    "best_tokens",
    "cached",
    "fetch",
    "for_gpus",
    "kind",
    "library",
    "remember",
    "reorder",
    "supports_attention",
    "unavailable_reason",
]
