"""Turns recorded operations into the numbered steps of a page: titles, symbols, shapes, formulas and sources."""

import inspect
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Final

import torch
from torch import Tensor, nn

from transformer.blocks import attention
from transformer.inspection.axes import AxisLetters, Operand
from transformer.inspection.names import (
    BLOCK_FORMULAS,
    BLOCK_NOTES,
    FORMULAS,
    GELU_BY_TANH,
    GELU_BY_TANH_GRADIENT,
    GRADIENTS,
    KIND_NAMES,
    NAMES,
    NOTES,
    PARAMETER_SYMBOLS,
    PRE_NORM_NOTE,
    SMOOTHED_NOTE,
    TABLE_SYMBOLS,
    TITLE_FORMULAS,
    TITLE_NOTES,
    TITLE_SOURCES,
)
from transformer.inspection.passes import Pass
from transformer.inspection.recorder import Operation

IN_ATTENTION_FORMULA: Final = ("matmul", "divide", "multiply", "masked_fill", "softmax")
INDICES: Final = {"B": "b", "S": "t", "T": "t", "h": "i"}
"""Index that runs along an axis in a formula."""
LAST_SECTIONS: Final = {"softmax": "Probabilities", "cross_entropy": "Loss"}
"""Parts that follow the model, by the kind of their operation."""
SIDES: Final = {"encoder": "Encoder", "decoder": "Decoder"}


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
        self.operations = merge_rearrangements(recorded.operations)
        self.parameters: dict[int, list[str]] = {}
        for name, parameter in recorded.model.named_parameters(remove_duplicate=False):
            self.parameters.setdefault(id(parameter), []).append(name)
        example = recorded.example
        self.input_axes = {id(tensor): example.axes[name] for name, tensor in example.inputs.items()}
        self.letters = AxisLetters(recorded.model, recorded.bundle.config, example)
        self.operands: dict[int, tuple[str, tuple[str, ...]]] = {}
        self.counts: Counter[tuple[str, ...]] = Counter()
        self.writers: dict[int, int] = {}
        self.sides_seen: set[str] = set()
        blocks = {name for module in recorded.model.modules() for name in _names(type(module))}
        self.is_pre_norm = recorded.bundle.config.model_dump().get("norm_order") == "pre"
        self.is_rms = "RMSNormalization" in blocks
        what = "Patch embedding" if "PatchEmbedding" in blocks else "Input embedding"
        positions = {"PositionalEncoding": " and positional encoding", "LearnedPositions": " and learned positions",
                     "RelativePositionBias": " and position bias"}  # fmt: skip
        self.input_block = what + next((text for name, text in positions.items() if name in blocks), "")

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
        inputs = self._inputs(operation, section)
        title, symbol = self._name(operation, owner, owner_name, section, inputs)
        output = Operand(
            operation.output, symbol, self.letters.of_output(operation, inputs, section), "y",
            gradient=self.recorded.gradients.get(id(operation.output)),
        )  # fmt: skip
        formula, gradients = formulas(operation, inputs, output, title)
        block = self._block(operation, owner, section)
        return Step(
            operation, title, section, block, inputs, output, formula, gradients,
            _cited_source(operation, owner, title), self._note(operation, owner, title, block),
        )  # fmt: skip

    def _name(
        self, operation: Operation, owner: type | None, owner_name: str, section: str, inputs: tuple[Operand, ...]
    ) -> tuple[str, str]:
        kind = operation.kind
        number = str(self.counts[section, owner_name, kind])
        self.counts[section, owner_name, kind] += 1
        layer = next((_layer(part.parameter) for part in inputs if part.parameter), "")
        first = next((part.symbol for part in inputs if not part.parameter), "")
        if kind == "rearrange" and operation.output.numel() > sum(part.tensor.numel() for part in inputs):
            first += " repeated"
        special = "unscaled" if operation.attributes.get("number") == 1 else ""
        for name in _names(owner) or [""]:
            for key in (*filter(None, (special, layer, first, number)), ""):
                if (name, kind, key) in NAMES:
                    return NAMES[name, kind, key]
        return KIND_NAMES[kind]

    def _inputs(self, operation: Operation, section: str) -> tuple[Operand, ...]:
        roles = iter(("x", "w", "b", *("c" * len(operation.inputs))))
        operands: list[Operand] = []
        for tensor, use in zip(operation.inputs, operation.uses, strict=True):
            if not tensor.is_floating_point():
                operands.append(self._constant(operation, tensor, "m" if tensor.dtype == torch.bool else "t", section))
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
                operands.append(self._constant(operation, tensor, role, section, gradient))
        return tuple(operands)

    def _constant(
        self, operation: Operation, tensor: Tensor, role: str, section: str, gradient: Tensor | None = None
    ) -> Operand:
        axes, owner = self._constant_axes(operation, tensor, section), _names(_owner(operation)[0])
        if id(tensor) in self.input_axes:
            symbol = r"\text{pixels}" if tensor.is_floating_point() else r"\text{token}"
            return Operand(tensor, symbol, self.input_axes[id(tensor)], role, gradient=gradient)
        if role == "m":
            return Operand(tensor, "M", axes, role)
        if "RelativePositionBias" in owner:
            return Operand(tensor, r"\text{bucket}", ("B", *(self._positions(tensor, section))), role)
        if tensor.dtype == torch.long:
            return Operand(tensor, "t", axes, role)
        if "RotaryPositions" in owner:
            return Operand(tensor, r"\cos" if tensor[0, 0] == 1 else r"\sin", axes, role)
        return Operand(tensor, r"\text{PE}" if "PositionalEncoding" in owner else "c", axes, role)

    def _constant_axes(self, operation: Operation, tensor: Tensor, section: str) -> tuple[str, ...]:
        """Names the axes of a mask, of a table of positions, or of another constant."""
        if tensor.dtype == torch.bool and tensor.dim() == 4:
            keys = "Encoder" if "cross_attention_block" in operation.module else section
            sizes = tensor.shape
            rows, columns = (
                self.letters.of_positions(size, part) for size, part in ((sizes[2], section), (sizes[3], keys))
            )
            return ("B" if sizes[0] == 1 else "", "h" if sizes[1] > 1 else "", rows, columns)
        if "PositionalEncoding" in _names(_owner(operation)[0]) and tensor.dim() >= 2:
            row = self.letters.of_positions(tensor.size(-2), section)
            return (*("",) * (tensor.dim() - 2), row, "d_model")
        return ("",) * tensor.dim()

    def _note(self, operation: Operation, owner: type | None, title: str, block: str) -> str:
        """Returns what is worth knowing about a step."""
        if operation.kind == "cross_entropy" and operation.attributes["smoothing"]:
            return SMOOTHED_NOTE
        if operation.kind == "layer_norm" and self.is_pre_norm and "ResidualConnection" in _module_names(operation):
            return PRE_NORM_NOTE
        if (block, title) in BLOCK_NOTES:
            return BLOCK_NOTES[block, title]
        if title in TITLE_NOTES:
            return TITLE_NOTES[title]
        names = _names(owner) or [""]
        return next((NOTES[name, operation.kind] for name in names if (name, operation.kind) in NOTES), "")

    def _positions(self, tensor: Tensor, section: str) -> tuple[str, ...]:
        return tuple(self.letters.of_positions(size, section) for size in tensor.shape[1:])

    def _parameter(
        self, operation: Operation, tensor: Tensor, names: list[str], role: str, gradient: Tensor | None
    ) -> Operand:
        inside = [name for name in names if name.startswith(operation.module)]
        name = (inside or names)[0]
        weight, bias = PARAMETER_SYMBOLS.get(_layer(name), ("W", "b"))
        weight = next((TABLE_SYMBOLS[base] for base in _names(_owner(operation)[0]) if base in TABLE_SYMBOLS), weight)
        kind = name.rpartition(".")[2]
        symbol = {"bias": bias, "alpha": r"\alpha", "beta": r"\beta"}.get(kind, weight)
        layer = next((base for base in _names(_owner(operation)[0]) if base in TABLE_SYMBOLS), _layer(name))
        return Operand(tensor, symbol, self.letters.of_parameter(tensor, layer, name), role, name, gradient)

    def _block(self, operation: Operation, owner: type | None, section: str) -> str:
        names = _names(owner)
        if "MultiHeadAttention" in names or "RotaryPositions" in names:
            if "cross_attention_block" in operation.module:
                return "Multi-head cross-attention"
            is_masked = section.startswith("Decoder")
            return "Masked multi-head self-attention" if is_masked else "Multi-head self-attention"
        if "FeedForwardBlock" in names or "GatedFeedForward" in names:
            return "Position-wise feed-forward network"
        if section.endswith("input") or section == "Input":
            return self.input_block
        if section in LAST_SECTIONS.values():
            return operation.kind.replace("cross_entropy", "cross-entropy").capitalize()
        if section == "Output":
            return "Final linear layer"
        return "Add and RMS normalization" if self.is_rms else "Add and layer normalization"

    def _section(self, operation: Operation) -> str:
        name = operation.module
        if not operation.modules and operation.kind in LAST_SECTIONS:
            return LAST_SECTIONS[operation.kind]
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


def merge_rearrangements(operations: list[Operation]) -> list[Operation]:
    """Merges consecutive rearrangements, e.g. the two that split a tensor into heads."""
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


def formulas(
    operation: Operation, inputs: tuple[Operand, ...], output: Operand, title: str = ""
) -> tuple[str, dict[str, str]]:
    """Returns the formula of an operation in LaTeX, and the lines of the chain rule by role."""
    symbols = {part.role: f"{{{part.symbol}}}" for part in inputs if part.symbol} | {"y": f"{{{output.symbol}}}"}
    number = operation.attributes.get("number")
    plain = "" if number is None else r"-\infty" if number == float("-inf") else f"{number:.6g}"
    if operation.module.endswith("attention_block") and operation.kind == "divide":
        plain = r"\sqrt{d_k}"
    if operation.kind == "multiply" and number and output.symbol == "E'" and number**2 > 1.5:
        plain = r"\sqrt{d_{\text{model}}}"
    symbols.setdefault("x", "x")
    symbols.setdefault("w", plain or "w")
    values = symbols | {
        f"d{role}": rf"{{\frac{{\partial L}}{{\partial {symbol}}}}}" for role, symbol in symbols.items()
    }
    values |= {f"{name}T": _toggle_transpose(values[name]) for name in ("x", "w", "dy")}
    values["b"] = f" + {symbols['b']}" if symbols.get("b") else ""
    values |= {"n": plain, "db": values.get("db", "")}
    formula, chain = FORMULAS[operation.kind], GRADIENTS[operation.kind]
    if operation.attributes.get("approximate") == "tanh":
        formula, chain = GELU_BY_TANH, {"x": GELU_BY_TANH_GRADIENT}
    if operation.kind == "rearrange" and len(inputs) > 1:
        formula += " \\text{{ and }} {w}"
    for name in _names(_owner(operation)[0]):
        formula, chain = BLOCK_FORMULAS.get((name, operation.kind), (formula, chain))
    formula, chain = TITLE_FORMULAS.get(title, (formula, chain))
    lines = {
        part.role: _summed(chain[part.role].format(**values), operation.kind, part, output)
        for part in inputs
        if part.gradient is not None and part.role in chain
    }
    return formula.format(**values), lines


def _summed(line: str, kind: str, part: Operand, output: Operand) -> str:
    """Adds the sum over the axes along which an operand is broadcast to a line of the chain rule."""
    if kind not in ("add", "subtract", "multiply", "divide"):
        return line
    shape = (1,) * (output.tensor.dim() - part.tensor.dim()) + tuple(part.tensor.shape)
    axes = [letter for size, full, letter in zip(shape, output.tensor.shape, output.axes, strict=True) if size < full]
    if not axes:
        return line
    indices = ", ".join(dict.fromkeys(INDICES.get(letter, letter.lower()) for letter in axes if letter))
    left, _, right = line.partition(" = ")
    return f"{left} = \\sum_{{{indices}}} {right}" if indices else f"{left} = \\sum {right}"


def _toggle_transpose(symbol: str) -> str:
    """Toggles the transpose of a matrix symbol."""
    if symbol.endswith(r"^{\prime\top}}"):
        return symbol.replace(r"^{\prime\top}}", "'}")
    if symbol.endswith(r"^\top}"):
        return symbol.replace(r"^\top}", "}")
    return rf"\left( {symbol} \right)^\top" if r"\frac" in symbol else rf"{symbol}^\top"


def _owner(operation: Operation) -> tuple[type | None, str]:
    """Returns the class and the name of the block that an operation belongs to."""
    for name, module in reversed(operation.modules):
        if type(module).__module__.startswith("transformer."):
            return type(module), name
    return None, ""


def _cited_source(operation: Operation, owner: type | None, title: str) -> str:
    """Returns the source of a step, which the docstring of the block names."""
    if title in TITLE_SOURCES:
        return TITLE_SOURCES[title]
    candidates: list[object] = [base for base in owner.__mro__ if base is not nn.Module] if owner else []
    if operation.kind in IN_ATTENTION_FORMULA and "MultiHeadAttention" in _names(owner):
        candidates.insert(0, attention)
    for candidate in candidates:
        text = " ".join(inspect.cleandoc(candidate.__doc__ or "").split())
        if match := re.search(r"Source: (.+?(?:Sec|Eq|Fig)\. [\w.-]+(?:, (?:Eq|Fig)\. [\w-]+)?)", text):
            return match[1].rstrip(".")
    if operation.kind != "cross_entropy":
        return ""
    return "Vaswani et al. 2017, Sec. 5.4" if operation.attributes["smoothing"] else "Vaswani et al. 2017, Sec. 3.4"


def _module_names(operation: Operation) -> set[str]:
    """Returns the class names of all enclosing modules."""
    return {type(module).__name__ for _, module in operation.modules}


def _names(owner: type | None) -> list[str]:
    """Returns the names of a class and its base classes."""
    return [base.__name__ for base in owner.__mro__] if owner else []


def _layer(parameter: str) -> str:
    """Returns the layer of a parameter, or the parameter itself outside layers."""
    return parameter.split(".")[-2] if "." in parameter else parameter
