"""A step of a whole decoder layer in one call."""

import ctypes
from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor

from transformer.kernels.attention import WIDEST_HEAD, Attention
from transformer.kernels.library import library
from transformer.kernels.packed_linear import PackedMatrix

SOURCE: Final = 4
"""Matrices of a layer before those of a source."""


class Norm(ctypes.Structure):
    """The same fields in the same order as `Norm` in kernels.h."""

    _fields_ = (("alpha", ctypes.c_void_p), ("beta", ctypes.c_void_p), ("eps", ctypes.c_float))


class Layer(ctypes.Structure):
    """The same fields in the same order as `Layer` in kernels.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in (
            "queries_keys_values", "self_out", "linear_1", "linear_2", "source_query", "source_out",
        )),
        ("norms", Norm * 3), ("is_pre", ctypes.c_int),
    )  # fmt: skip


class LayerStep:
    """Self-attention, attention to the source if there is one, and a feed-forward network for one new position a row.

    Args:
        matrices: the projection to queries, keys and values and that of the heads; the two of the feed-forward network;
            with a source, that of its query and that of its heads.
        norms: gain, bias and epsilon of each of the two or three residual connections.
        is_pre: whether the norms stand before the sub-layers.
    """

    def __init__(
        self, matrices: list[PackedMatrix], norms: list[tuple[Tensor, Tensor, float]], *, is_pre: bool
    ) -> None:
        self.matrices, self.norms = matrices, norms  # what the kernel reads must stay
        described = [Norm(alpha.data_ptr(), beta.data_ptr(), eps) for alpha, beta, eps in norms]
        addresses = [matrix.address for matrix in matrices] + [None] * (SOURCE - len(matrices) + 2)
        self._layer = Layer(*addresses, (Norm * 3)(*described), is_pre)
        self._compiled = library()

    @staticmethod
    def can_be(width: int) -> bool:
        """Whether the kernel can, for heads of a width."""
        return library() is not None and width <= WIDEST_HEAD

    def __call__(
        self, x: Float[Tensor, "B 1 D"], own: Attention, source: Attention | None = None
    ) -> Float[Tensor, "B 1 D"]:
        """Returns the layer's output; keys and values of the new position are added to the cache.

        Args:
            x: what the layer reads.
            own: to the cache of the target, up to the new position.
            source: to the source, of whose rows each has as many queries as hypotheses; if there is one.
        """
        assert self._compiled is not None
        x = x.float().contiguous()
        out = torch.empty(x.shape, dtype=torch.float32, device="cpu")
        self._compiled.transformer_decoder_layer(
            ctypes.byref(self._layer), ctypes.byref(own), source and ctypes.byref(source), x.data_ptr(),
            out.data_ptr(), len(x), torch.get_num_threads(),
        )  # fmt: skip
        return out
