"""Attention masks. True means "may attend"; every mask broadcasts to (B, H, T, S)."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from transformer.errors import ConfigError


def padding_mask(tokens: Int[Tensor, "B S"], pad_id: int = 0) -> Bool[Tensor, "B 1 1 S"]:
    """Returns a mask by which every query may attend to the tokens that are not padding."""
    return (tokens != pad_id)[:, None, None, :]


def causal_mask(length: int, device: torch.device | None = None) -> Bool[Tensor, "1 1 {length} {length}"]:
    """Returns a mask by which position t may attend to positions 0 .. t, and not to later ones.

    Source: Vaswani et al. 2017, Sec. 3.2.3, third point.
    """
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()[None, None]


def neighbourhood_mask(
    length: int, r: int, device: torch.device | None = None
) -> Bool[Tensor, "1 1 {length} {length}"]:
    """Returns a mask by which each position may attend to a neighbourhood of r positions around it.

    Combine it with the padding mask, or with the causal mask, by `&`. A mask hides the other positions but does not
    save their computation.

    Args:
        length: Number of positions.
        r: Size of the neighbourhood. Position t may attend to t - r // 2 .. t + (r - 1) // 2.
        device: Device of the mask.

    Raises:
        ConfigError: r is below 1.

    Source: Vaswani et al. 2017, Sec. 4 and Table 1, restricted self-attention.
    """
    if r < 1:
        raise ConfigError(f"r={r} is below 1; choose a neighbourhood that has a position")
    places = torch.arange(length, device=device)
    offsets = places - places[:, None]
    return ((offsets >= -(r // 2)) & (offsets <= (r - 1) // 2))[None, None]


def target_mask(tokens: Int[Tensor, "B T"], pad_id: int = 0) -> Bool[Tensor, "B 1 T T"]:
    """Returns the combined causal and padding mask, for targets with padding at any position.

    If all padding is at the end, as in training, `causal_mask` alone hides it from the positions that are scored.
    """
    return padding_mask(tokens, pad_id) & causal_mask(tokens.size(1), tokens.device)
