"""A tiny model and requests that the tests of the search share."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from transformer.decoding import Request
from transformer.transformer import Transformer, build_transformer

EOS = 2


@cache
def model_of(seed: int, vocabulary: int = 7, ends: float = 0.5) -> Transformer:
    """A random model whose distributions are neither flat nor certain; callers must not change it."""
    torch.manual_seed(seed)
    model = build_transformer(vocabulary, vocabulary, 12, 40, d_model=16, N=1, h=2, d_ff=20, dropout=0.0)
    with torch.no_grad():
        model.projection_layer.proj.weight.mul_(3)
        assert model.projection_layer.proj.bias is not None
        model.projection_layer.proj.bias[EOS] = ends
    return model.eval()


def requests(seed: int, limits: Sequence[int], vocabulary: int = 7, **options: Any) -> list[Request]:
    """Sources of 1 to 6 tokens and EOS."""
    generator = torch.Generator().manual_seed(seed)
    lengths = [int(torch.randint(1, 7, (1,), generator=generator)) for _ in limits]
    sources = [torch.randint(4, vocabulary, (n,), generator=generator).tolist() for n in lengths]
    pairs = zip(sources, limits, strict=True)
    return [Request([*source, EOS], limit, number=i, **options) for i, (source, limit) in enumerate(pairs)]
