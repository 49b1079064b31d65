"""Turns the parameters of a model into packed matrices, each distinct one once."""

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from transformer.kernels import PackedMatrix, Precision, Weight


class Matrices:
    """The packed matrices of one model.

    Args:
        precision: of all.
        weight_of: the numbers of a parameter; rounded to the precision if not given.
    """

    def __init__(self, precision: Precision, weight_of: Callable[[Tensor], Weight] | None = None) -> None:
        self.precision: Precision = precision
        self._weight_of = weight_of or (lambda parameter: Weight.of(parameter, precision))
        self._packed: dict[int, tuple[Tensor, PackedMatrix]] = {}

    def linear(self, *layers: nn.Linear, activation: str = "none") -> PackedMatrix:
        """The layers side by side, as one product of the same input."""
        biases = [bias for bias in (cast("Tensor | None", layer.bias) for layer in layers) if bias is not None]
        return self._pack([layer.weight for layer in layers], biases, activation)

    def embedding(self, weight: Tensor) -> PackedMatrix:
        """A matrix whose rows are looked up; the same memory as that which a projection multiplies with."""
        return self._pack([weight], [], "none")

    def _pack(self, weights: Sequence[Tensor], biases: Sequence[Tensor], activation: str) -> PackedMatrix:
        bias = None if not biases else biases[0] if len(biases) == 1 else _joined(biases)
        if len(weights) > 1:
            return PackedMatrix(*map(self._weight_of, weights), bias=bias, activation=activation)
        key = id(weights[0])
        if key not in self._packed:
            self._packed[key] = weights[0], PackedMatrix(self._weight_of(weights[0]))
        packed = self._packed[key][1]
        return packed if bias is None and activation == "none" else packed.finished(bias, activation)


def _joined(biases: Sequence[Tensor]) -> Tensor:
    return torch.cat([bias.detach() for bias in biases])
