"""Scaled dot-product attention and its multi-head form."""

import math
from collections.abc import Sequence
from typing import Final, cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.overrides import handle_torch_function, has_torch_function

from transformer.blocks.cache import KeyValueCache
from transformer.blocks.dropout import drop_out
from transformer.errors import ConfigError

PLAIN_UP_TO: Final = 256
"""Source positions up to which a CPU computes the attention weights, rather than calling the fused kernel."""

Mask = Bool[Tensor, "..."] | Int[Tensor, "..."]
Bias = Float[Tensor, "..."]


def attention(
    query: Float[Tensor, "B H T E"],
    key: Float[Tensor, "B H S E"],
    value: Float[Tensor, "B H S E"],
    mask: Mask | None = None,
    dropout: float = 0.0,
    *,
    bias: Bias | None = None,
    scale: float | None = None,
) -> Float[Tensor, "B H T E"]:
    """Scaled dot-product attention: softmax(Q K^T / sqrt(d_k)) V.

    GPUs, and CPUs with long sources, use PyTorch's fused kernel, which never holds the (B, H, T, S) weights (on a CPU:
    without dropout and a learned bias). For short sentences its backward pass on a CPU takes several times as long as
    the plain formula (`docs/experiments/training-speed.md`).

    Args:
        query: what each position looks for.
        key: what each source position offers to be found by.
        value: what is fetched.
        mask: True or 1 = may attend; broadcasts to (B, H, T, S). A query row that may attend to nothing yields
            zeros, never NaN.
        dropout: probability of zeroing an attention weight; 0.0 outside training.
        bias: added to the scaled products before the softmax; broadcasts to (B, H, T, S).
        scale: in place of 1 / sqrt(d_k).

    Like functions of torch, it can be replaced within a context (`torch.overrides`), as training does on a CPU.

    Source: Vaswani et al. 2017, Sec. 3.2.1, Eq. 1.
    """
    if has_torch_function((query, key, value)):
        return handle_torch_function(
            attention, (query, key, value), query, key, value, mask, dropout, bias=bias, scale=scale
        )
    if query.device.type != "cpu" or key.size(-2) > PLAIN_UP_TO:
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
    """The weights softmax(Q K^T / sqrt(d_k)) of `attention`; rows sum to 1, or to 0 where all is masked.

    Source: Vaswani et al. 2017, Sec. 3.2.1, Eq. 1.
    """
    scores = query @ key.transpose(-2, -1)  # B H T S
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    scores = scores / math.sqrt(query.size(-1)) if scale is None else scores * scale
    scores = scores if bias is None else scores + bias
    if mask is None:
        return scores.softmax(dim=-1)
    masked = ~mask.bool()
    # A row that may attend to nothing is NaN after the softmax; here and in the gradient, the second fill removes it.
    return scores.masked_fill(masked, -torch.inf).softmax(dim=-1).masked_fill(masked, 0.0)


class MultiHeadAttention(nn.Module):
    """Attention in h subspaces side by side: Concat(head_1, ..., head_h) W_o.

    head_i = attention(Q W_q_i, K W_k_i, V W_v_i). The W_i of all heads are one linear map each for Q, K and V; head i
    (from 0) is features i * d_k to (i + 1) * d_k - 1 of its output, d_k = d_model / h.

    Args:
        d_model: width of queries, keys, values and the output.
        h: number of heads, a divisor of d_model.
        dropout: probability of zeroing an attention weight in training. The paper has none (0.0).
        d_k: width of a head where it is not d_model / h; h then need not divide d_model.
        kv_heads: heads of keys and values, a divisor of h: h / kv_heads queries in a row share one. h if not given; 1
            is multi-query attention.
        bias: of the linear maps: "all", "output" (W_o alone) or "none".
        scale: of the products, in place of 1 / sqrt(d_k).

    Raises:
        ConfigError: h does not divide d_model, kv_heads does not divide h, or `bias` is none of the three.

    Source: Vaswani et al. 2017, Sec. 3.2.2. The paper writes the linear maps as plain matrices; here they have biases,
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
        kv_heads: int | None = None,
        bias: str = "all",
        scale: float | None = None,
    ) -> None:
        super().__init__()
        if h < 1 or (d_k is None and d_model % h):
            divisor = next((n for n in range(8, 1, -1) if d_model % n == 0), 1)
            raise ConfigError(f"h={h} does not divide d_model={d_model}; choose a divisor, e.g. {divisor}")
        self.h = h
        self.kv_heads = h if kv_heads is None else kv_heads
        if self.kv_heads < 1 or h % self.kv_heads:
            raise ConfigError(f"kv_heads={kv_heads} does not divide h={h}; choose a divisor")
        if bias not in ("all", "output", "none"):
            raise ConfigError(f"bias={bias!r} is unknown; choose 'all', 'output' or 'none'")
        self.d_k = d_model // h if d_k is None else d_k
        self.dropout = dropout
        self.scale = scale
        self.W_q = nn.Linear(d_model, self.d_k * h, bias=bias == "all")
        self.W_k = nn.Linear(d_model, self.d_k * self.kv_heads, bias=bias == "all")
        self.W_v = nn.Linear(d_model, self.d_k * self.kv_heads, bias=bias == "all")
        self.W_o = nn.Linear(self.d_k * h, d_model, bias=bias != "none")

    def forward(
        self,
        query: Float[Tensor, "B T D"],
        key: Float[Tensor, "B S D"],
        value: Float[Tensor, "B S D"],
        mask: Mask | None = None,
        bias: Bias | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Returns what each query position fetches.

        Args:
            query: positions that look.
            key: positions looked at.
            value: what they hold; the same tensor as `key` in the paper.
            mask: True or 1 = may attend; broadcasts to (B, h, T, S).
            bias: added to the scaled products; broadcasts likewise.
        """
        if query is key and key is value:
            queries, keys, values = (self._split(x) for x in fused_linear(query, (self.W_q, self.W_k, self.W_v)))
            return self._fetch(self.placed(queries), KeyValueCache(self.placed(keys), values), mask, bias)
        return self.attend(query, self.keys_values(key, value), mask, bias)

    def keys_values(
        self, key: Float[Tensor, "B S D"], value: Float[Tensor, "B S D"], positions: Int[Tensor, " B"] | None = None
    ) -> KeyValueCache:
        """The keys and values of every head, which a cache keeps; `positions` as in `placed`."""
        return KeyValueCache(self.placed(self._split(self.W_k(key)), positions), self._split(self.W_v(value)))

    def attend(
        self,
        query: Float[Tensor, "B T D"],
        source: KeyValueCache,
        mask: Mask | None = None,
        bias: Bias | None = None,
        positions: Int[Tensor, " B"] | None = None,
    ) -> Float[Tensor, "B T D"]:
        """As `forward`, with keys and values at hand; `positions` as in `placed`."""
        return self._fetch(self.placed(self._split(self.W_q(query)), positions), source, mask, bias)

    def placed(
        self, x: Float[Tensor, "B H T E"], positions: Int[Tensor, " B"] | None = None
    ) -> Float[Tensor, "B H T E"]:
        """Queries or keys with their positions in them: here they have none, see `RotaryAttention`.

        Args:
            x: of every head.
            positions: of the first one of each row; 0 if not given.
        """
        del positions
        return x

    def step(
        self,
        x: Float[Tensor, "B 1 D"],
        cache: KeyValueCache,
        positions: Int[Tensor, " B"],
        mask: Bool[Tensor, "B 1 1 T"],
        bias: Bias | None = None,
    ) -> Float[Tensor, "B 1 D"]:
        """Self-attention of one new position over itself and the cached ones.

        Args:
            x: the new position of each row.
            cache: keys and values so far; the new ones are written into it.
            positions: where each row's new position stands.
            mask: which of the first T cached positions each row may attend to.
            bias: as in `forward`.
        """
        new = self.keys_values(x, x, positions)
        cache.write(new.keys, new.values, positions)
        return self.attend(x, cache.first(mask.size(-1)), mask, bias, positions)

    def attention_weights(
        self,
        query: Float[Tensor, "B T D"],
        key: Float[Tensor, "B S D"],
        mask: Mask | None = None,
        bias: Bias | None = None,
    ) -> Float[Tensor, "B {self.h} T S"]:
        """The weights that `forward` would use (without dropout), for inspection; `forward` does not return them."""
        queries, keys = (self.placed(self._split(x)) for x in (self.W_q(query), self.W_k(key)))
        return attention_weights(queries, self._repeated(keys), mask, bias=bias, scale=self.scale)

    def _fetch(
        self, queries: Float[Tensor, "B H T E"], source: KeyValueCache, mask: Mask | None, bias: Bias | None
    ) -> Float[Tensor, "B T D"]:
        keys, values = self._repeated(source.keys), self._repeated(source.values)
        dropout = self.dropout if self.training else 0.0
        heads = attention(queries, keys, values, mask, dropout, bias=bias, scale=self.scale)
        return self.W_o(heads.transpose(1, 2).flatten(2))  # B T D

    def _split(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T E"]:
        return x.unflatten(2, (-1, self.d_k)).transpose(1, 2)  # B H T E

    def _repeated(self, x: Float[Tensor, "B G S E"]) -> Float[Tensor, "B {self.h} S E"]:
        """Keys or values, once for each query head that shares them."""
        return x if self.kv_heads == self.h else x.repeat_interleave(self.h // self.kv_heads, dim=1)


def fused_linear(x: Float[Tensor, "B T D"], maps: Sequence[nn.Linear]) -> tuple[Tensor, ...]:
    """Several maps of one input as a single product: in training, x is rounded once and its gradient summed once.

    It can be replaced within a context, as `attention` can.
    """
    if has_torch_function((x,)):
        return handle_torch_function(fused_linear, (x,), x, maps)
    biases: list[Tensor] = [each.bias for each in maps if cast("Tensor | None", each.bias) is not None]
    joined = F.linear(x, torch.cat([each.weight for each in maps]), torch.cat(biases) if biases else None)
    return joined.split([each.out_features for each in maps], dim=-1)
