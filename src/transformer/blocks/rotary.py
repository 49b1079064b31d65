"""Rotary position embeddings (RoPE): queries and keys are rotated by angles that depend on their positions."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from transformer.blocks.aliases import keyword_aliases
from transformer.blocks.attention import Bias, Mask, MultiHeadAttention
from transformer.blocks.cache import KeyValueCache
from transformer.errors import ConfigError


@dataclass(frozen=True)
class FrequencyScaling:
    """Slower rotations for texts that are longer than those of the pre-training, as in Llama 3.1.

    Pairs that turn less than `low` times within `seq_len` positions are slowed down by `factor`. Those that turn more
    than `high` times stay, and the speed of those in between is interpolated.

    Args:
        factor: Divisor of the low frequencies, at least 1.
        low: Number of turns below which a frequency is low.
        high: Number of turns above which a frequency stays; more than `low`.
        seq_len: Number of positions of the pre-training.

    Source: the authors' code of Llama 3.1; `rope_type` "llama3" of `transformers`.
    """

    factor: float
    low: float
    high: float
    seq_len: int

    def __post_init__(self) -> None:
        if self.factor < 1 or not 0 < self.low < self.high or self.seq_len < 1:
            raise ConfigError(f"{self} slows nothing down; choose factor >= 1, 0 < low < high and seq_len >= 1")

    def __call__(self, frequencies: Float[Tensor, " F"]) -> Float[Tensor, " F"]:
        """Returns the scaled frequencies, in radians a position."""
        turns = self.seq_len * frequencies / (2 * math.pi)
        kept = ((turns - self.low) / (self.high - self.low)).clamp(0, 1)
        return kept * frequencies + (1 - kept) * frequencies / self.factor


class RotaryPositions(nn.Module):
    """Rotary position embedding (RoPE): rotates pair i of a head's features by position * base^(-2i / d_k).

    The dot product of a query at position m and a key at position n then depends on the positions only through m - n.
    Pair i consists of the features i and i + d_k / 2, as in published models. The paper pairs 2i and 2i + 1, which is
    equivalent after reordering the outputs of W_q and W_k.

    Args:
        d_k: Width of a head, even.
        seq_len: Number of positions.
        base: Base of the frequencies.
        scaling: Function that changes the frequencies, such as `FrequencyScaling`.

    Raises:
        ConfigError: `d_k` is odd.

    Source: Su et al. 2021, "RoFormer", Sec. 3.2.2, Eq. 14-16 and 34.
    """

    cosines: Tensor
    sines: Tensor

    def __init__(
        self,
        d_k: int,
        seq_len: int,
        base: float = 10000.0,
        *,
        scaling: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        if d_k % 2:
            raise ConfigError(f"d_k={d_k} is odd, but features are rotated in pairs; choose an even width of heads")
        self.seq_len = seq_len
        frequency = base ** (-torch.arange(0, d_k, 2, dtype=torch.float64) / d_k)
        frequency = frequency if scaling is None else scaling(frequency)
        angle = torch.outer(torch.arange(seq_len, dtype=torch.float64), frequency)
        for name, table in (("cosines", angle.cos()), ("sines", angle.sin())):
            self.register_buffer(name, table.to(torch.get_default_dtype()), persistent=False)

    def forward(
        self, x: Float[Tensor, "B H T E"], positions: Int[Tensor, " B"] | None = None
    ) -> Float[Tensor, "B H T E"]:
        """Returns `x` rotated.

        Args:
            x: Queries or keys of every head.
            positions: Position of the first query or key of each row; default: 0. The caller must ensure that all
                positions are below `seq_len`.

        Raises:
            ConfigError: `x` is longer than `seq_len`.
        """
        length = x.size(2)
        if length > self.seq_len:
            raise ConfigError(f"length={length} exceeds seq_len={self.seq_len} positions; shorten the input")
        if positions is None:
            cosines, sines = self.cosines[:length], self.sines[:length]  # T E/2
        else:
            indices = positions[:, None] + torch.arange(length, device=x.device)
            cosines, sines = (table[indices][:, None] for table in (self.cosines, self.sines))  # B 1 T E/2
        first, second = x.chunk(2, dim=-1)
        rotated = torch.cat([first * cosines - second * sines, second * cosines + first * sines], dim=-1)
        return rotated.to(x.dtype)


@keyword_aliases(num_heads="h")
class RotaryAttention(MultiHeadAttention):
    """Self-attention whose queries and keys are rotated by their positions; see `RotaryPositions`.

    Args:
        d_model: Width of queries, keys, values and the output.
        h: Number of heads.
        rotation: Rotation for heads of width d_k; may be shared by all layers.
        dropout: Probability of zeroing an attention weight in training.
        d_k: Width of a head if it is not d_model / h.
        kv_heads: Number of heads of keys and values, as in `MultiHeadAttention`.
        bias: Linear layers that have a bias, as in `MultiHeadAttention`.
    """

    def __init__(
        self,
        d_model: int,
        h: int,
        rotation: RotaryPositions,
        dropout: float = 0.0,
        *,
        d_k: int | None = None,
        kv_heads: int | None = None,
        bias: str = "all",
    ) -> None:
        super().__init__(d_model, h, dropout, d_k=d_k, kv_heads=kv_heads, bias=bias)
        self.rotation = rotation

    def queries_keys_values(self, x: Float[Tensor, "B T D"]) -> tuple[Tensor, Tensor, Tensor]:
        """Implements `MultiHeadAttention.queries_keys_values`, at the positions 0 .. T - 1."""
        queries, keys, values = super().queries_keys_values(x)
        return self.rotation(queries), self.rotation(keys), values

    def queries(
        self, query: Float[Tensor, "B T D"], positions: Int[Tensor, " B"] | None = None
    ) -> Float[Tensor, "B {self.h} T E"]:
        """Implements `MultiHeadAttention.queries`; `positions` as in `RotaryPositions.forward`."""
        return self.rotation(super().queries(query), positions)

    def keys_values(
        self, key: Float[Tensor, "B S D"], value: Float[Tensor, "B S D"], positions: Int[Tensor, " B"] | None = None
    ) -> KeyValueCache:
        """Implements `MultiHeadAttention.keys_values`; `positions` as in `RotaryPositions.forward`."""
        source = super().keys_values(key, value)
        return KeyValueCache(self.rotation(source.keys, positions), source.values)

    def attend(
        self,
        query: Float[Tensor, "B T D"],
        source: KeyValueCache,
        mask: Mask | None = None,
        bias: Bias | None = None,
        positions: Int[Tensor, " B"] | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Implements `MultiHeadAttention.attend`; `positions` as in `RotaryPositions.forward`."""
        return self._attend_heads(self.queries(query, positions), source, mask, bias)

    def step(
        self,
        x: Float[Tensor, "B 1 D"],
        cache: KeyValueCache,
        positions: Int[Tensor, " B"],
        mask: Bool[Tensor, "B 1 1 T"],
        bias: Bias | None = None,
    ) -> Float[Tensor, "B 1 D"]:
        """Implements `MultiHeadAttention.step`."""
        length = mask.size(-1)
        cache.write(self.keys_values(x, x, positions), positions, length)
        return self.attend(x, cache.first(length), mask, bias, positions)
