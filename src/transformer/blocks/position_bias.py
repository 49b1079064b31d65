"""Relative positions as a bias of attention. Each block gives one for query positions and a number of keys."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from transformer.errors import ConfigError


class RelativePositionBias(nn.Module):
    """A learned number a head for each bucket of distances, key position minus query position.

    Half of the buckets (of each direction) hold one distance each, the others logarithmically growing ranges up to
    `max_distance`; the last holds everything beyond too.

    Args:
        h: number of heads.
        buckets: of distances.
        max_distance: where the last range would end; more than half of the buckets.
        bidirectional: half of the buckets are for keys ahead; False puts all of those in bucket 0, which a causal mask
            hides but for the position itself.

    Raises:
        ConfigError: `max_distance` leaves nothing for the ranges.

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
        """Returns the bias of queries at the given positions and keys at 0 .. keys - 1."""
        distance = torch.arange(keys, device=queries.device) - queries[..., None]  # R T S
        return self.embedding(self._bucket(distance)).permute(0, 3, 1, 2)  # R H T S

    def _bucket(self, distance: Int[Tensor, "R T S"]) -> Int[Tensor, "R T S"]:
        buckets, first = self.buckets, torch.zeros_like(distance)
        if self.bidirectional:
            buckets //= 2
            first = (distance > 0) * buckets
            distance = distance.abs()
        else:
            distance = (-distance).clamp(min=0)
        exact = buckets // 2
        ratio = (distance.clamp(min=1).float() / exact).log() / math.log(self.max_distance / exact)
        ranged = (exact + (ratio * (buckets - exact)).long()).clamp(max=buckets - 1)
        return first + torch.where(distance < exact, distance, ranged)


class LinearBias(nn.Module):
    """Minus a slope a head times the distance between query and key (ALiBi); nothing is learned.

    The slopes are 2^(-8/h), 2^(-16/h), ..., 2^-8. For a number of heads that is no power of two they are those of the
    power below, then every second one of the power above, as in the authors' code.

    Args:
        h: number of heads.

    Source: Press et al. 2022, "Train Short, Test Long", Sec. 3, where keys ahead are masked; here they count as far as
    keys behind.
    """

    slopes: Tensor

    def __init__(self, h: int) -> None:
        super().__init__()
        below = 2 ** int(math.log2(h))
        slopes = [2.0 ** (-8 * i / below) for i in range(1, below + 1)]
        slopes += [2.0 ** (-4 * i / below) for i in range(1, 2 * (h - below), 2)]
        self.register_buffer("slopes", torch.tensor(slopes), persistent=False)

    def forward(self, queries: Int[Tensor, "R T"], keys: int) -> Float[Tensor, "R H T {keys}"]:
        """Returns the bias of queries at the given positions and keys at 0 .. keys - 1."""
        distance = (torch.arange(keys, device=queries.device) - queries[..., None]).abs()
        return -self.slopes[:, None, None] * distance[:, None]
