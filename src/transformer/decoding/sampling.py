"""Sampling: draws tokens from the model's distribution, with temperature, top-k, top-p and min-p."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transformer.options.search import Sampling


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
