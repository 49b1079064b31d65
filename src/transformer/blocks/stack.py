"""The parts that encoders and decoders share: a stack of layers, a final norm, and a bias for the positions."""

from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from transformer.blocks.attention import Bias
from transformer.blocks.cache import IncrementalState
from transformer.blocks.normalization import LayerNormalization


class LayerStack(nn.Module):
    """A stack of N layers and a final norm.

    Args:
        layers: The layers, first to last.
        norm: Normalization of the last layer's output; default: a `LayerNormalization`. A pre-norm stack needs one,
            since its output would otherwise be an unnormalized sum. Use `nn.Identity()` for the paper's post-norm
            stack, whose last layer already ends in a norm.
        position_bias: Module that computes the bias of the self-attention scores shared by all layers, e.g.
            `RelativePositionBias`, or None.
    """

    def __init__(
        self, layers: nn.ModuleList, norm: nn.Module | None = None, *, position_bias: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.layers = layers
        self.norm = LayerNormalization(cast(int, layers[0].d_model)) if norm is None else norm
        self.position_bias = position_bias

    def self_attention_bias(self, x: Float[Tensor, "B T D"]) -> Bias | None:
        """Returns the bias between the positions 0 .. T - 1 of `x`."""
        if self.position_bias is None:
            return None
        return self.position_bias(torch.arange(x.size(1), device=x.device)[None], x.size(1))

    def step_bias(self, state: IncrementalState) -> Bias | None:
        """Returns the bias between the next position of each row and all positions up to the longest row's."""
        if self.position_bias is None:
            return None
        return self.position_bias(state.positions[:, None], state.longest + 1)
