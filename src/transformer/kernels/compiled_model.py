"""Whole stacks of layers, and whole models, as arguments of kernels."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transformer.kernels.attention import MAX_HEAD_WIDTH
from transformer.kernels.library import compiled_library, library
from transformer.kernels.packed_linear import PackedLinear

NormParameters = tuple[Tensor, Tensor | None, float]
"""Gain, bias (None for RMSNorm) and epsilon of a normalization; the tensors are float32 and contiguous."""


class NormArgs(ctypes.Structure):
    """Parameters of a layer normalization, with the fields of the C++ struct `Norm` in kernels.h, in its order."""

    __slots__ = ()  # a misspelled field is an error
    _fields_ = (("alpha", ctypes.c_void_p), ("beta", ctypes.c_void_p), ("eps", ctypes.c_float))


class EmbeddingArgs(ctypes.Structure):
    """An embedding, with the fields of the C++ struct `Embedding` in compiled_model.h, in its order."""

    __slots__ = ()  # a misspelled field is an error
    _fields_ = (("tokens", ctypes.c_void_p), ("positions", ctypes.c_void_p), ("scale", ctypes.c_float))


class LayerArgs(ctypes.Structure):
    """A layer, with the fields of the C++ struct `Layer` in kernels.h, in its order."""

    __slots__ = ()  # a misspelled field is an error
    _fields_ = (
        *((name, ctypes.c_void_p) for name in (
            "queries_keys_values", "attention_out", "linear_1", "linear_2", "gate", "source_query", "source_out",
            "cosines", "sines",
        )),
        ("norms", NormArgs * 3), ("is_pre", ctypes.c_int),
    )  # fmt: skip


class EncoderArgs(ctypes.Structure):
    """An encoder, with the fields of the C++ struct `Encoder` in compiled_model.h, in its order."""

    __slots__ = ()  # a misspelled field is an error
    _fields_ = (
        ("layers", ctypes.POINTER(LayerArgs)), ("norm", NormArgs),
        *((name, ctypes.c_long) for name in ("n_layers", "d_model", "heads", "key_heads", "head_width")),
        ("is_causal", ctypes.c_int), ("is_rounded", ctypes.c_int),
    )  # fmt: skip


class DecoderArgs(ctypes.Structure):
    """A decoder, with the fields of the C++ struct `Decoder` in compiled_model.h, in its order."""

    __slots__ = ()  # a misspelled field is an error
    _fields_ = (
        ("layers", ctypes.POINTER(LayerArgs)), ("source_keys_values", ctypes.POINTER(ctypes.c_void_p)),
        ("prompt_encoder", ctypes.POINTER(EncoderArgs)), ("norm", NormArgs),
        *((name, ctypes.c_long) for name in ("n_layers", "d_model", "heads", "key_heads", "head_width")),
        ("is_rounded", ctypes.c_int),
    )  # fmt: skip


class ModelArgs(ctypes.Structure):
    """A model, with the fields of the C++ struct `Model` in compiled_model.h, in its order."""

    __slots__ = ()  # a misspelled field is an error
    _fields_ = (
        ("source", EmbeddingArgs), ("target", EmbeddingArgs),
        ("encoder", ctypes.POINTER(EncoderArgs)), ("decoder", ctypes.POINTER(DecoderArgs)),
        ("projection", ctypes.c_void_p),
    )  # fmt: skip


@dataclass(frozen=True)
class EmbeddingWeights:
    """Token embeddings with their scale.

    Attributes:
        tokens: Vector of each token.
        scale: Factor of these.
        seq_len: Number of positions.
        positions: Vector that is added at each position; None if attention encodes the positions.
    """

    tokens: PackedLinear
    scale: float
    seq_len: int
    positions: Float[Tensor, "L D"] | None

    def to_args(self) -> EmbeddingArgs:
        """Converts the weights to the arguments of a kernel, which must not outlive them."""
        positions = None if self.positions is None else self.positions.data_ptr()
        return EmbeddingArgs(self.tokens.address, positions, self.scale)


@dataclass(frozen=True)
class LayerWeights:
    """Weights of a layer of an encoder or decoder.

    Attributes:
        matrices: Fused projection to queries, keys and values and output projection of self-attention; both matrices
            of the feed-forward network.
        norms: Parameters of the norms of the two or three residual connections.
        is_pre: Whether the layer is pre-norm.
        gate: Gate of the feed-forward network, if it has one.
        cross_attention: Query and output projections of cross-attention, if present.
        rotation: Cosines and sines by which queries and keys are rotated at each position, if they are.
    """

    matrices: Sequence[PackedLinear]
    norms: Sequence[NormParameters]
    is_pre: bool
    gate: PackedLinear | None = None
    cross_attention: Sequence[PackedLinear] = ()
    rotation: tuple[Float[Tensor, "L F"], Float[Tensor, "L F"]] | None = None

    def to_args(self) -> LayerArgs:
        """Converts the weights to the arguments of a kernel, which must not outlive them."""
        matrices = [*self.matrices, self.gate, *(self.cross_attention or (None, None))]
        return LayerArgs(
            *(matrix and matrix.address for matrix in matrices),
            *(table.data_ptr() for table in self.rotation or ()),
            *([] if self.rotation else [None, None]),
            (NormArgs * 3)(*map(_norm_args, self.norms)),
            self.is_pre,
        )


@dataclass(frozen=True)
class StackWeights:
    """Weights of a stack of layers.

    Attributes:
        layers: Layers, first to last.
        norm: Norm after the last layer; None without one.
        heads: Number of attention heads, of self-attention and cross-attention.
        key_heads: Number of heads of keys and values.
        head_width: Width of a head.
    """

    layers: Sequence[LayerWeights]
    norm: NormParameters | None
    heads: int
    key_heads: int
    head_width: int

    @property
    def d_model(self) -> int:
        """Width of the layers."""
        return self.layers[0].matrices[0].inner

    @property
    def is_rounded(self) -> bool:
        """Whether the weights are bfloat16 or int8, so that keys and values are bfloat16."""
        return self.layers[0].matrices[0].precision != "float32"

    @property
    def sizes(self) -> tuple[int, int, int, int, int]:
        """Number and width of layers, numbers of heads and of heads of keys, and width of a head."""
        return len(self.layers), self.d_model, self.heads, self.key_heads, self.head_width


class CompiledEncoder:
    """A stack of layers without cross-attention that a kernel computes as a whole.

    Args:
        weights: Weights of the stack.
        is_causal: Whether positions attend to themselves and those before only.

    Attributes:
        args: Arguments of the kernels, which must not outlive this object.
    """

    def __init__(self, weights: StackWeights, *, is_causal: bool = False) -> None:
        self._weights = weights  # keeps the memory that the kernels read alive
        self._layers = (LayerArgs * len(weights.layers))(*(layer.to_args() for layer in weights.layers))
        self.args = EncoderArgs(self._layers, _norm_args(weights.norm), *weights.sizes, is_causal, weights.is_rounded)

    def __call__(self, x: Float[Tensor, "R D"], lengths: Int[Tensor, " N"]) -> None:
        """Replaces embedded sentences by the output of the encoder, in place.

        Args:
            x: One row per token, one sentence after the other without padding; float32 and contiguous.
            lengths: Number of tokens of each sentence.

        Raises:
            MemoryError: There is not enough memory.
        """
        lengths = lengths.long().contiguous()
        check_memory(
            compiled_library().transformer_encode(
                ctypes.byref(self.args), lengths.data_ptr(), len(lengths), x.data_ptr(), torch.get_num_threads()
            )
        )


class CompiledDecoder:
    """A decoder whose step a kernel computes as a whole.

    Args:
        weights: Weights of the stack.
        source_keys_values: For each layer, the projection to the keys and values of cross-attention; none for a
            decoder-only model.
        prompt_encoder: The same layers for whole prompts, for a decoder-only model.

    Attributes:
        args: Arguments of the kernels, which must not outlive this object.
        d_model: Width of the layers.
    """

    def __init__(
        self,
        weights: StackWeights,
        source_keys_values: Sequence[PackedLinear] = (),
        prompt_encoder: CompiledEncoder | None = None,
    ) -> None:
        self._weights = weights, source_keys_values, prompt_encoder  # keeps the memory that the kernels read alive
        n_layers, self.d_model = len(weights.layers), weights.d_model
        self._layers = (LayerArgs * n_layers)(*(layer.to_args() for layer in weights.layers))
        addresses = [projection.address for projection in source_keys_values]
        self._source_keys_values = (ctypes.c_void_p * n_layers)(*addresses) if addresses else None
        self.args = DecoderArgs(
            self._layers, self._source_keys_values, prompt_encoder and ctypes.pointer(prompt_encoder.args),
            _norm_args(weights.norm), *weights.sizes, weights.is_rounded,
        )  # fmt: skip


class CompiledModel:
    """A model that kernels search with as a whole.

    Args:
        source: Embedding of the source; that of the target for a decoder-only model.
        target: Embedding of the target.
        encoder: The encoder; None for a decoder-only model.
        decoder: The decoder, with weights of the same precision.
        projection: Projection to the logits.

    Attributes:
        address: Address of the arguments for the kernels.
        vocab_size: Number of target tokens.
    """

    def __init__(
        self,
        source: EmbeddingWeights,
        target: EmbeddingWeights,
        encoder: CompiledEncoder | None,
        decoder: CompiledDecoder,
        projection: PackedLinear,
    ) -> None:
        self._weights = source, target, encoder, decoder, projection  # keeps the memory that the kernels read alive
        self._max_positions = source.seq_len, target.seq_len
        self.vocab_size = projection.columns
        self._args = ModelArgs(
            source.to_args(), target.to_args(), encoder and ctypes.pointer(encoder.args), ctypes.pointer(decoder.args),
            projection.address,
        )  # fmt: skip
        self.address = ctypes.addressof(self._args)

    def has_positions(self, source_length: int, limit: int) -> bool:
        """Whether the model has enough positions for a source, or a prompt, and so many new tokens."""
        if self._weights[2] is None:
            return source_length + limit <= self._max_positions[1]
        return source_length <= self._max_positions[0] and limit <= self._max_positions[1]


def supports_layers(head_width: int) -> bool:
    """Whether the kernels compute layers with heads of this width."""
    return library() is not None and head_width <= MAX_HEAD_WIDTH


def check_memory(status: int) -> None:
    """Raises the error behind the status of a kernel.

    Raises:
        MemoryError: There is not enough memory.
    """
    if status:
        raise MemoryError("not enough memory for a batch of this size; make it smaller")


def _norm_args(norm: NormParameters | None) -> NormArgs:
    if norm is None:
        return NormArgs()
    alpha, beta, eps = norm
    return NormArgs(alpha.data_ptr(), None if beta is None else beta.data_ptr(), eps)
