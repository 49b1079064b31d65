"""Multi-head attention with packed projections."""

import math
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from transformer.blocks.attention import Bias, Mask, MultiHeadAttention, attention, attention_weights
from transformer.blocks.cache import KeyValueCache
from transformer.blocks.rotary import RotaryAttention
from transformer.inference.cpu.cache import PackedCache
from transformer.inference.cpu.chunking import n_chunks
from transformer.inference.cpu.weights import WeightPacker
from transformer.kernels import append_to_cache, cached_attention, supports_attention, unavailable_reason


class PackedAttention(nn.Module):
    """Same as `MultiHeadAttention` or `RotaryAttention`, but with packed weights; one product projects an input.

    If weights are rounded, keys and values are cached in bfloat16. Whole sequences then attend in bfloat16 too, on
    processors that multiply it. A scale other than 1 / sqrt(d_k) is folded into the weights and biases of the queries.
    """

    def __init__(self, block: MultiHeadAttention, weights: WeightPacker) -> None:
        super().__init__()
        self.h, self.kv_heads, self.d_k = block.h, block.kv_heads, block.d_k
        self.rotation = block.rotation if isinstance(block, RotaryAttention) else None
        self._widths = [heads * block.d_k for heads in (block.h, block.kv_heads, block.kv_heads)]
        if block.scale is not None:
            factor = block.scale * math.sqrt(block.d_k)
            block.W_q.weight.data *= factor  # stored int8 weights include the factor already
            if cast("Tensor | None", block.W_q.bias) is not None:
                block.W_q.bias = nn.Parameter(block.W_q.bias.detach() * factor)
        self.self_projection = weights.linear(block.W_q, block.W_k, block.W_v)
        self.W_q = self.self_projection.slice_outputs(0, self._widths[0])
        self.W_kv = self.self_projection.slice_outputs(self._widths[0], sum(self._widths))
        self.W_o = weights.linear(block.W_o)
        is_rounded = weights.precision != "float32" and unavailable_reason() is None
        self.cache_dtype = torch.bfloat16 if is_rounded else torch.float32

    def forward(
        self,
        query: Float[Tensor, "B T D"],
        key: Float[Tensor, "B S D"],
        value: Float[Tensor, "B S D"],
        mask: Mask | None = None,
        bias: Bias | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Implements `MultiHeadAttention.forward`; keys and values must be projected from the same input."""
        assert key is value
        if query is not key:
            return self.attend(query, self.keys_values(key, value), mask, bias)
        is_plain = bias is None and self.rotation is None
        projected = self.self_projection(query, bf16_output=is_plain and supports_attention(self.d_k, mask))
        queries, keys, values = projected.split(self._widths, dim=-1)
        queries = self._rotate(queries)
        source = KeyValueCache(self._split_heads(self._rotate(keys)), self._split_heads(values))
        return self._attend_heads(queries, source, mask, bias, is_full_sequence=True)

    def keys_values(self, key: Float[Tensor, "B S D"], value: Float[Tensor, "B S D"]) -> KeyValueCache:
        """Projects the keys and values of every head, for a cache; keys are rotated from position 0 on."""
        assert key is value
        shape = key.size(0), self.kv_heads, key.size(1), self.d_k
        caches = [torch.empty(shape, dtype=self.cache_dtype, device="cpu") for _ in ("keys", "values")]
        chunks = n_chunks(key)
        for chunk, *outs in zip(key.chunk(chunks), *(cache.chunk(chunks) for cache in caches), strict=True):
            is_bf16 = self.cache_dtype == torch.bfloat16 and self.rotation is None
            keys, values = self.W_kv(chunk, bf16_output=is_bf16).chunk(2, dim=-1)
            for out, x in zip(outs, (self._rotate(keys), values), strict=True):
                out.copy_(self._split_heads(x))
        return PackedCache(*caches)

    def attend(
        self, query: Float[Tensor, "B T D"], source: KeyValueCache, mask: Mask | None = None, bias: Bias | None = None
    ) -> Float[Tensor, "B T D"]:
        """Same as `forward`, but with keys and values that are projected already; queries begin at position 0."""
        return self._attend_heads(self._rotate(self.W_q(query)), source, mask, bias)

    def step(
        self,
        x: Float[Tensor, "B 1 D"],
        cache: KeyValueCache,
        positions: Int[Tensor, " B"],
        mask: Bool[Tensor, "B 1 1 T"],
        bias: Bias | None = None,
    ) -> Float[Tensor, "B 1 D"]:
        """Implements `MultiHeadAttention.step`."""
        queries, keys, values = self.self_projection(x).split(self._widths, dim=-1)
        queries, keys = self._rotate(queries, positions), self._rotate(keys, positions)
        cache.reserve(mask.size(-1))
        append_to_cache(keys[:, 0], cache.keys, positions)
        append_to_cache(values[:, 0], cache.values, positions)
        return self._attend_heads(queries, cache.first(mask.size(-1)), mask, bias)

    def attention_weights(
        self,
        query: Float[Tensor, "B T D"],
        key: Float[Tensor, "B S D"],
        mask: Mask | None = None,
        bias: Bias | None = None,
    ) -> Float[Tensor, "B H T S"]:
        """Returns the attention weights that `forward` uses, in float32, for inspection."""
        queries, keys = self._rotate(self.W_q(query)), self._rotate(self.W_kv(key).chunk(2, dim=-1)[0])
        keys = self._split_heads(keys).repeat_interleave(self.h // self.kv_heads, dim=1)
        return attention_weights(self._split_heads(queries), keys, mask, bias=bias)

    def _attend_heads(
        self,
        queries: Float[Tensor, "B T Q"],
        source: KeyValueCache,
        mask: Mask | None,
        bias: Bias | None,
        *,
        is_full_sequence: bool = False,
    ) -> Float[Tensor, "B T D"]:
        """Computes attention and the output projection; without a kernel for these inputs, in float32 by torch."""
        allowed = None if mask is None else mask.bool()
        heads = None
        if bias is None:
            allow_bf16 = self.cache_dtype == torch.bfloat16
            heads = cached_attention(
                queries, source.keys, source.values, allowed, is_full_sequence=is_full_sequence, allow_bf16=allow_bf16
            )
        if heads is None:
            repeats = self.h // self.kv_heads
            keys, values = (x.float().repeat_interleave(repeats, dim=1) for x in (source.keys, source.values))
            heads = (
                attention(self._split_heads(queries.float()), keys, values, allowed, bias=bias)
                .transpose(1, 2)
                .flatten(2)
            )
        return self.W_o(heads)

    def _rotate(self, x: Float[Tensor, "B T D"], positions: Int[Tensor, " B"] | None = None) -> Float[Tensor, "B T D"]:
        """Rotates queries or keys from a position on; see `RotaryPositions.forward`."""
        if self.rotation is None:
            return x
        return self.rotation(self._split_heads(x.float()), positions).transpose(1, 2).flatten(2)

    def _split_heads(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T E"]:
        return x.unflatten(2, (-1, self.d_k)).transpose(1, 2)  # B H T E
