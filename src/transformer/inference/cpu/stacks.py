"""Packed stacks of layers, which a kernel computes as a whole where it supports all layers."""

from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from transformer.blocks.attention import Mask
from transformer.blocks.cache import IncrementalState
from transformer.blocks.causal import CausalDecoder
from transformer.blocks.decoder import Decoder
from transformer.blocks.encoder import Encoder
from transformer.blocks.readout import ReadoutEncoder
from transformer.inference.cpu.chunking import compute_in_chunks
from transformer.inference.cpu.compiled_model import compile_decoder, compile_encoder
from transformer.inference.cpu.decoder_state import PackedDecoderState
from transformer.kernels import CompiledDecoder, CompiledDecoderState, CompiledEncoder


class PackedEncoder(Encoder):
    """Same as `Encoder`, without computing padding; layer by layer, large batches are computed in chunks.

    Args:
        stack: Encoder of packed blocks.
    """

    def __init__(self, stack: Encoder) -> None:
        nn.Module.__init__(self)
        self.__dict__.update(vars(stack))
        self.compiled = compile_encoder(stack)

    def forward(self, x: Float[Tensor, "B S D"], src_mask: Mask | None = None) -> Float[Tensor, "B S D"]:
        """Implements `Encoder.forward`; the output of a kernel is zero at padding."""
        if self.compiled is not None and _is_padding_mask(src_mask):
            return _encode(self.compiled, x, src_mask)
        return compute_in_chunks(super().forward, x, src_mask)


class PackedReadoutEncoder(PackedEncoder, ReadoutEncoder):
    """Same as `ReadoutEncoder`, without computing padding.

    Args:
        stack: Encoder of packed blocks.
    """

    def __init__(self, stack: ReadoutEncoder) -> None:
        super().__init__(stack)
        self.compiled_below = compile_encoder(stack, but_last=True)

    def forward(
        self, x: Float[Tensor, "B S D"], src_mask: Mask | None = None, n_queries: int | None = None
    ) -> Float[Tensor, "B T D"]:
        """Implements `ReadoutEncoder.forward`."""
        if n_queries is None:
            return PackedEncoder.forward(self, x, src_mask)
        if self.compiled_below is None or not _is_padding_mask(src_mask):
            return compute_in_chunks(partial(ReadoutEncoder.forward, self, n_queries=n_queries), x, src_mask)
        last = partial(self.layers[-1], bias=None, n_queries=n_queries)
        return self.norm(compute_in_chunks(last, _encode(self.compiled_below, x, src_mask), src_mask))


class PackedDecoder(Decoder):
    """Same as `Decoder`, but a step is one call of a kernel.

    Args:
        stack: Decoder of packed blocks that the kernel supports.
        compiled: The same decoder as arguments of the kernel.
    """

    def __init__(self, stack: Decoder, compiled: CompiledDecoder) -> None:
        nn.Module.__init__(self)
        self.__dict__.update(vars(stack))
        self.compiled = compiled

    def begin(self, encoder_output: Float[Tensor, "B S D"], src_mask: Bool[Tensor, "B 1 1 S"]) -> IncrementalState:
        """Implements `Decoder.begin`."""
        is_token = src_mask[:, 0, 0]
        return _begin(self.compiled, encoder_output, is_token, torch.zeros(len(is_token), dtype=torch.long), 0)

    def step(self, x: Float[Tensor, "B 1 D"], state: IncrementalState) -> Float[Tensor, "B 1 D"]:
        """Implements `Decoder.step`."""
        return _step(x, state) if isinstance(state, PackedDecoderState) else super().step(x, state)


class PackedCausalDecoder(PackedEncoder, CausalDecoder):
    """Same as `CausalDecoder`, but a step is one call of a kernel where it supports all layers.

    Args:
        stack: Decoder of packed blocks.
    """

    def __init__(self, stack: CausalDecoder) -> None:
        super().__init__(stack)
        self.compiled, self.compiled_decoder = None, compile_decoder(stack)

    def begin(self, x: Float[Tensor, "B S D"], lengths: Int[Tensor, " B"]) -> IncrementalState:
        """Implements `CausalDecoder.begin`."""
        if self.compiled_decoder is None:
            return super().begin(x, lengths)
        is_token = torch.arange(x.size(1)) < lengths[:, None]
        return _begin(self.compiled_decoder, x, is_token, lengths, int(lengths.max()))

    def step(self, x: Float[Tensor, "B 1 D"], state: IncrementalState) -> Float[Tensor, "B 1 D"]:
        """Implements `CausalDecoder.step`."""
        return _step(x, state) if isinstance(state, PackedDecoderState) else super().step(x, state)


def _is_padding_mask(mask: Mask | None) -> bool:
    """Whether all heads and queries of a sentence may attend to the same positions."""
    return mask is None or (mask.dim() == 4 and mask.shape[1:3] == (1, 1))


def _encode(encoder: CompiledEncoder, x: Float[Tensor, "B S D"], mask: Mask | None) -> Float[Tensor, "B S D"]:
    batch, length = x.shape[:2]
    if mask is None:
        out = x.float().clone(memory_format=torch.contiguous_format)
        encoder(out, torch.full((batch,), length))
        return out
    is_token = mask.bool()[:, 0, 0].expand(batch, length)
    rows = x.float()[is_token]
    encoder(rows, is_token.sum(dim=1))
    out = torch.zeros(x.shape)
    out[is_token] = rows
    return out


def _begin(
    decoder: CompiledDecoder,
    x: Float[Tensor, "B S D"],
    is_token: Bool[Tensor, "B S"],
    positions: Int[Tensor, " B"],
    longest: int,
) -> PackedDecoderState:
    memory = CompiledDecoderState.begin(decoder, x[is_token], is_token.sum(dim=1))
    return PackedDecoderState(memory, torch.arange(len(x), dtype=torch.int32), positions, longest)


def _step(x: Float[Tensor, "B 1 D"], state: PackedDecoderState) -> Float[Tensor, "B 1 D"]:
    return state.memory.step(state.slots, x[:, 0])[:, None]
