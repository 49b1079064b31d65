"""Letters of the axes of recorded tensors, in the paper's notation."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transformer.blocks import MultiHeadAttention
from transformer.inspection.passes import Example
from transformer.inspection.recorder import Operation
from transformer.models.kinds import ModelConfig


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
    """Names the axes of parameters by their layers, and the axes of activations by those of their inputs.

    Args:
        model: The model.
        config: Its configuration.
        example: What it read.
    """

    def __init__(self, model: nn.Module, config: ModelConfig, example: Example) -> None:
        self.lengths = {letter: len(pieces) for letter, pieces in example.tokens.items()}
        self.d_model, values = config.d_model, config.model_dump()
        vocabularies = values.get("src_vocab_size"), values.get("tgt_vocab_size")
        self.source_vocabulary = "V" if None in vocabularies or len({*vocabularies}) == 1 else "V_src"
        self.d_k = self.d_v = 0
        self.queries = self.keys = self.values = self.heads = "d_model"
        for module in model.modules():
            if isinstance(module, MultiHeadAttention):
                self.d_k, self.d_v = module.d_k, module.d_v
                self.queries = "d_model" if module.W_q.out_features == self.d_model else "d_q"
                self.keys = self.queries if module.W_k.out_features == module.W_q.out_features else "d_kv"
                self.values, self.heads = self.keys, self.queries
                if self.d_v != self.d_k:
                    self.values = self.heads = "d_model" if module.W_o.in_features == self.d_model else "d_o"

    def of_parameter(self, parameter: Tensor, layer: str, name: str) -> tuple[str, ...]:
        """Returns the letters of the axes of a parameter of a layer: of a matrix (outputs, inputs)."""
        vocabulary = self.source_vocabulary if name.startswith("src_embed") else "V"
        known = {
            "W_q": (self.queries, "d_model"), "W_k": (self.keys, "d_model"), "W_v": (self.values, "d_model"),
            "W_o": ("d_model", self.heads), "linear_1": ("d_ff", "d_model"), "gate": ("d_ff", "d_model"),
            "linear_2": ("d_model", "d_ff"), "embedding": (vocabulary, "d_model"), "proj": ("V", "d_model"),
            "transform": ("d_model", "d_model"), "pooler": ("d_model", "d_model"), "projection": ("d_model", ""),
            "RelativePositionBias": ("", "h"), "label_head": ("", "d_model"), "1": ("", "d_model"),
        }  # fmt: skip
        if parameter.dim() == 2:
            letters = known.get(layer, ("", "d_model"))
        elif parameter.dim() == 1:
            letters = known.get(layer, ("d_model",))[:1]
        else:
            return ("",) * parameter.dim()
        return tuple(
            letter if letter != "d_model" or size == self.d_model else ""
            for letter, size in zip(letters, parameter.shape, strict=True)
        )

    def of_positions(self, size: int, section: str) -> str:
        """Returns the letter of an axis of positions in a section of the model; empty for another size."""
        letter = "S" if "S" in self.lengths and section.startswith("Encoder") else "T"
        return letter if self.lengths.get(letter) == size else ""

    def of_output(self, operation: Operation, inputs: tuple[Operand, ...], section: str) -> tuple[str, ...]:
        """Returns the letters of the axes of what an operation writes in a section of the model."""
        kind, shape = operation.kind, operation.output.shape
        first = next((part for part in inputs if part.role in ("x", "t")), inputs[0])
        second = next((part for part in inputs if part.role == "w"), first)
        if kind == "embedding":
            return (*first.axes, second.axes[-1])
        if kind == "linear":
            return (*first.axes[:-1], second.axes[0])
        if kind == "matmul":
            return (*first.axes[:-1], second.axes[-1])
        if kind == "rearrange":
            return self._heads(operation, first) or tuple(
                self._rearranged(operation.attributes["origin"], first, section)
            )
        if len(first.axes) == len(shape):
            return first.axes
        return ("",) * len(shape)

    def _heads(self, operation: Operation, source: Operand) -> tuple[str, ...]:
        """Names the axes where heads are split or concatenated, which the numbers of a single head do not show."""
        is_attention = any(isinstance(module, MultiHeadAttention) for _, module in operation.modules[-1:])
        dims = source.tensor.dim(), operation.output.dim()
        if is_attention and dims == (3, 4):
            is_value = self.d_v != self.d_k and operation.output.size(-1) == self.d_v
            letter = "d_v" if is_value else "d_k"
            return (source.axes[0], "h_kv" if source.axes[-1] == "d_kv" else "h", source.axes[1], letter)
        return (source.axes[0], source.axes[2], self.heads) if is_attention and dims == (4, 3) else ()

    def _rearranged(self, origin: Tensor, source: Operand, section: str) -> list[str]:
        """Names the axes of a rearranged tensor by the distance between neighbours in its origin."""
        shape = source.tensor.shape
        strides = _contiguous_strides(shape)
        known = {stride: (size, letter) for stride, size, letter in zip(strides, shape, source.axes, strict=True)
                 if size > 1}  # fmt: skip
        letters: list[str] = []
        for axis, size in enumerate(origin.shape):
            letter, step = self._rearranged_axis(origin, axis, source, known) if size > 1 else ("", 0)
            is_unnamed = not known.get(step, (0, ""))[1]
            letters.append(letter or (self.of_positions(size, section) if is_unnamed else ""))
        single = [letter for size, letter in zip(shape, source.axes, strict=True) if size == 1 and letter]
        places = [axis for axis, size in enumerate(origin.shape) if size == 1]
        for axis, letter in zip(places, single[max(0, len(single) - len(places)) :], strict=False):
            letters[axis] = letter
        if origin.dim() > 2 and origin.size(0) == 1:
            letters[0] = "B"
        return letters

    def _rearranged_axis(
        self, origin: Tensor, axis: int, source: Operand, known: dict[int, tuple[int, str]]
    ) -> tuple[str, int]:
        """Returns the letter of an axis if its origin determines it, and the distance between neighbours."""
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
            letter = self.queries
        return letter, step


def _contiguous_strides(shape: torch.Size) -> list[int]:
    strides = [1]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * size)
    return strides[::-1]
