"""Scaled dot-product attention and its multi-head form."""

import math
from collections.abc import Sequence
from typing import Final, cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from transformer.blocks.aliases import keyword_aliases
from transformer.blocks.cache import KeyValueCache
from transformer.blocks.dropout import drop_out
from transformer.blocks.overrides import overridable
from transformer.errors import ConfigError

MAX_UNFUSED_LENGTH: Final = 256
"""Longest source for which a CPU computes the attention weights instead of calling the fused kernel."""

Mask = Bool[Tensor, "..."] | Int[Tensor, "..."]
Bias = Float[Tensor, "..."]


@overridable
def attention(
    query: Float[Tensor, "B H T E"],
    key: Float[Tensor, "B H S E"],
    value: Float[Tensor, "B H S E_v"],
    mask: Mask | None = None,
    dropout: float = 0.0,
    *,
    bias: Bias | None = None,
    scale: float | None = None,
) -> Float[Tensor, "B H T E_v"]:
    """Scaled dot-product attention: softmax(Q K^T / sqrt(d_k)) V.

    GPUs, and CPUs with long sources, use PyTorch's fused kernel (flash attention), which never materializes the
    (B, H, T, S) weights (on a CPU, provided that there is neither dropout nor a learned bias). For short sentences on a
    CPU, the backward pass of that kernel takes several times as long as that of the plain formula
    (`docs/experiments/training-speed.md`).

    Args:
        query: Queries Q, one per target position and head.
        key: Keys K, one per source position and head.
        value: Values V, one per source position and head.
        mask: Positions that may be attended to: True or 1 = may attend; broadcasts to (B, H, T, S). A query that may
            attend to nothing yields zeros, never NaN.
        dropout: Probability of zeroing an attention weight; 0.0 outside training.
        bias: Bias added to the scaled scores before the softmax; broadcasts to (B, H, T, S).
        scale: Factor of the scores, instead of 1 / sqrt(d_k).

    Source: Vaswani et al. 2017, Sec. 3.2.1, Eq. 1.
    """
    if query.device.type != "cpu" or key.size(-2) > MAX_UNFUSED_LENGTH:
        allowed = None if mask is None else mask.bool()
        if bias is not None:
            bias = bias.to(query.dtype)
            allowed = bias if allowed is None else bias.masked_fill(~allowed, -torch.inf)
        return F.scaled_dot_product_attention(query, key, value, allowed, dropout, scale=scale)
    weights = drop_out(attention_weights(query, key, mask, bias=bias, scale=scale), dropout)
    return weights.to(value.dtype) @ value


def attention_weights(
    query: Float[Tensor, "B H T E"],
    key: Float[Tensor, "B H S E"],
    mask: Mask | None = None,
    *,
    bias: Bias | None = None,
    scale: float | None = None,
) -> Float[Tensor, "B H T S"]:
    """Computes the weights softmax(Q K^T / sqrt(d_k)) of `attention`.

    Each row sums to 1, or to 0 if all of its positions are masked.

    Source: Vaswani et al. 2017, Sec. 3.2.1, Eq. 1.
    """
    scores = query @ key.transpose(-2, -1)  # B H T S
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    scores = scores / math.sqrt(query.size(-1)) if scale is None else scores * scale
    scores = scores if bias is None else scores + bias
    if mask is None:
        return scores.softmax(dim=-1)
    masked = ~mask.bool()
    # A fully masked row is NaN after the softmax; the second fill removes it, both here and in the gradient.
    return scores.masked_fill(masked, -torch.inf).softmax(dim=-1).masked_fill(masked, 0.0)


@keyword_aliases(num_heads="h")
class MultiHeadAttention(nn.Module):
    """Multi-head attention: Concat(head_1, ..., head_h) W_o, where head_i = attention(Q W_q_i, K W_k_i, V W_v_i).

    The projections W_q_i of all heads are stored as one linear layer W_q, and likewise W_k and W_v. Head i (counted
    from 0) consists of the features i * d_k to (i + 1) * d_k - 1 of its output, where d_k = d_model / h. The paper's
    d_v, the width of a head's values, equals d_k there too; Table 3, row (B), has smaller d_k.

    Args:
        d_model: Width of queries, keys, values and the output.
        h: Number of heads, a divisor of d_model.
        dropout: Probability of zeroing an attention weight in training; the paper uses none (0.0).
        d_k: Width of a head's queries and keys if it is not d_model / h; h then need not divide d_model.
        d_v: Width of a head's values if it is not d_k.
        kv_heads: Number of heads of keys and values, a divisor of h; default: h. Each of them is shared by
            h / kv_heads consecutive query heads (grouped-query attention); 1 is multi-query attention.
        bias: Linear layers that have a bias: "all", "output" (W_o alone) or "none".
        scale: Factor of the scores, instead of 1 / sqrt(d_k).

    Raises:
        ConfigError: h does not divide d_model, kv_heads does not divide h, a width is below 1, or `bias` is none of
            the three.

    Source: Vaswani et al. 2017, Sec. 3.2.2. The paper writes the projections as plain matrices; here they have biases,
    as in `torch.nn.MultiheadAttention` and most re-implementations. Fewer heads of keys and values: Ainslie et al.
    2023, "GQA", Sec. 2.2; Shazeer 2019, "Fast Transformer Decoding", Sec. 3.
    """

    def __init__(
        self,
        d_model: int,
        h: int,
        dropout: float = 0.0,
        *,
        d_k: int | None = None,
        d_v: int | None = None,
        kv_heads: int | None = None,
        bias: str = "all",
        scale: float | None = None,
    ) -> None:
        super().__init__()
        if h < 1 or (d_k is None and d_model % h):
            divisor = next((n for n in range(8, 1, -1) if d_model % n == 0), 1)
            raise ConfigError(f"h={h} does not divide d_model={d_model}; choose a divisor, e.g. {divisor}")
        self.d_model = d_model
        self.h = h
        self.kv_heads = h if kv_heads is None else kv_heads
        if self.kv_heads < 1 or h % self.kv_heads:
            raise ConfigError(f"kv_heads={kv_heads} does not divide h={h}; choose a divisor")
        if bias not in ("all", "output", "none"):
            raise ConfigError(f"bias={bias!r} is unknown; choose 'all', 'output' or 'none'")
        self.d_k = d_model // h if d_k is None else d_k
        self.d_v = self.d_k if d_v is None else d_v
        if min(self.d_k, self.d_v) < 1:
            raise ConfigError(f"d_k={self.d_k} and d_v={self.d_v} are widths of heads; choose positive numbers")
        self.dropout = dropout
        self.scale = scale
        self.W_q = nn.Linear(d_model, self.d_k * h, bias=bias == "all")
        self.W_k = nn.Linear(d_model, self.d_k * self.kv_heads, bias=bias == "all")
        self.W_v = nn.Linear(d_model, self.d_v * self.kv_heads, bias=bias == "all")
        self.W_o = nn.Linear(self.d_v * h, d_model, bias=bias != "none")

    def forward(
        self,
        query: Float[Tensor, "B T D"],
        key: Float[Tensor, "B S D"],
        value: Float[Tensor, "B S D"],
        mask: Mask | None = None,
        bias: Bias | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Returns the attention output at every query position.

        Args:
            query: Input of W_q, one vector per query position.
            key: Input of W_k, one vector per source position.
            value: Input of W_v; the same tensor as `key` in the paper.
            mask: Positions that may be attended to: True or 1 = may attend; broadcasts to (B, h, T, S).
            bias: Bias added to the scaled scores; broadcasts to (B, h, T, S).
        """
        if query is key and key is value:
            queries, keys, values = self.queries_keys_values(query)
            return self._attend_heads(queries, KeyValueCache(keys, values), mask, bias)
        return self.attend(query, self.keys_values(key, value), mask, bias)

    def queries_keys_values(self, x: Float[Tensor, "B T D"]) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the queries, keys and values of every head for self-attention, of shape (B, h, T, d_k or d_v)."""
        queries, keys, values = fused_linear(x, (self.W_q, self.W_k, self.W_v))
        return _split_heads(queries, self.d_k), _split_heads(keys, self.d_k), _split_heads(values, self.d_v)

    def queries(self, query: Float[Tensor, "B T D"]) -> Float[Tensor, "B {self.h} T E"]:
        """Returns the queries of every head."""
        return _split_heads(self.W_q(query), self.d_k)

    def keys_values(self, key: Float[Tensor, "B S D"], value: Float[Tensor, "B S D"]) -> KeyValueCache:
        """Returns the keys and values of every head, as a cache stores them."""
        return KeyValueCache(_split_heads(self.W_k(key), self.d_k), _split_heads(self.W_v(value), self.d_v))

    def attend(
        self, query: Float[Tensor, "B T D"], source: KeyValueCache, mask: Mask | None = None, bias: Bias | None = None
    ) -> Float[Tensor, "B T D"]:
        """Same as `forward`, but with projected keys and values."""
        return self._attend_heads(self.queries(query), source, mask, bias)

    def step(
        self,
        x: Float[Tensor, "B 1 D"],
        cache: KeyValueCache,
        positions: Int[Tensor, " B"],
        mask: Bool[Tensor, "B 1 1 T"],
        bias: Bias | None = None,
    ) -> Float[Tensor, "B 1 D"]:
        """Computes self-attention for one new position per row, over itself and the cached positions.

        Args:
            x: Input at the new position of each row.
            cache: Keys and values so far; those of the new position are written into it.
            positions: Index of the new position of each row.
            mask: Those of the first T cached positions that each row may attend to.
            bias: Bias added to the scaled scores, as in `forward`.
        """
        length = mask.size(-1)
        cache.write(self.keys_values(x, x), positions, length)
        return self.attend(x, cache.first(length), mask, bias)

    def attention_weights(
        self,
        query: Float[Tensor, "B T D"],
        key: Float[Tensor, "B S D"],
        mask: Mask | None = None,
        bias: Bias | None = None,
    ) -> Float[Tensor, "B {self.h} T S"]:
        """Returns the weights that `forward` uses (without dropout), for inspection."""
        keys = self._repeat_kv(self.keys_values(key, key).keys)
        return attention_weights(self.queries(query), keys, mask, bias=bias, scale=self.scale)

    def _attend_heads(
        self, queries: Float[Tensor, "B H T E"], source: KeyValueCache, mask: Mask | None, bias: Bias | None
    ) -> Float[Tensor, "B T D"]:
        keys, values = self._repeat_kv(source.keys), self._repeat_kv(source.values)
        dropout = self.dropout if self.training else 0.0
        heads = attention(queries, keys, values, mask, dropout, bias=bias, scale=self.scale)
        return self.W_o(heads.transpose(1, 2).flatten(2))  # B T D

    def _repeat_kv(self, x: Float[Tensor, "B G S E"]) -> Float[Tensor, "B {self.h} S E"]:
        """Repeats keys or values for every query head that shares them."""
        return x if self.kv_heads == self.h else x.repeat_interleave(self.h // self.kv_heads, dim=1)


def _split_heads(x: Float[Tensor, "B T D"], width: int) -> Float[Tensor, "B H T E"]:
    return x.unflatten(2, (-1, width)).transpose(1, 2)


@overridable
def fused_linear(x: Float[Tensor, "B T D"], layers: Sequence[nn.Linear]) -> tuple[Tensor, ...]:
    """Applies several linear layers to one input as a single matrix product.

    In training, x is then rounded only once, and its gradient is summed only once.
    """
    biases: list[Tensor] = [layer.bias for layer in layers if cast("Tensor | None", layer.bias) is not None]
    outputs = F.linear(x, torch.cat([layer.weight for layer in layers]), torch.cat(biases) if biases else None)
    return outputs.split([layer.out_features for layer in layers], dim=-1)
