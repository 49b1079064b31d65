"""Sampling: draws tokens from the model's distribution, with temperature, top-k, top-p and min-p."""

from dataclasses import dataclass
from typing import Final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transformer.errors import ConfigError

MIN_TEMPERATURE: Final = 0.001
"""Below it, float32 cannot distinguish the best token from others, or the best token is always drawn."""


@dataclass(frozen=True)
class Sampling:
    """Options for drawing tokens.

    Each sentence has its own random stream, so that samples depend neither on the other sentences of a batch nor on
    their order.

    Attributes:
        temperature: Divisor of the logits; below 1, likely tokens become likelier.
        top_k: Number of most probable tokens to draw from; 0 keeps all (Fan et al. 2018, Sec. 5.1).
        top_p: Probability that the tokens to draw from, the fewest most probable ones, must add up to (Holtzman et al.
            2020, Sec. 3.1).
        min_p: Minimum probability of a token, relative to the most probable one (Nguyen et al. 2024).
        seed: Seed of the random streams.

    Raises:
        ConfigError: A value is out of its range.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 1

    def __post_init__(self) -> None:
        """Validates the options."""
        if not MIN_TEMPERATURE <= self.temperature < float("inf"):
            raise ConfigError(
                f"temperature={self.temperature} is below {MIN_TEMPERATURE}; leave sampling out for greedy search"
            )
        if self.top_k < 0:
            raise ConfigError(f"top_k={self.top_k} is below 0; choose 0 to keep all tokens")
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"top_p={self.top_p} is not in (0, 1]; choose 1 to keep all tokens")
        if not 0 <= self.min_p <= 1:
            raise ConfigError(f"min_p={self.min_p} is not in [0, 1]; choose 0 to keep all tokens")


def random_stream(seed: int, number: int, samples: int, limit: int) -> Float[Tensor, "W L"]:
    """Returns the random numbers of sentence `number`, uniform in [0, 1): one per sample and step."""
    generator = torch.Generator().manual_seed((seed * 0x9E3779B97F4A7C15 + number) % 2**63)
    return torch.rand(samples, limit, generator=generator)


def draw(log_p: Float[Tensor, "*rows V"], uniform: Float[Tensor, "*rows"], sampling: Sampling) -> Int[Tensor, "*rows"]:
    """Draws one token per row: the first whose cumulative probability exceeds the row's uniform random number."""
    p = filter_logits(log_p / sampling.temperature, sampling).softmax(dim=-1, dtype=torch.float64)
    cumulative = p.cumsum(dim=-1)
    threshold = (uniform.to(cumulative.dtype)[..., None] * cumulative[..., -1:]).contiguous()
    drawn = torch.searchsorted(cumulative, threshold, right=True)[..., 0]
    return drawn.clamp(max=log_p.size(-1) - 1)


def filter_logits(logits: Float[Tensor, "*rows V"], sampling: Sampling) -> Float[Tensor, "*rows V"]:
    """Filters logits by top-k, top-p (nucleus) and min-p: others become -inf, but never the most probable one."""
    if 0 < sampling.top_k < logits.size(-1):
        smallest = logits.topk(sampling.top_k, dim=-1).values[..., -1:]
        logits = logits.masked_fill(logits < smallest, -torch.inf)
    if sampling.min_p:
        p = logits.softmax(dim=-1)
        logits = logits.masked_fill(p < sampling.min_p * p.amax(dim=-1, keepdim=True), -torch.inf)
    if sampling.top_p < 1:
        ordered = logits.softmax(dim=-1).sort(dim=-1, descending=True)
        before = ordered.values.cumsum(dim=-1) - ordered.values
        dropped = torch.zeros_like(before, dtype=torch.bool).scatter_(-1, ordered.indices, before >= sampling.top_p)
        logits = logits.masked_fill(dropped, -torch.inf)
    return logits
