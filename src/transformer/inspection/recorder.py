"""Records every operation of a forward pass, with what it read and wrote, and the gradients of all of it."""

import inspect
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Final, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle

from transformer.blocks.attention import MultiHeadAttention, attention, attention_weights, fused_linear
from transformer.blocks.dropout import add_dropout, drop_out
from transformer.blocks.feed_forward import feed_forward
from transformer.blocks.normalization import RMSNormalization
from transformer.errors import ConfigError

PACKAGE: Final = Path(__file__).parents[1]
KINDS: Final = {
    "linear": "linear", "matmul": "matmul", "__matmul__": "matmul", "embedding": "embedding",
    "layer_norm": "layer_norm", "softmax": "softmax", "masked_fill": "masked_fill",
    "add": "add", "__add__": "add", "__radd__": "add", "sub": "subtract", "__sub__": "subtract",
    "mul": "multiply", "__mul__": "multiply", "__rmul__": "multiply",
    "div": "divide", "__truediv__": "divide", "sum": "sum", "mean": "mean",
    "relu": "relu", "relu_": "relu", "gelu": "gelu", "silu": "silu", "tanh": "tanh", "cross_entropy": "cross_entropy",
    "transpose": "rearrange", "permute": "rearrange", "unflatten": "rearrange", "flatten": "rearrange",
    "view": "rearrange", "reshape": "rearrange", "split": "rearrange", "chunk": "rearrange", "cat": "rearrange",
    "__getitem__": "rearrange", "repeat_interleave": "rearrange", "expand": "rearrange", "unfold": "rearrange",
}  # fmt: skip
"""Kinds of operations by the names of torch's functions; other functions are computed, but not recorded."""
Arguments = tuple[tuple[object, ...], dict[str, object]]
"""Arguments of a call by position and by name."""
IN_PLACE: Final[dict[str, Callable[..., Tensor]]] = {"relu_": torch.relu}
"""Functions that overwrite their input, and those that do not."""


@dataclass(frozen=True, eq=False)
class Operation:
    """One operation of a forward pass.

    Attributes:
        kind: Kind of the operation, a value of `KINDS`, or `rms_norm`.
        modules: Modules that were being computed, outermost first, as (name, module).
        inputs: Tensors that it read, parameters and constants included.
        uses: Aliases of `inputs` that only this operation read; their gradients are this operation's contributions.
        output: Tensor that it wrote.
        attributes: Further arguments: numbers, and for `rearrange` the index of each element's origin.
        file: Path of the source file within the package.
        line: Line of the source file.
    """

    kind: str
    modules: tuple[tuple[str, nn.Module], ...]
    inputs: tuple[Tensor, ...]
    uses: tuple[Tensor, ...]
    output: Tensor
    attributes: dict[str, Any] = field(default_factory=dict)
    file: str = ""
    line: int = 0

    @property
    def module(self) -> str:
        """Name of the innermost module."""
        return self.modules[-1][0] if self.modules else ""


class Recorder(TorchFunctionMode):
    """Records the operations of the blocks within its context.

    The blocks compute everything; the recorder replaces only what would hide a step: the fused attention of long
    sources by its formula, joint projections by one for each matrix, and activations in place by others. Each operation
    reads aliases of its inputs, so that the gradient along each path is known, and not only their sum.

    Args:
        model: Model whose operations are named by its modules.
        mute_heads: For modules of attention by name, heads whose weights are set to zero.
        residual: Whether residual connections add their input; False shows a model without them.

    Raises:
        ConfigError: A module of `mute_heads` is not an attention of the model.
    """

    def __init__(
        self, model: nn.Module, *, mute_heads: dict[str, Sequence[int]] | None = None, residual: bool = True
    ) -> None:
        super().__init__()
        self.model = model
        self.operations: list[Operation] = []
        self.mute_heads = mute_heads or {}
        known = [name for name, module in model.named_modules() if isinstance(module, MultiHeadAttention)]
        if unknown := self.mute_heads.keys() - known:
            raise ConfigError(f"mute_heads={sorted(unknown)} names no attention of the model; choose among {known}")
        self.residual = residual
        self._stack: list[tuple[str, nn.Module]] = []
        self._hooks: list[RemovableHandle] = []
        self._paused = False
        self._norm_inputs: list[tuple[Tensor, Tensor]] = []

    def __enter__(self) -> "Recorder":
        """Starts recording."""
        if not self._hooks:
            for name, module in self.model.named_modules():
                self._hooks.append(module.register_forward_pre_hook(self._forward_pre_hook(name)))
                self._hooks.append(module.register_forward_hook(self._forward_hook, always_call=True))
        super().__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stops recording."""
        super().__exit__(kind, error, traceback)
        if not self._nesting:
            for hook in self._hooks:
                hook.remove()
            self._hooks.clear()

    _nesting = 0

    @contextmanager
    def _record_nested(self) -> Generator[None]:
        """Records the operations within a function of the blocks."""
        self._nesting += 1
        try:
            with self:
                yield
        finally:
            self._nesting -= 1

    def _forward_pre_hook(self, name: str) -> Callable[[nn.Module, tuple[Any, ...]], tuple[Tensor] | None]:
        def enter(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Tensor] | None:
            self._stack.append((self._qualified_name(module, name), module))
            if isinstance(module, RMSNormalization):
                self._paused = True
                alias = inputs[0].view_as(inputs[0])
                self._norm_inputs.append((inputs[0], alias))
                return (alias,)
            return None

        return enter

    def _qualified_name(self, module: nn.Module, name: str) -> str:
        """Returns the name of a module within its caller; shared modules have a name in each."""
        if self._stack:
            outer_name, outer = self._stack[-1]
            within = next((path for path, part in outer.named_modules() if part is module and path), None)
            if within is not None:
                return f"{outer_name}.{within}" if outer_name else within
        return name

    def _forward_hook(self, module: nn.Module, inputs: tuple[object, ...], output: Any) -> None:
        if isinstance(module, RMSNormalization):
            self._paused = False
            read, alias = self._norm_inputs.pop()
            code = inspect.unwrap(RMSNormalization.forward).__code__
            place = _block_file(code.co_filename), code.co_firstlineno
            self._add("rms_norm", (read, module.alpha), (alias, module.alpha), output, {"eps": module.eps}, place)
        self._stack.pop()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        """Computes a function of torch or of the blocks, and records it."""
        kwargs = kwargs or {}
        if self._paused:
            return func(*args, **kwargs)
        if func in (attention, fused_linear, feed_forward, drop_out, add_dropout):
            with self._record_nested():
                return self._decompose(func, *args, **kwargs)
        name = func.__name__
        tensors = [value for value in _flatten((*args, *kwargs.values())) if isinstance(value, Tensor)]
        if name not in KINDS or not any(tensor.requires_grad and tensor.is_floating_point() for tensor in tensors):
            return func(*args, **kwargs)
        function = IN_PLACE.get(name, func)
        output = self._compute(name, function, (args, kwargs), tensors)
        if not isinstance(output, tuple | list):
            return output
        others = (self._compute(name, function, (args, kwargs), tensors, part) for part in range(1, len(output)))
        return (output[0], *others)

    def _compute(
        self, name: str, function: Callable[..., Any], arguments: Arguments, tensors: list[Tensor], part: int = 0
    ) -> Any:
        """Applies a function to aliases of its tensors and records it, with one of its outputs."""
        aliases = {id(tensor): _alias(tensor) for tensor in tensors}
        args, kwargs = (_replace_tensors(values, aliases) for values in arguments)
        output = function(*args, **kwargs)
        uses = tuple(aliases[id(tensor)] for tensor in tensors)
        chosen = output[part] if isinstance(output, tuple | list) else output
        self._record(name, function, arguments, tuple(tensors), uses, chosen, part)
        return chosen if part else output

    def _decompose(self, func: Any, *args: Any, **kwargs: Any) -> object:
        """Decomposes a function of the blocks into functions of torch, which are recorded."""
        if func is fused_linear:
            x, layers = args
            return tuple(F.linear(x, layer.weight, layer.bias) for layer in layers)
        if func is attention:
            return self._attend(*args, **kwargs)
        if func is add_dropout and not self.residual:
            return drop_out(args[1], args[2])
        return func.__wrapped__(*args, **kwargs)

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None = None,
        dropout: float = 0.0,
        *,
        bias: Tensor | None = None,
        scale: float | None = None,
    ) -> Tensor:
        """Computes `attention` from its weights, with muted (ablated) heads."""
        weights = attention_weights(query, key, mask, bias=bias, scale=scale)
        if muted := self.mute_heads.get(self._stack[-1][0]):
            if not all(0 <= head < weights.size(1) for head in muted):
                raise ConfigError(f"mute_heads={list(muted)} is not within the {weights.size(1)} heads; choose others")
            kept = torch.ones(1, weights.size(1), 1, 1, dtype=weights.dtype)
            kept[:, list(muted)] = 0.0
            weights = weights * kept
        return drop_out(weights, dropout).to(value.dtype) @ value

    def _record(
        self,
        name: str,
        function: Callable[..., Any],
        arguments: Arguments,
        tensors: tuple[Tensor, ...],
        uses: tuple[Tensor, ...],
        output: Tensor,
        part: int,
    ) -> None:
        kind = KINDS[name]
        args, kwargs = arguments
        attributes: dict[str, Any] = {}
        if kind == "rearrange":
            origin = _flatten((_rearrange_indices(function, arguments, tensors),))[part]
            self._add(kind, tensors, uses, output, {"origin": origin})
            return
        numbers = [value for value in args if isinstance(value, int | float) and not isinstance(value, bool)]
        if kind in ("add", "subtract", "multiply", "divide", "masked_fill") and numbers:
            attributes["number"] = float(numbers[-1])
        if kind == "layer_norm":
            attributes["eps"] = args[4] if len(args) > 4 else kwargs["eps"]
        if kind == "gelu":
            attributes["approximate"] = kwargs.get("approximate", "none")
        if kind == "cross_entropy":
            attributes["smoothing"] = kwargs.get("label_smoothing", 0.0)
        if kind in ("softmax", "sum", "mean"):
            attributes["dim"] = kwargs.get("dim", args[1] if len(args) > 1 else None)
        self._add(kind, tensors, uses, output, attributes)

    def _add(
        self,
        kind: str,
        inputs: tuple[Tensor, ...],
        uses: tuple[Tensor, ...],
        output: Tensor,
        attributes: dict[str, Any],
        place: tuple[str, int] | None = None,
    ) -> None:
        file, line = place or _caller()
        self.operations.append(Operation(kind, tuple(self._stack), inputs, uses, output, attributes, file, line))

    def gradients(self, loss: Tensor) -> dict[int, Tensor]:
        """Returns the gradient of each recorded tensor, alias and parameter, by its `id`; zeros are left out."""
        recorded: dict[int, Tensor] = {}
        for operation in self.operations:
            for tensor in (*operation.inputs, *operation.uses, operation.output):
                if tensor.requires_grad:
                    recorded[id(tensor)] = tensor
        gradients = cast("Sequence[Tensor | None]", torch.autograd.grad(loss, [*recorded.values()], allow_unused=True))
        return {key: value for key, value in zip(recorded, gradients, strict=True) if value is not None}


def _alias(tensor: Tensor) -> Tensor:
    return tensor.view_as(tensor) if tensor.requires_grad else tensor


def _flatten(values: object) -> list[Any]:
    if isinstance(values, tuple | list):
        return [item for value in values for item in _flatten(value)]
    return [values]


def _replace_tensors(value: Any, replacements: dict[int, Tensor]) -> Any:
    """Replaces the tensors in nested arguments."""
    if isinstance(value, Tensor):
        return replacements[id(value)]
    if isinstance(value, tuple | list):
        return type(value)(_replace_tensors(item, replacements) for item in value)
    if isinstance(value, dict):
        return {key: _replace_tensors(item, replacements) for key, item in value.items()}
    return value


def _rearrange_indices(function: Callable[..., object], arguments: Arguments, tensors: tuple[Tensor, ...]) -> object:
    """Applies a rearrangement to the indices of elements, which are counted on from tensor to tensor."""
    indices: dict[int, Tensor] = {}
    start = 0
    for tensor in tensors:
        if tensor.is_floating_point():
            indices[id(tensor)] = torch.arange(start, start + tensor.numel()).view(tensor.shape)
            start += tensor.numel()
        else:
            indices[id(tensor)] = tensor
    args, kwargs = (_replace_tensors(values, indices) for values in arguments)
    return function(*args, **kwargs)


def _caller() -> tuple[str, int]:
    """Returns file and line of the block that called an operation."""
    frame = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        if file := _block_file(frame.f_code.co_filename):
            return file, frame.f_lineno
        frame = frame.f_back
    return "", 0


@cache
def _block_file(filename: str) -> str:
    """Returns the path of a source file within the package; empty for files of others and for the recorder's own."""
    path = Path(filename)
    if not path.is_relative_to(PACKAGE) or path == Path(__file__):
        return ""
    return path.relative_to(PACKAGE).as_posix()
