"""Scaled dot-product attention and its multi-head form."""

import math
from typing import Final

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from transformer.blocks.cache import KeyValueCache
from transformer.blocks.dropout import drop_out
from transformer.errors import ConfigError

PLAIN_UP_TO: Final = 256
"""Source positions up to which a CPU computes the attention weights, rather than calling the fused kernel."""

Mask = Bool[Tensor, "..."] | Int[Tensor, "..."]


def attention(
    query: Float[Tensor, "B H T E"],
    key: Float[Tensor, "B H S E"],
    value: Float[Tensor, "B H S E"],
    mask: Mask | None = None,
    dropout: float = 0.0,
) -> Float[Tensor, "B H T E"]:
    """Scaled dot-product attention: softmax(Q K^T / sqrt(d_k)) V.

    GPUs, and CPUs with long sources, use PyTorch's fused kernel, which never holds the (B, H, T, S) weights. For short
    sentences its backward pass on a CPU takes several times as long as the plain formula (`docs/log.md`).

    Args:
        query: what each position looks for.
        key: what each source position offers to be found by.
        value: what is fetched.
        mask: True or 1 = may attend; broadcasts to (B, H, T, S). A query row that may attend to nothing yields
            zeros, never NaN.
        dropout: probability of zeroing an attention weight; 0.0 outside training.

    Source: Vaswani et al. 2017, Sec. 3.2.1, Eq. 1.
    """
    if query.device.type != "cpu" or key.size(-2) > PLAIN_UP_TO:
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask=None if mask is None else mask.bool(), dropout_p=dropout
        )
    weights = drop_out(attention_weights(query, key, mask), dropout)
    return weights.to(value.dtype) @ value


def attention_weights(
    query: Float[Tensor, "B H T E"], key: Float[Tensor, "B H S E"], mask: Mask | None = None
) -> Float[Tensor, "B H T S"]:
    """The weights softmax(Q K^T / sqrt(d_k)) of `attention`; rows sum to 1, or to 0 where all is masked.

    Source: Vaswani et al. 2017, Sec. 3.2.1, Eq. 1.
    """
    scores = query @ key.transpose(-2, -1)  # B H T S
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32)) / math.sqrt(query.size(-1))
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

    Raises:
        ConfigError: h does not divide d_model.

    Source: Vaswani et al. 2017, Sec. 3.2.2. The paper writes the linear maps as plain matrices; here they have biases,
    as in `torch.nn.MultiheadAttention` and most re-implementations.
    """

    def __init__(self, d_model: int, h: int, dropout: float = 0.0) -> None:
        super().__init__()
        if h < 1 or d_model % h:
            divisor = next((n for n in range(8, 1, -1) if d_model % n == 0), 1)
            raise ConfigError(f"h={h} does not divide d_model={d_model}; choose a divisor, e.g. {divisor}")
        self.h = h
        self.d_k = d_model // h
        self.dropout = dropout
        self.W_q = nn.Linear(d_model, d_model)
        self.W_k = nn.Linear(d_model, d_model)
        self.W_v = nn.Linear(d_model, d_model)
        self.W_o = nn.Linear(d_model, d_model)

    def forward(
        self,
        query: Float[Tensor, "B T D"],
        key: Float[Tensor, "B S D"],
        value: Float[Tensor, "B S D"],
        mask: Mask | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Returns what each query position fetches.

        Args:
            query: positions that look.
            key: positions looked at.
            value: what they hold; the same tensor as `key` in the paper.
            mask: True or 1 = may attend; broadcasts to (B, h, T, S).
        """
        if query is key and key is value:
            queries, keys, values = (self._split(x) for x in _project(query, self.W_q, self.W_k, self.W_v))
            return self._fetch(queries, KeyValueCache(keys, values), mask)
        return self.attend(query, self.keys_values(key, value), mask)

    def keys_values(self, key: Float[Tensor, "B S D"], value: Float[Tensor, "B S D"]) -> KeyValueCache:
        """The keys and values of every head, which a cache keeps."""
        return KeyValueCache(self._split(self.W_k(key)), self._split(self.W_v(value)))

    def attend(
        self, query: Float[Tensor, "B T D"], source: KeyValueCache, mask: Mask | None = None
    ) -> Float[Tensor, "B T D"]:
        """As `forward`, with keys and values at hand."""
        return self._fetch(self._split(self.W_q(query)), source, mask)

    def step(
        self,
        x: Float[Tensor, "B 1 D"],
        cache: KeyValueCache,
        positions: Int[Tensor, " B"],
        mask: Bool[Tensor, "B 1 1 T"],
    ) -> Float[Tensor, "B 1 D"]:
        """Self-attention of one new position over itself and the cached ones.

        Args:
            x: the new position of each row.
            cache: keys and values so far; the new ones are written into it.
            positions: where each row's new position stands.
            mask: which of the first T cached positions each row may attend to.
        """
        new = self.keys_values(x, x)
        cache.write(new.keys, new.values, positions)
        return self.attend(x, cache.first(mask.size(-1)), mask)

    def attention_weights(
        self, query: Float[Tensor, "B T D"], key: Float[Tensor, "B S D"], mask: Mask | None = None
    ) -> Float[Tensor, "B {self.h} T S"]:
        """The weights that `forward` would use (without dropout), for inspection; `forward` itself never forms them."""
        return attention_weights(self._split(self.W_q(query)), self._split(self.W_k(key)), mask)

    def _fetch(
        self, queries: Float[Tensor, "B H T E"], source: KeyValueCache, mask: Mask | None
    ) -> Float[Tensor, "B T D"]:
        heads = attention(queries, source.keys, source.values, mask, self.dropout if self.training else 0.0)
        return self.W_o(heads.transpose(1, 2).flatten(2))  # B T D

    def _split(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T E"]:
        return x.unflatten(2, (self.h, self.d_k)).transpose(1, 2)  # B H T E


def _project(x: Float[Tensor, "B T D"], *maps: nn.Linear) -> tuple[Float[Tensor, "B T D"], ...]:
    """Several maps of one input as a single product: in training, x is rounded once and its gradient summed once."""
    weight, bias = torch.cat([each.weight for each in maps]), torch.cat([each.bias for each in maps])
    return F.linear(x, weight, bias).chunk(len(maps), dim=-1)
