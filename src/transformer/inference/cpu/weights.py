"""Packing of parameters into matrices; a shared parameter is packed once."""

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from transformer.kernels import PackedLinear, Precision, Weight


class WeightPacker:
    """Packs the weights of one model.

    Args:
        precision: Precision of all weights.
        weight_of: Function that returns the values of a parameter; None rounds it to the precision.
    """

    def __init__(self, precision: Precision, weight_of: Callable[[Tensor], Weight] | None = None) -> None:
        self.precision: Precision = precision
        self._weight_of = weight_of or (lambda parameter: Weight.from_tensor(parameter, precision))
        self._packed: dict[int, tuple[Tensor, PackedLinear]] = {}

    def linear(self, *layers: nn.Linear, activation: str = "none") -> PackedLinear:
        """Packs layers with the same input as one matrix, with their outputs side by side."""
        biases = [bias for bias in (cast("Tensor | None", layer.bias) for layer in layers) if bias is not None]
        return self._pack([layer.weight for layer in layers], biases, activation)

    def embedding(self, weight: Tensor) -> PackedLinear:
        """Packs a matrix whose rows are looked up; a projection with the same parameter shares its memory."""
        return self._pack([weight], [], "none")

    def _pack(self, weights: Sequence[Tensor], biases: Sequence[Tensor], activation: str) -> PackedLinear:
        bias = None if not biases else biases[0] if len(biases) == 1 else torch.cat([bias.detach() for bias in biases])
        if len(weights) > 1:
            return PackedLinear(*map(self._weight_of, weights), bias=bias, activation=activation)
        key = id(weights[0])
        if key not in self._packed:
            self._packed[key] = weights[0], PackedLinear(self._weight_of(weights[0]))
        packed = self._packed[key][1]
        return packed if bias is None and activation == "none" else packed.with_activation(bias, activation)
