"""One decoding step of a whole decoder layer in a single call."""

import ctypes
from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor

from transformer.kernels.attention import MAX_HEAD_WIDTH, AttentionArgs
from transformer.kernels.library import compiled_library, library
from transformer.kernels.packed_linear import PackedLinear

N_SELF_ATTENTION_MATRICES: Final = 4
"""Number of matrices of a layer without cross-attention, which come first."""


class NormArgs(ctypes.Structure):
    """Parameters of a layer normalization, with the fields of the C++ struct `Norm` in kernels.h, in its order."""

    __slots__ = ()  # a misspelled field is an error
    _fields_ = (("alpha", ctypes.c_void_p), ("beta", ctypes.c_void_p), ("eps", ctypes.c_float))


class LayerArgs(ctypes.Structure):
    """Weights of a decoder layer, with the fields of the C++ struct `DecoderLayer` in kernels.h, in its order."""

    __slots__ = ()  # a misspelled field is an error
    _fields_ = (
        *((name, ctypes.c_void_p) for name in (
            "queries_keys_values", "self_out", "linear_1", "linear_2", "source_query", "source_out",
        )),
        ("norms", NormArgs * 3), ("is_pre", ctypes.c_int),
    )  # fmt: skip


class LayerStep:
    """A decoder layer for one new position per row: self-attention, optional cross-attention and feed-forward network.

    Args:
        matrices: Fused projection to queries, keys and values and output projection of self-attention; the two
            matrices of the feed-forward network; query and output projections of cross-attention, if present.
        norms: Gain, bias and epsilon of the normalization in each of the two or three residual connections.
        is_pre: Whether the layer is pre-norm.

    Attributes:
        args: Arguments of the kernel, which must not outlive this object.
    """

    def __init__(
        self, matrices: list[PackedLinear], norms: list[tuple[Tensor, Tensor, float]], *, is_pre: bool
    ) -> None:
        self.matrices, self.norms = matrices, norms  # keeps the memory that the kernel reads alive
        norm_args = [NormArgs(alpha.data_ptr(), beta.data_ptr(), eps) for alpha, beta, eps in norms]
        addresses = [matrix.address for matrix in matrices] + [None] * (N_SELF_ATTENTION_MATRICES - len(matrices) + 2)
        self.args = LayerArgs(*addresses, (NormArgs * 3)(*norm_args), is_pre)
        self._compiled = compiled_library()

    @staticmethod
    def is_supported(width: int) -> bool:
        """Whether the kernel supports heads of this width."""
        return library() is not None and width <= MAX_HEAD_WIDTH

    def __call__(
        self, x: Float[Tensor, "B 1 D"], self_attention: AttentionArgs, cross_attention: AttentionArgs | None = None
    ) -> Float[Tensor, "B 1 D"]:
        """Returns the layer's output and appends the keys and values of the new position to the cache.

        Args:
            x: Input of the layer.
            self_attention: Attention to the cached target positions, up to the new one.
            cross_attention: Attention to the source, with one query per hypothesis for each sentence.
        """
        x = x.float().contiguous()
        out = torch.empty(x.shape, dtype=torch.float32, device="cpu")
        self._compiled.transformer_decoder_layer(
            ctypes.byref(self.args), ctypes.byref(self_attention), cross_attention and ctypes.byref(cross_attention),
            x.data_ptr(), out.data_ptr(), len(x), torch.get_num_threads(),
        )  # fmt: skip
        return out
