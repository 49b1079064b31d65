"""Drawing tokens from the model's distribution."""

from dataclasses import dataclass
from typing import Final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transformer.errors import ConfigError

LEAST_TEMPERATURE: Final = 0.001
"""Below it, what is drawn is the best token, or nothing that float32 can tell from the others."""


@dataclass(frozen=True)
class Sampling:
    """Which part of the distribution tokens are drawn from, and which random numbers draw them.

    Each sentence has random numbers of its own, so that neither its neighbours in a batch nor their order matter.

    Attributes:
        temperature: logits are divided by it; below 1 likely tokens become likelier.
        top_k: only the k most probable tokens; 0 keeps all (Fan et al. 2018, Sec. 5.1).
        top_p: only the fewest most probable tokens whose probabilities add up to p (Holtzman et al. 2020, Sec. 3.1).
        min_p: only tokens at least p times as probable as the most probable one (Nguyen et al. 2024).
        seed: of the random numbers.

    Raises:
        ConfigError: a value out of its range.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 1

    def __post_init__(self) -> None:
        """Refuses what cannot be drawn from."""
        if not LEAST_TEMPERATURE <= self.temperature < float("inf"):
            raise ConfigError(
                f"temperature={self.temperature} is below {LEAST_TEMPERATURE}; leave sampling out for greedy search"
            )
        if self.top_k < 0:
            raise ConfigError(f"top_k={self.top_k} is below 0; choose 0 to keep all tokens")
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"top_p={self.top_p} is not in (0, 1]; choose 1 to keep all tokens")
        if not 0 <= self.min_p <= 1:
            raise ConfigError(f"min_p={self.min_p} is not in [0, 1]; choose 0 to keep all tokens")


def uniforms(seed: int, number: int, samples: int, limit: int) -> Float[Tensor, "W L"]:
    """The random numbers of a sentence, in [0, 1): one a sample and step."""
    generator = torch.Generator().manual_seed((seed * 0x9E3779B97F4A7C15 + number) % 2**63)
    return torch.rand(samples, limit, generator=generator)


def draw(log_p: Float[Tensor, "*rows V"], uniform: Float[Tensor, "*rows"], sampling: Sampling) -> Int[Tensor, "*rows"]:
    """One token a row: the first at which the cumulated probability exceeds the row's random number."""
    p = kept(log_p / sampling.temperature, sampling).softmax(dim=-1, dtype=torch.float64)
    reached = p.cumsum(dim=-1)
    wanted = (uniform.to(reached.dtype)[..., None] * reached[..., -1:]).contiguous()
    drawn = torch.searchsorted(reached, wanted, right=True)[..., 0]
    return drawn.clamp(max=log_p.size(-1) - 1)


def kept(scores: Float[Tensor, "*rows V"], sampling: Sampling) -> Float[Tensor, "*rows V"]:
    """Scores of the tokens that may be drawn; -inf for the others. The most probable one always may."""
    if 0 < sampling.top_k < scores.size(-1):
        least = scores.topk(sampling.top_k, dim=-1).values[..., -1:]
        scores = scores.masked_fill(scores < least, -torch.inf)
    if sampling.min_p:
        p = scores.softmax(dim=-1)
        scores = scores.masked_fill(p < sampling.min_p * p.amax(dim=-1, keepdim=True), -torch.inf)
    if sampling.top_p < 1:
        ordered = scores.softmax(dim=-1).sort(dim=-1, descending=True)
        before = ordered.values.cumsum(dim=-1) - ordered.values
        dropped = torch.zeros_like(before, dtype=torch.bool).scatter_(-1, ordered.indices, before >= sampling.top_p)
        scores = scores.masked_fill(dropped, -torch.inf)
    return scores
