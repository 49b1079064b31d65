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


@dataclass(frozen=True)
class EncoderWeights:
    """An encoder.

    Attributes:
        embedding: Embedding of the source.
        layers: Layers, first to last.
        norm: Norm after the last layer; None without one.
        heads: Number of attention heads.
        head_width: Width of a head.
    """

    embedding: EmbeddingWeights
    layers: Sequence[EncoderLayerWeights]
    norm: NormParameters | None
    heads: int
    head_width: int


@dataclass(frozen=True)
class DecoderWeights:
    """A decoder with cross-attention.

    Attributes:
        embedding: Embedding of the target.
        layers: Layers, first to last.
        source_keys_values: For each layer, the projection to the keys and values of cross-attention.
        projection: Projection to the logits.
        norm: Norm after the last layer; None without one.
        heads: Number of attention heads, of self-attention and cross-attention.
        head_width: Width of a head.
    """

    embedding: EmbeddingWeights
    layers: Sequence[LayerStep]
    source_keys_values: Sequence[PackedLinear]
    projection: PackedLinear
    norm: NormParameters | None
    heads: int
    head_width: int


class CompiledModel:
    """An encoder-decoder model that kernels run as a whole.

    Args:
        encoder: The encoder.
        decoder: The decoder, with weights of the same precision.

    Attributes:
        address: Address of the arguments for the kernels.
        max_positions: Number of source positions and of target positions.
        vocab_size: Number of target tokens.
    """

    def __init__(self, encoder: EncoderWeights, decoder: DecoderWeights) -> None:
        self._weights = encoder, decoder  # keeps the memory that the kernels read alive
        self.max_positions = len(encoder.embedding.positions), len(decoder.embedding.positions)
        self.vocab_size = decoder.projection.columns
        n_layers = len(encoder.layers), len(decoder.layers)
        self._encoder_layers = (EncoderLayerArgs * n_layers[0])(*(layer.to_args() for layer in encoder.layers))
        self._decoder_layers = (LayerArgs * n_layers[1])(*(layer.args for layer in decoder.layers))
        self._source_keys_values = (ctypes.c_void_p * n_layers[1])(
            *(projection.address for projection in decoder.source_keys_values)
        )
        self._args = ModelArgs(
            encoder.embedding.to_args(), decoder.embedding.to_args(), self._encoder_layers, self._decoder_layers,
            self._source_keys_values, decoder.projection.address, norm_args(encoder.norm), norm_args(decoder.norm),
            *n_layers, decoder.projection.inner, encoder.heads, encoder.head_width, decoder.heads, decoder.head_width,
            decoder.projection.precision != "float32",
        )  # fmt: skip
        self.address = ctypes.addressof(self._args)


def norm_args(norm: NormParameters | None) -> NormArgs:
    """Converts the parameters of a norm to the arguments of a kernel, which must not outlive them."""
    if norm is None:
        return NormArgs()
    alpha, beta, eps = norm
    return NormArgs(alpha.data_ptr(), beta.data_ptr(), eps)
