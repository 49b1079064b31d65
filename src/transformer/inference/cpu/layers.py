"""Packed versions of single blocks."""

from collections.abc import Callable
from typing import Final, cast

from jaxtyping import Float, Int
from torch import Tensor, nn

from transformer.blocks.embedding import InputEmbedding
from transformer.blocks.feed_forward import ACTIVATIONS, Activation, FeedForwardBlock, GatedFeedForward
from transformer.blocks.normalization import LayerNormalization, RMSNormalization
from transformer.blocks.projection import ProjectionLayer
from transformer.blocks.residual import ResidualConnection
from transformer.inference.cpu.weights import WeightPacker
from transformer.kernels import add_norm

FUSED_ACTIVATIONS: Final[dict[Activation, str]] = {activation: name for name, activation in ACTIVATIONS.items()}
"""Activations that the kernel of a product computes, with their names."""


class PackedFeedForward(nn.Module):
    """Same as `FeedForwardBlock`, but with packed weights."""

    def __init__(self, block: FeedForwardBlock, weights: WeightPacker) -> None:
        super().__init__()
        self.fused = FUSED_ACTIVATIONS.get(block.activation)
        self.activation = block.activation
        self.linear_1 = weights.linear(block.linear_1, activation=self.fused or "none")
        self.linear_2 = weights.linear(block.linear_2)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Returns FFN(x)."""
        inner = self.linear_1(x, bf16_output=self.fused is not None and self.linear_2.accepts_bf16)
        return self.linear_2(inner if self.fused else self.activation(inner))


class PackedGatedFeedForward(nn.Module):
    """Same as `GatedFeedForward`, but with packed weights."""

    def __init__(self, block: GatedFeedForward, weights: WeightPacker) -> None:
        super().__init__()
        self.fused = FUSED_ACTIVATIONS.get(block.activation)
        self.activation = block.activation
        self.gate = weights.linear(block.gate, activation=self.fused or "none")
        self.linear_1, self.linear_2 = weights.linear(block.linear_1), weights.linear(block.linear_2)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Returns the gated FFN(x)."""
        gate = self.gate(x)
        gate = gate if self.fused else self.activation(gate)
        return self.linear_2(gate.mul_(self.linear_1(x)))


class PackedNormalization(nn.Module):
    """Same as `LayerNormalization` or `RMSNormalization`, but for one tensor or a sum of two."""

    def __init__(self, block: LayerNormalization | RMSNormalization, weights: WeightPacker) -> None:
        super().__init__()
        del weights  # a norm has no matrix
        self.eps = block.eps
        self.alpha = block.alpha.detach().float().contiguous()
        self.beta = None if isinstance(block, RMSNormalization) else block.beta.detach().float().contiguous()

    def forward(self, x: Float[Tensor, "*rows D"], added: Float[Tensor, "*rows D"] | None = None) -> Tensor:
        """Returns `x + added` with each row normalized, scaled and shifted."""
        return add_norm(x, added, self.alpha, self.beta, self.eps)


class PackedResidual(nn.Module):
    """Same as `ResidualConnection`, but the post-norm sum and its norm are one pass over memory."""

    def __init__(self, block: ResidualConnection, weights: WeightPacker) -> None:
        super().__init__()
        self.order = block.order
        self.norm = PackedNormalization(cast(LayerNormalization | RMSNormalization, block.norm), weights)

    def forward(self, x: Float[Tensor, "B T D"], sublayer: Callable[[Tensor], Tensor]) -> Float[Tensor, "B T D"]:
        """Implements `ResidualConnection.forward`."""
        if self.order == "pre":
            return x + sublayer(self.norm(x))
        return self.norm(x, sublayer(x))


class PackedEmbedding(nn.Module):
    """Same as `InputEmbedding`, but with packed weights."""

    def __init__(self, block: InputEmbedding, weights: WeightPacker) -> None:
        super().__init__()
        self.d_model, self.vocab_size, self.scale = block.d_model, block.vocab_size, block.scale
        self.embedding = weights.embedding(block.embedding.weight)

    def forward(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        """Returns the scaled embeddings of `tokens`."""
        return self.embedding.lookup(tokens, self.scale)


class PackedProjection(nn.Module):
    """Same as `ProjectionLayer`, but with packed weights."""

    def __init__(self, block: ProjectionLayer, weights: WeightPacker) -> None:
        super().__init__()
        self.proj = weights.linear(block.proj)

    def forward(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows V"]:
        """Returns one logit per token of the vocabulary."""
        return self.proj(x)
