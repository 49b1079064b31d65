"""Relative positions as a bias of the attention scores."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from transformer.errors import ConfigError


class RelativePositionBias(nn.Module):
    """Relative position bias of T5: one learned bias per head and bucket of distances (key minus query position).

    Half of the buckets (of each direction) hold a single distance. The others hold ranges that grow logarithmically up
    to `max_distance`, and the last one also holds all larger distances.

    Args:
        h: Number of heads.
        buckets: Number of buckets.
        max_distance: Distance at which the last range would end, more than half of `buckets`.
        bidirectional: Whether half of the buckets are reserved for keys after the query. If False, all such keys fall
            into bucket 0 together with the query's own position; a causal mask hides them.

    Raises:
        ConfigError: `max_distance` is not more than half of `buckets`, which leaves no distances for the ranges.

    Source: Raffel et al. 2020, "Exploring the Limits of Transfer Learning", Sec. 2.1; Shaw et al. 2018.
    """

    def __init__(self, h: int, buckets: int = 32, max_distance: int = 128, *, bidirectional: bool) -> None:
        super().__init__()
        if max_distance <= buckets // 2:
            raise ConfigError(f"max_distance={max_distance} must be more than half of buckets={buckets}; raise it")
        self.buckets = buckets
        self.max_distance = max_distance
        self.bidirectional = bidirectional
        self.embedding = nn.Embedding(buckets, h)

    def forward(self, queries: Int[Tensor, "R T"], keys: int) -> Float[Tensor, "R H T {keys}"]:
        """Returns the bias for queries at positions `queries` and keys at positions 0 .. keys - 1."""
        distance = torch.arange(keys, device=queries.device) - queries[..., None]  # R T S
        return self.embedding(self._bucket(distance)).permute(0, 3, 1, 2)  # R H T S

    def _bucket(self, distance: Int[Tensor, "R T S"]) -> Int[Tensor, "R T S"]:
        buckets, offset = self.buckets, torch.zeros_like(distance)
        if self.bidirectional:
            buckets //= 2
            offset = (distance > 0) * buckets
            distance = distance.abs()
        else:
            distance = (-distance).clamp(min=0)
        exact = buckets // 2
        ratio = (distance.clamp(min=1).float() / exact).log() / math.log(self.max_distance / exact)
        logarithmic = (exact + (ratio * (buckets - exact)).long()).clamp(max=buckets - 1)
        return offset + torch.where(distance < exact, distance, logarithmic)


class LinearBias(nn.Module):
    """ALiBi: a bias of minus the head's slope times the distance between query and key; nothing is learned.

    The slopes are 2^(-8/h), 2^(-16/h), ..., 2^-8. If the number of heads is not a power of two, they are the slopes of
    the next lower power, followed by every second slope of the next higher power, as in the authors' code.

    Args:
        h: Number of heads.

    Source: Press et al. 2022, "Train Short, Test Long", Sec. 3, where keys after the query are masked; here they get
    the same bias as keys at the same distance before it.
    """

    slopes: Tensor

    def __init__(self, h: int) -> None:
        super().__init__()
        lower = 2 ** int(math.log2(h))
        slopes = [2.0 ** (-8 * i / lower) for i in range(1, lower + 1)]
        slopes += [2.0 ** (-4 * i / lower) for i in range(1, 2 * (h - lower), 2)]
        self.register_buffer("slopes", torch.tensor(slopes), persistent=False)

    def forward(self, queries: Int[Tensor, "R T"], keys: int) -> Float[Tensor, "R H T {keys}"]:
        """Returns the bias for queries at positions `queries` and keys at positions 0 .. keys - 1."""
        distance = (torch.arange(keys, device=queries.device) - queries[..., None]).abs()
        return -self.slopes[:, None, None] * distance[:, None]
