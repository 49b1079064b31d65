"""Whole encoder-decoder models as arguments of kernels."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from transformer.kernels.layer_step import LayerArgs, LayerStep, NormArgs
from transformer.kernels.packed_linear import PackedLinear

NormParameters = tuple[Tensor, Tensor, float]
"""Gain, bias and epsilon of a layer normalization; the tensors are float32 and contiguous."""


class EmbeddingArgs(ctypes.Structure):
    """An embedding, with the fields of the C++ struct `Embedding` in compiled_model.h, in its order."""

    __slots__ = ()  # a misspelled field is an error
    _fields_ = (("tokens", ctypes.c_void_p), ("positions", ctypes.c_void_p), ("scale", ctypes.c_float))


class EncoderLayerArgs(ctypes.Structure):
    """An encoder layer, with the fields of the C++ struct `EncoderLayer` in compiled_model.h, in its order."""

    __slots__ = ()  # a misspelled field is an error
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("queries_keys_values", "attention_out", "linear_1", "linear_2")),
        ("norms", NormArgs * 2), ("is_pre", ctypes.c_int),
    )  # fmt: skip


class ModelArgs(ctypes.Structure):
    """A model, with the fields of the C++ struct `Model` in compiled_model.h, in its order."""

    __slots__ = ()  # a misspelled field is an error
    _fields_ = (
        ("source", EmbeddingArgs), ("target", EmbeddingArgs),
        ("encoder_layers", ctypes.POINTER(EncoderLayerArgs)), ("decoder_layers", ctypes.POINTER(LayerArgs)),
        ("source_keys_values", ctypes.POINTER(ctypes.c_void_p)), ("projection", ctypes.c_void_p),
        ("encoder_norm", NormArgs), ("decoder_norm", NormArgs),
        *((name, ctypes.c_long) for name in (
            "n_encoder_layers", "n_decoder_layers", "d_model", "encoder_heads", "encoder_head_width", "decoder_heads",
            "decoder_head_width",
        )),
        ("is_rounded", ctypes.c_int),
    )  # fmt: skip


@dataclass(frozen=True)
class EmbeddingWeights:
    """Token embeddings with their scale, and a vector for each position."""

    tokens: PackedLinear
    positions: Float[Tensor, "L D"]
    scale: float

    def to_args(self) -> EmbeddingArgs:
        """Converts the weights to the arguments of a kernel, which must not outlive them."""
        return EmbeddingArgs(self.tokens.address, self.positions.data_ptr(), self.scale)


@dataclass(frozen=True)
class EncoderLayerWeights:
    """Weights of an encoder layer.

    Attributes:
        matrices: Fused projection to queries, keys and values; output projection; both matrices of the feed-forward
            network.
        norms: Parameters of the norms of both residual connections.
        is_pre: Whether the layer is pre-norm.
    """

    matrices: Sequence[PackedLinear]
    norms: Sequence[NormParameters]
    is_pre: bool

    def to_args(self) -> EncoderLayerArgs:
        """Converts the weights to the arguments of a kernel, which must not outlive them."""
        addresses = [matrix.address for matrix in self.matrices]
        return EncoderLayerArgs(*addresses, (NormArgs * 2)(*map(norm_args, self.norms)), self.is_pre)


class CompiledModel:
    """An encoder-decoder model that kernels run as a whole.

    Args:
        source: Embedding of the source.
        target: Embedding of the target.
        encoder_layers: Layers of the encoder.
        decoder_layers: Layers of the decoder, with cross-attention.
        source_keys_values: For each decoder layer, the projection to the keys and values of cross-attention.
        projection: Projection to the logits.
        norms: Norms after the last encoder and decoder layer; None without one.
        heads: Number of attention heads of the encoder and of the decoder.
        head_widths: Width of these heads.

    Attributes:
        address: Address of the arguments for the kernels.
        max_positions: Number of source positions and of target positions.
    """

    def __init__(
        self,
        source: EmbeddingWeights,
        target: EmbeddingWeights,
        encoder_layers: Sequence[EncoderLayerWeights],
        decoder_layers: Sequence[LayerStep],
        source_keys_values: Sequence[PackedLinear],
        projection: PackedLinear,
        norms: tuple[NormParameters | None, NormParameters | None],
        heads: tuple[int, int],
        head_widths: tuple[int, int],
    ) -> None:
        self._weights = source, target, encoder_layers, decoder_layers, source_keys_values, projection, norms
        self.max_positions = len(source.positions), len(target.positions)
        self.projection = projection
        self._encoder_layers = (EncoderLayerArgs * len(encoder_layers))(*(each.to_args() for each in encoder_layers))
        self._decoder_layers = (LayerArgs * len(decoder_layers))(*(layer.args for layer in decoder_layers))
        self._keys_values = (ctypes.c_void_p * len(source_keys_values))(*(each.address for each in source_keys_values))
        encoder_norm, decoder_norm = (NormArgs() if norm is None else norm_args(norm) for norm in norms)
        self._args = ModelArgs(
            source.to_args(), target.to_args(), self._encoder_layers, self._decoder_layers, self._keys_values,
            projection.address, encoder_norm, decoder_norm, len(encoder_layers), len(decoder_layers),
            projection.inner, heads[0], head_widths[0], heads[1], head_widths[1], projection.precision != "float32",
        )  # fmt: skip
        self.address = ctypes.addressof(self._args)


def norm_args(norm: NormParameters) -> NormArgs:
    """Converts the parameters of a norm to the arguments of a kernel, which must not outlive them."""
    alpha, beta, eps = norm
    return NormArgs(alpha.data_ptr(), beta.data_ptr(), eps)
