"""Compiled kernels for the most expensive operations of decoding and training, with fallbacks to PyTorch."""

from transformer.kernels.attention import (
    append_to_cache,
    attention_args,
    cached_attention,
    reorder_cache,
    supports_attention,
)
from transformer.kernels.beam_search import BeamSearchInputs, BeamSearchOptions, beam_search
from transformer.kernels.compiled_model import CompiledDecoder, CompiledEncoder, CompiledModel
from transformer.kernels.decoder_state import CompiledDecoderState
from transformer.kernels.library import instruction_set, library, triton_module, unavailable_reason
from transformer.kernels.normalization import add_norm
from transformer.kernels.packed_linear import PRECISIONS, PackedLinear, Precision, Weight, quantize_to_int8
from transformer.kernels.topk import MAX_TOP_K, best_tokens

__all__ = [
    "MAX_TOP_K",
    "PRECISIONS",
    "BeamSearchInputs",
    "BeamSearchOptions",
    "CompiledDecoder",
    "CompiledDecoderState",
    "CompiledEncoder",
    "CompiledModel",
    "PackedLinear",
    "Precision",
    "Weight",
    "add_norm",
    "append_to_cache",
    "attention_args",
    "beam_search",
    "best_tokens",
    "cached_attention",
    "instruction_set",
    "library",
    "quantize_to_int8",
    "reorder_cache",
    "supports_attention",
    "triton_module",
    "unavailable_reason",
]
