"""Multi-head attention with packed projections."""

import math
from typing import Final, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from transformer.blocks.attention import Bias, Mask, MultiHeadAttention, attention, attention_weights
from transformer.blocks.cache import KeyValueCache
from transformer.inference.cpu.cache import PackedCache
from transformer.inference.cpu.chunking import n_chunks
from transformer.inference.cpu.weights import WeightPacker
from transformer.kernels import append_to_cache, cached_attention, supports_attention, unavailable_reason

QUERIES_KEYS_VALUES: Final = 3


class PackedAttention(nn.Module):
    """Same as `MultiHeadAttention`, but with packed weights; the projections of one input are one product.

    If weights are rounded, keys and values are cached in bfloat16. Whole sequences then attend in bfloat16 too, on
    processors that multiply it. A scale other than 1 / sqrt(d_k) is folded into the weights and biases of the queries.
    """

    def __init__(self, block: MultiHeadAttention, weights: WeightPacker) -> None:
        super().__init__()
        self.h, self.d_k = block.h, block.d_k
        if block.scale is not None:
            factor = block.scale * math.sqrt(block.d_k)
            block.W_q.weight.data *= factor  # stored int8 weights include the factor already
            if cast("Tensor | None", block.W_q.bias) is not None:
                block.W_q.bias = nn.Parameter(block.W_q.bias.detach() * factor)
        self.self_projection = weights.linear(block.W_q, block.W_k, block.W_v)
        self.W_q = self.self_projection.slice_outputs(0, block.h * block.d_k)
        self.W_kv = self.self_projection.slice_outputs(block.h * block.d_k, QUERIES_KEYS_VALUES * block.h * block.d_k)
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
        projected = self.self_projection(query, bf16_output=bias is None and supports_attention(self.d_k, mask))
        queries, keys, values = projected.chunk(QUERIES_KEYS_VALUES, dim=-1)
        source = KeyValueCache(self._split_heads(keys), self._split_heads(values))
        return self._attend_heads(queries, source, mask, bias, is_full_sequence=True)

    def keys_values(self, key: Float[Tensor, "B S D"], value: Float[Tensor, "B S D"]) -> KeyValueCache:
        """Projects the keys and values of every head, for a cache."""
        assert key is value
        shape = key.size(0), self.h, key.size(1), self.d_k
        caches = [torch.empty(shape, dtype=self.cache_dtype, device="cpu") for _ in ("keys", "values")]
        chunks = n_chunks(key)
        for chunk, *outs in zip(key.chunk(chunks), *(cache.chunk(chunks) for cache in caches), strict=True):
            projected = self.W_kv(chunk, bf16_output=self.cache_dtype == torch.bfloat16)
            for out, x in zip(outs, projected.chunk(2, dim=-1), strict=True):
                out.copy_(self._split_heads(x))
        return PackedCache(*caches)

    def attend(
        self, query: Float[Tensor, "B T D"], source: KeyValueCache, mask: Mask | None = None, bias: Bias | None = None
    ) -> Float[Tensor, "B T D"]:
        """Same as `forward`, but with keys and values that are projected already."""
        return self._attend_heads(self.W_q(query), source, mask, bias)

    def step(
        self,
        x: Float[Tensor, "B 1 D"],
        cache: KeyValueCache,
        positions: Int[Tensor, " B"],
        mask: Bool[Tensor, "B 1 1 T"],
        bias: Bias | None = None,
    ) -> Float[Tensor, "B 1 D"]:
        """Implements `MultiHeadAttention.step`."""
        queries, keys, values = self.self_projection(x).chunk(QUERIES_KEYS_VALUES, dim=-1)
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
        keys = self.W_kv(key).chunk(2, dim=-1)[0]
        return attention_weights(self._split_heads(self.W_q(query)), self._split_heads(keys), mask, bias=bias)

    def _attend_heads(
        self,
        queries: Float[Tensor, "B T D"],
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
            keys, values = source.keys.float(), source.values.float()
            heads = (
                attention(self._split_heads(queries.float()), keys, values, allowed, bias=bias)
                .transpose(1, 2)
                .flatten(2)
            )
        return self.W_o(heads)

    def _split_heads(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T E"]:
        return x.unflatten(2, (self.h, self.d_k)).transpose(1, 2)  # B H T E
