"""Turns recorded operations into the numbered steps of a page: titles, symbols, shapes, formulas and sources."""

import inspect
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, Final

import torch
from torch import Tensor, nn

from transformer.blocks import attention
from transformer.inspection.names import FORMULAS, GRADIENTS, KIND_NAMES, NAMES, NOTES, PARAMETER_SYMBOLS
from transformer.inspection.passes import Pass
from transformer.inspection.recorder import Operation

IN_ATTENTION_FORMULA: Final = ("matmul", "divide", "multiply", "masked_fill", "softmax")
SIDES: Final = {"encoder": "Encoder", "decoder": "Decoder"}


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


@dataclass(frozen=True)
class Step:
    """One operation as a page shows it.

    Attributes:
        operation: The operation.
        title: What it does.
        section: Part of the model, e.g. "Encoder layer 1".
        block: Block within the part, e.g. "Multi-head self-attention".
        inputs: What it reads.
        output: What it writes, with the gradient of the loss over all paths.
        formula: Formula in LaTeX.
        gradients: For each role, the line of the chain rule in LaTeX.
        paper: Where the block is described.
        note: What is worth knowing.
        readers: Numbers of the steps that read the output.
    """

    operation: Operation
    title: str
    section: str
    block: str
    inputs: tuple[Operand, ...]
    output: Operand
    formula: str
    gradients: dict[str, str]
    paper: str
    note: str
    readers: list[int] = field(default_factory=list)


def make_steps(recorded: Pass) -> list[Step]:
    """Returns the steps of a pass, in the order of computation."""
    return _StepMaker(recorded).make()


class _StepMaker:
    def __init__(self, recorded: Pass) -> None:
        self.recorded = recorded
        self.operations = merged(recorded.operations)
        self.parameters: dict[int, list[str]] = {}
        for name, parameter in recorded.model.named_parameters(remove_duplicate=False):
            self.parameters.setdefault(id(parameter), []).append(name)
        example = recorded.example
        self.input_axes = {id(tensor): example.axes[name] for name, tensor in example.inputs.items()}
        self.positions = {len(pieces): letter for letter, pieces in reversed(example.tokens.items())}
        self.operands: dict[int, tuple[str, tuple[str, ...]]] = {}
        self.counts: Counter[tuple[str, ...]] = Counter()
        self.writers: dict[int, int] = {}
        self.sides_seen: set[str] = set()
        config = recorded.bundle.config.model_dump()
        self.sizes = {
            int(config[key]): letter
            for key, letter in (("d_ff", "d_ff"), ("vocab_size", "V"), ("tgt_vocab_size", "V"), ("d_model", "d_model"))
            if config.get(key)
        }

    def make(self) -> list[Step]:
        steps: list[Step] = []
        for operation in self.operations:
            step = self._step(operation)
            for operand in step.inputs:
                if (writer := self.writers.get(id(operand.tensor))) is not None:
                    steps[writer].readers.append(len(steps))
            self.writers[id(operation.output)] = len(steps)
            self.operands[id(operation.output)] = (step.output.symbol, step.output.axes)
            steps.append(step)
        return steps

    def _step(self, operation: Operation) -> Step:
        owner, owner_name = _owner(operation)
        section = self._section(operation)
        inputs = self._inputs(operation)
        title, symbol = self._name(operation, owner, owner_name, section, inputs)
        output = Operand(
            operation.output, symbol, self._output_axes(operation, inputs), "y",
            gradient=self.recorded.gradients.get(id(operation.output)),
        )  # fmt: skip
        formula, gradients = formulas(operation, inputs, output)
        return Step(
            operation, title, section, _block(operation, owner, section), inputs, output, formula, gradients,
            _paper(operation, owner), _note(operation, owner),
        )  # fmt: skip

    def _name(
        self, operation: Operation, owner: type | None, owner_name: str, section: str, inputs: tuple[Operand, ...]
    ) -> tuple[str, str]:
        kind = operation.kind
        number = str(self.counts[section, owner_name, kind])
        self.counts[section, owner_name, kind] += 1
        layer = next((part.parameter.split(".")[-2] for part in inputs if part.parameter.count(".")), "")
        first = next((part.symbol for part in inputs if not part.parameter), "")
        for name in [base.__name__ for base in owner.__mro__] if owner else [""]:
            for key in (*filter(None, (layer, first, number)), ""):
                if (name, kind, key) in NAMES:
                    return NAMES[name, kind, key]
        return KIND_NAMES[kind]

    def _inputs(self, operation: Operation) -> tuple[Operand, ...]:
        roles = iter(("x", "w", "b", *("c" * len(operation.inputs))))
        operands: list[Operand] = []
        for tensor, use in zip(operation.inputs, operation.uses, strict=True):
            if not tensor.is_floating_point():
                operands.append(self._constant(tensor, "m" if tensor.dtype == torch.bool else "t"))
                if operation.kind == "embedding":
                    next(roles)
                continue
            gradient = self.recorded.gradients.get(id(use))
            role = next(roles)
            if names := self.parameters.get(id(tensor)):
                operands.append(self._parameter(operation, tensor, names, role, gradient))
            elif id(tensor) in self.operands:
                symbol, axes = self.operands[id(tensor)]
                operands.append(Operand(tensor, symbol, axes, role, gradient=gradient))
            else:
                operands.append(self._constant(tensor, role))
        return tuple(operands)

    def _constant(self, tensor: Tensor, role: str) -> Operand:
        if id(tensor) in self.input_axes:
            symbol = r"\text{pixels}" if tensor.is_floating_point() else r"\text{token}"
            return Operand(tensor, symbol, self.input_axes[id(tensor)], role)
        if role == "m":
            return Operand(tensor, "M", ("",) * tensor.dim(), role)
        if tensor.dtype == torch.long:
            return Operand(tensor, "t", ("",) * tensor.dim(), role)
        return Operand(tensor, r"\text{PE}" if tensor.dim() == 2 else "c", ("",) * tensor.dim(), role)

    def _parameter(
        self, operation: Operation, tensor: Tensor, names: list[str], role: str, gradient: Tensor | None
    ) -> Operand:
        inside = [name for name in names if name.startswith(operation.module)]
        name = (inside or names)[0]
        layer, kind = name.split(".")[-2:] if "." in name else (name, "")
        weight, bias = PARAMETER_SYMBOLS.get(layer, ("W", "b"))
        symbol = {"bias": bias, "alpha": r"\alpha", "beta": r"\beta"}.get(kind, weight)
        axes = tuple(self.sizes.get(size, "") for size in tensor.shape)
        return Operand(tensor, symbol, axes, role, name, gradient)

    def _output_axes(self, operation: Operation, inputs: tuple[Operand, ...]) -> tuple[str, ...]:
        kind, shape = operation.kind, operation.output.shape
        first = next((part for part in inputs if part.role in ("x", "t")), inputs[0])
        if kind == "embedding":
            return (*first.axes, self.sizes.get(shape[-1], ""))
        if kind == "linear":
            return (*first.axes[:-1], self.sizes.get(shape[-1], ""))
        if kind == "matmul":
            second = next(part for part in inputs if part.role == "w")
            return (*first.axes[:-1], second.axes[-1])
        if kind == "rearrange":
            return tuple(self._moved_axes(operation, first))
        if len(first.axes) == len(shape):
            return first.axes
        return ("",) * len(shape)

    def _moved_axes(self, operation: Operation, source: Operand) -> list[str]:
        """Names the axes of a rearranged tensor by the distance between neighbours in its origin."""
        origin = operation.attributes["origin"]
        known = {
            stride: (size, letter)
            for stride, size, letter in zip(
                _contiguous_strides(source.tensor.shape), source.tensor.shape, source.axes, strict=True
            )
        }
        letters: list[str] = []
        for axis, size in enumerate(origin.shape):
            step = 0
            if size > 1:
                ends = [origin.select(axis, index).flatten()[0].item() for index in (0, 1)]
                step = int(ends[1] - ends[0])
            if size == 1:
                letters.append("B" if axis == 0 else "")
            elif step in known and known[step][0] == size:
                letters.append(known[step][1])
            elif source.axes and source.axes[-1] == "d_model" and size * step == source.tensor.shape[-1]:
                letters.append("d_model" if step == 1 else "h")
            elif source.axes and source.axes[-1] == "d_model" and step == 1:
                letters.append("d_k")
            else:
                letters.append(self.sizes.get(size, self.positions.get(size, "")))
        return letters

    def _section(self, operation: Operation) -> str:
        name = operation.module
        if match := re.match(r"(encoder|decoder)\.layers\.(\d+)", name):
            self.sides_seen.add(match[1])
            return f"{SIDES[match[1]]} layer {int(match[2]) + 1}"
        if match := re.match(r"(encoder|decoder)\b", name):
            before = any(text.startswith(f"{SIDES[match[1]]} layer") for text, *_ in self.counts)
            return f"{SIDES[match[1]]} {'output' if before else 'input'}"
        if "decoder" in self.sides_seen or not hasattr(self.recorded.model, "decoder"):
            return "Output" if self.sides_seen else "Input"
        if not hasattr(self.recorded.model, "encoder"):
            return "Decoder input"
        return "Decoder input" if "encoder" in self.sides_seen else "Encoder input"


def merged(operations: list[Operation]) -> list[Operation]:
    """Joins rearrangements that follow each other, e.g. the two that split a tensor into heads."""
    readers = Counter(id(tensor) for operation in operations for tensor in operation.inputs)
    result: list[Operation] = []
    for operation in operations:
        last = result[-1] if result else None
        if (
            last is not None
            and last.kind == operation.kind == "rearrange"
            and len(operation.inputs) == 1
            and operation.inputs[0] is last.output
            and last.module == operation.module
            and readers[id(last.output)] == 1
        ):
            origin = last.attributes["origin"].flatten()[operation.attributes["origin"]]
            result[-1] = replace(operation, inputs=last.inputs, uses=last.uses, attributes={"origin": origin})
        else:
            result.append(operation)
    return result


def formulas(operation: Operation, inputs: tuple[Operand, ...], output: Operand) -> tuple[str, dict[str, str]]:
    """Returns the formula of an operation in LaTeX, and the lines of the chain rule by role."""
    symbols = {part.role: f"{{{part.symbol}}}" for part in inputs if part.symbol} | {"y": f"{{{output.symbol}}}"}
    number = operation.attributes.get("number")
    plain = "" if number is None else r"-\infty" if number == float("-inf") else f"{number:.6g}"
    if operation.module.endswith("attention_block") and operation.kind == "divide":
        plain = r"\sqrt{d_k}"
    if operation.kind == "multiply" and plain and output.symbol == "E'":
        plain = r"\sqrt{d_{\text{model}}}"
    symbols.setdefault("x", "x")
    symbols.setdefault("w", plain or "w")
    values = symbols | {
        f"d{role}": rf"{{\frac{{\partial L}}{{\partial {symbol}}}}}" for role, symbol in symbols.items()
    }
    values |= {f"{name}T": _transposed(values[name]) for name in ("x", "w", "dy")}
    values["b"] = f" + {symbols['b']}" if symbols.get("b") else ""
    values |= {"n": plain, "db": values.get("db", "")}
    lines = {
        part.role: GRADIENTS[operation.kind][part.role].format(**values)
        for part in inputs
        if part.gradient is not None and part.role in GRADIENTS[operation.kind]
    }
    return FORMULAS[operation.kind].format(**values), lines


def _transposed(symbol: str) -> str:
    """Returns the symbol of a transposed matrix; of one that is transposed already, that of the matrix itself."""
    if symbol.endswith(r"^\top}"):
        return symbol.replace(r"^\top}", "}")
    return rf"\left( {symbol} \right)^\top" if r"\frac" in symbol else rf"{symbol}^\top"


def _owner(operation: Operation) -> tuple[type | None, str]:
    """Returns the class and the name of the block that an operation belongs to."""
    for name, module in reversed(operation.modules):
        if type(module).__module__.startswith("transformer."):
            return type(module), name
    return None, ""


def _block(operation: Operation, owner: type | None, section: str) -> str:
    names = [base.__name__ for base in owner.__mro__] if owner else []
    if "MultiHeadAttention" in names or "RotaryPositions" in names:
        if "cross_attention_block" in operation.module:
            return "Multi-head cross-attention"
        is_masked = section.startswith("Decoder")
        return "Masked multi-head self-attention" if is_masked else "Multi-head self-attention"
    if "FeedForwardBlock" in names or "GatedFeedForward" in names:
        return "Position-wise feed-forward network"
    if section.endswith("input") or section == "Input":
        return "Input embedding and positional encoding"
    if operation.kind == "cross_entropy":
        return "Loss"
    if section == "Output":
        return "Final linear layer and softmax"
    return "Add and layer normalization"


def _paper(operation: Operation, owner: type | None) -> str:
    """Returns the source that the docstring of the block names."""
    candidates: list[Any] = [base for base in owner.__mro__ if base is not nn.Module] if owner else []
    if operation.kind in IN_ATTENTION_FORMULA and "MultiHeadAttention" in [base.__name__ for base in candidates]:
        candidates.insert(0, attention)
    for candidate in candidates:
        text = " ".join(inspect.cleandoc(candidate.__doc__ or "").split())
        if match := re.search(r"Source: (.+?(?:Sec|Eq|Fig)\. [\w.-]+(?:, (?:Eq|Fig)\. [\w-]+)?)", text):
            return match[1].rstrip(".")
    return "Vaswani et al. 2017, Sec. 5.4" if operation.kind == "cross_entropy" else ""


def _note(operation: Operation, owner: type | None) -> str:
    names = [base.__name__ for base in owner.__mro__] if owner else [""]
    return next((NOTES[name, operation.kind] for name in names if (name, operation.kind) in NOTES), "")


def _contiguous_strides(shape: torch.Size) -> list[int]:
    strides = [1]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * size)
    return strides[::-1]
