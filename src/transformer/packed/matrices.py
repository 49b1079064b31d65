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

    def linear(self, *layers: nn.Linear, relu: bool = False) -> PackedMatrix:
        """The layers side by side, as one product of the same input."""
        biases = [bias for bias in (cast("Tensor | None", layer.bias) for layer in layers) if bias is not None]
        return self._pack([layer.weight for layer in layers], biases, relu)

    def embedding(self, weight: Tensor) -> PackedMatrix:
        """A matrix whose rows are looked up; the same one that a projection without bias multiplies with."""
        return self._pack([weight], [], relu=False)

    def _pack(self, weights: Sequence[Tensor], biases: Sequence[Tensor], relu: bool) -> PackedMatrix:
        bias = None if not biases else biases[0] if len(biases) == 1 else _joined(biases)
        if len(weights) > 1 or bias is not None:
            return PackedMatrix(*map(self._weight_of, weights), bias=bias, relu=relu)
        key = id(weights[0])
        if key not in self._packed:
            self._packed[key] = weights[0], PackedMatrix(self._weight_of(weights[0]), relu=relu)
        return self._packed[key][1]


def _joined(biases: Sequence[Tensor]) -> Tensor:
    return torch.cat([bias.detach() for bias in biases])
