"""Letters of the axes of recorded tensors, in the paper's notation."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from transformer.blocks import FeedForwardBlock, GatedFeedForward, MultiHeadAttention, RelativePositionBias
from transformer.inspection.passes import Example
from transformer.inspection.recorder import Operation


@dataclass(frozen=True)
class Operand:
    """A tensor that a step reads or writes.

    Attributes:
        tensor: The tensor.
        symbol: Its symbol in LaTeX.
        axes: Letters of its axes.
        role: Its place in the formula: x, w, b, y, or m for a mask and t for token ids.
        parameter: Name of the parameter, if it is one.
        gradient: Gradient of the loss along the path through this step, if there is one.
    """

    tensor: Tensor
    symbol: str
    axes: tuple[str, ...]
    role: str
    parameter: str = ""
    gradient: Tensor | None = None


class AxisLetters:
    """Names axes by the sizes of a model, and those of its activations by the axes that they come from.

    Args:
        model: The model.
        config: Its configuration.
        example: What it read.
    """

    def __init__(self, model: nn.Module, config: dict[str, Any], example: Example) -> None:
        self.lengths = {letter: len(pieces) for letter, pieces in example.tokens.items()}
        self.sizes: dict[int, str] = {}
        for key, letter in (("d_model", "d_model"), ("tgt_vocab_size", "V"), ("vocab_size", "V")):
            if config.get(key):
                self.sizes.setdefault(int(config[key]), letter)
        self.d_k = 0
        for module in model.modules():
            if isinstance(module, FeedForwardBlock | GatedFeedForward):
                self.sizes.setdefault(module.linear_1.out_features, "d_ff")
            elif isinstance(module, MultiHeadAttention):
                self.d_k = module.W_q.out_features // module.h
                self.sizes.setdefault(module.W_q.out_features, "d_q")
                self.sizes.setdefault(module.W_k.out_features, "d_kv")

    def of_parameter(self, parameter: Tensor) -> tuple[str, ...]:
        """Returns the letters of a parameter's axes."""
        return tuple(self.sizes.get(size, "") for size in parameter.shape)

    def of_positions(self, size: int, section: str) -> str:
        """Returns the letter of an axis of positions in a section of the model; empty for another size."""
        letter = "T_dec" if "T_dec" in self.lengths and not section.startswith("Encoder") else "T"
        return letter if self.lengths.get(letter) == size else ""

    def of_output(self, operation: Operation, inputs: tuple[Operand, ...], section: str) -> tuple[str, ...]:
        """Returns the letters of the axes of what an operation writes in a section of the model."""
        kind, shape = operation.kind, operation.output.shape
        first = next((part for part in inputs if part.role in ("x", "t")), inputs[0])
        if kind == "embedding":
            is_bias = any(isinstance(module, RelativePositionBias) for _, module in operation.modules)
            return (*first.axes, "h" if is_bias else self.sizes.get(shape[-1], ""))
        if kind == "linear":
            return (*first.axes[:-1], self.sizes.get(shape[-1], ""))
        if kind == "matmul":
            second = next(part for part in inputs if part.role == "w")
            return (*first.axes[:-1], second.axes[-1])
        if kind == "rearrange":
            return tuple(self._moved(operation.attributes["origin"], first, section))
        if len(first.axes) == len(shape):
            return first.axes
        return ("",) * len(shape)

    def _moved(self, origin: Tensor, source: Operand, section: str) -> list[str]:
        """Names the axes of a rearranged tensor by the distance between neighbours in its origin."""
        shape = source.tensor.shape
        strides = _contiguous_strides(shape)
        known = {stride: (size, letter) for stride, size, letter in zip(strides, shape, source.axes, strict=True)
                 if size > 1}  # fmt: skip
        letters: list[str] = []
        for axis, size in enumerate(origin.shape):
            letter, step = self._moved_axis(origin, axis, source, known) if size > 1 else ("", 0)
            is_unnamed = not known.get(step, (0, ""))[1]
            letters.append(letter or (self.of_positions(size, section) if is_unnamed else ""))
        single = [letter for size, letter in zip(shape, source.axes, strict=True) if size == 1 and letter]
        places = [axis for axis, size in enumerate(origin.shape) if size == 1]
        for axis, letter in zip(places, single[max(0, len(single) - len(places)) :], strict=False):
            letters[axis] = letter
        if origin.dim() > 2 and origin.size(0) == 1:
            letters[0] = "B"
        return letters

    def _moved_axis(
        self, origin: Tensor, axis: int, source: Operand, known: dict[int, tuple[int, str]]
    ) -> tuple[str, int]:
        """Returns the letter of an axis if its origin tells it, and the distance between neighbours."""
        size, width, last = origin.size(axis), source.tensor.size(-1), source.axes[-1]
        first, second = (int(origin.select(axis, index).flatten()[0]) for index in (0, 1))
        step, is_wide = second - first, last in ("d_model", "d_q", "d_kv")
        letter = ""
        if step == 0:
            letter = "h"  # heads of keys and values, repeated for their queries
        elif step in known and known[step][0] == size and known[step][1]:
            letter = known[step][1]
        elif is_wide and step > 1 and size * step == width:
            letter = "h_kv" if last == "d_kv" else "h"
        elif axis == origin.dim() - 1 and size == self.d_k and (is_wide or {"h", "h_kv"} & {*source.axes}):
            letter = "d_k"
        elif step == 1 and "h" in source.axes and size == width * source.tensor.size(source.axes.index("h")):
            letter = self.sizes.get(size, "")
        return letter, step


def _contiguous_strides(shape: torch.Size) -> list[int]:
    strides = [1]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * size)
    return strides[::-1]
