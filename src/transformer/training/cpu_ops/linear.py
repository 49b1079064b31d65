"""Maps and feed-forward networks of training on a CPU, by the compiled kernels where they run."""

from collections import deque
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from transformer.blocks.attention import fused_linear
from transformer.blocks.dropout import LEVELS, levels
from transformer.blocks.feed_forward import ACTIVATIONS, Activation
from transformer.kernels import elementwise
from transformer.kernels.elementwise import gelu, sum_columns
from transformer.kernels.gemm import Finish, matmul, multiplies
from transformer.training.cpu_ops.dropout import drawn_seed, drop

INNER: Final = {ACTIVATIONS[name]: name for name in ("relu", "gelu", "gelu_tanh")}
"""Activations of a feed-forward network that is computed as one function."""
ROUNDED: Final = "rounded"
"""The attribute of a norm's result that holds it in bfloat16, and which version of it that is."""


class GradientAccumulator:
    """Inputs of the last two maps since the last sum, to one of which that sum adds where a residual connection is.

    It is added to by way of the map, which gives it back beside its result: the sum's gradient then comes to the map,
    whose product is added to it where it lies, in place of autograd adding the two.
    """

    def __init__(self) -> None:
        self._pairs = deque[tuple[Tensor, Tensor]](maxlen=2)

    def wants(self, x: Tensor) -> bool:
        """Whether a map is to give back its input."""
        is_wide = x.requires_grad and x.dtype == torch.float32
        return is_wide and torch.is_grad_enabled() and not any(known is x for known, _ in self._pairs)

    def keep(self, x: Tensor, given_back: Tensor) -> None:
        """Of a map."""
        self._pairs.append((x, given_back))

    def take(self, x: Tensor) -> Tensor:
        """What is to be added to in place of x."""
        found = next((given_back for known, given_back in self._pairs if known is x), x)
        self._pairs.clear()
        return found


def linear(
    x: Float[Tensor, "*rows K"],
    weight: Float[Tensor, "N K"],
    bias: Float[Tensor, " N"] | None = None,
    mapped: GradientAccumulator | None = None,
) -> Float[Tensor, "*rows N"]:
    """X W^T + b as `torch.nn.functional.linear`, and its gradient.

    Under autocast, x is rounded to bfloat16 once and kept so for the backward pass, as autocast does; weights are
    rounded while they are read, and their gradients come out as float32, where autocast stores either twice.
    """
    precision = precision_asked()
    if not _is_known(x, weight, bias, precision):
        return F.linear(x, weight, bias)
    (y,) = _applied(_Linear, mapped, x, precision, weight, bias)
    return y


def linear_side_by_side(
    x: Float[Tensor, "*rows K"], maps: Sequence[nn.Linear], mapped: GradientAccumulator | None = None
) -> tuple[Tensor, ...]:
    """As `blocks.fused_linear`; weights are joined only on the way back, if the results' gradients lie side by side."""
    precision = precision_asked()
    if not all(_is_known(x, each.weight, each.bias, precision) for each in maps):
        return fused_linear(x, maps)
    weights_and_biases = (each for layer in maps for each in (layer.weight, layer.bias))
    return _applied(_Linear, mapped, x, precision, *weights_and_biases)


def _applied(
    function: type[torch.autograd.Function], mapped: GradientAccumulator | None, x: Tensor, *args: Any
) -> tuple[Tensor, ...]:
    """Results of a function that may give back its input as the last of them."""
    gives_back = mapped is not None and mapped.wants(x)
    found: tuple[Tensor, ...] = function.apply(x, gives_back, *args)  # pyright: ignore[reportAssignmentType]
    if mapped is None or not gives_back:
        return found
    mapped.keep(x, found[-1])
    return found[:-1]


def precision_asked() -> torch.dtype:
    """Of products: that of autocast, or float32."""
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else torch.float32


def _is_known(x: Tensor, weight: Tensor, bias: Tensor | None, precision: torch.dtype) -> bool:
    """Whether the kernel multiplies these."""
    wide = [weight] if bias is None else [weight, bias]
    wide = wide if precision == torch.bfloat16 else [x, *wide]
    is_plain = weight.is_contiguous() and (bias is None or bias.is_contiguous())
    is_known = precision in (torch.float32, torch.bfloat16) and is_plain
    return is_known and multiplies(x, *wide) and all(each.dtype == torch.float32 for each in wide)


class _Linear(torch.autograd.Function):
    """One or several maps of x, whose weights and biases follow each other."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, gives_back: bool, precision: torch.dtype, *maps: Tensor | None
    ) -> tuple[Tensor, ...]:
        rows = _rows(x, precision)
        weights, biases = [each for each in maps[::2] if each is not None], maps[1::2]
        found: list[Tensor] = []
        for weight, bias in zip(weights, biases, strict=True):
            found.append(torch.empty(*x.shape[:-1], weight.size(0), dtype=precision, device="cpu"))
            matmul(rows, weight.t(), Finish(bias), precision=precision, out=found[-1].view(-1, weight.size(0)))
        ctx.save_for_backward(rows, *weights)
        ctx.shape, ctx.type, ctx.precision, ctx.gives_back = x.shape, x.dtype, precision, gives_back
        ctx.set_materialize_grads(False)
        return (*found, x) if gives_back else tuple(found)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        rows, *weights = ctx.saved_tensors
        of_results = gradients[: len(weights)]
        if all(dy is None for dy in of_results):  # nothing became of the map
            return gradients[-1], *[None] * (2 + 2 * len(weights))
        dys = [_whole(dy, rows, weight, ctx.precision) for dy, weight in zip(of_results, weights, strict=True)]
        joined = _joined(dys) if len(dys) > 1 else None
        dx = None
        if ctx.needs_input_grad[0]:
            factors = list(zip(dys, weights, strict=True)) if joined is None else [(joined, torch.cat(weights))]
            dx, is_begun = _begun(ctx, gradients, torch.float32 if len(factors) > 1 else ctx.type)
            for place, (dy, weight) in enumerate(factors):
                finish = Finish(is_added=is_begun or place > 0)
                matmul(dy, weight, finish, precision=ctx.precision, out=dx.view(rows.shape))
            dx = dx.to(ctx.type)
        needs, of_maps = ctx.needs_input_grad[3:], list[Tensor | None]()
        of_weights, of_biases = needs[::2], needs[1::2]
        if joined is not None and all(of_weights) and len(set(of_biases)) == 1:
            widths = [weight.size(0) for weight in weights]
            found = _gradients(joined, rows, ctx.precision, needs[:2])
            parts = ([None] * len(widths) if each is None else each.split(widths) for each in found)
            of_maps += chain.from_iterable(zip(*parts, strict=True))
        else:
            for place, dy in enumerate(dys):
                of_maps += _gradients(dy, rows, ctx.precision, needs[2 * place : 2 * place + 2])
        return dx, None, None, *of_maps


def _rows(x: Float[Tensor, "*rows K"], precision: torch.dtype) -> Float[Tensor, "M K"]:
    """As a matrix of a precision; a norm has made some of bfloat16 already."""
    rounded, version = getattr(x, ROUNDED, (x, None))
    is_there = precision == torch.bfloat16 and version is not None and version == x._version  # else changed in place
    return (rounded if is_there else x).reshape(-1, x.size(-1)).to(precision).contiguous()


def _whole(dy: Tensor | None, rows: Tensor, weight: Tensor, precision: torch.dtype) -> Float[Tensor, "M N"]:
    """The gradient of a map's result, as a matrix: zeros where only other maps' came to something."""
    if dy is None:
        return torch.zeros(rows.size(0), weight.size(0), dtype=precision, device="cpu")
    dy = dy.reshape(-1, weight.size(0))
    return dy if dy.stride(1) == 1 else dy.contiguous()


def _joined(parts: Sequence[Float[Tensor, "M _"]]) -> Float[Tensor, "M N"] | None:
    """Matrices whose rows follow each other in memory, as one; None where they do not."""
    first, width = parts[0], 0
    for part in parts:
        is_next = part.data_ptr() == first.data_ptr() + width * first.element_size() and part.stride() == first.stride()
        if not is_next or part.untyped_storage().data_ptr() != first.untyped_storage().data_ptr():
            return None
        width += part.size(1)
    return first.as_strided((first.size(0), width), first.stride()) if first.stride(0) >= width else None


def _begun(ctx: Any, gradients: Sequence[Tensor | None], dtype: torch.dtype) -> tuple[Tensor, bool]:
    """Where the gradient of a map's input goes, and whether that of what was given back is there already.

    Nobody else reads that: what was given back is seen by one sum alone, which makes its gradient.
    """
    given = gradients[-1] if ctx.gives_back else None
    return (torch.empty(ctx.shape, dtype=dtype, device="cpu"), False) if given is None else (given.contiguous(), True)


def _gradients(
    dy: Float[Tensor, "M N"], x: Float[Tensor, "M K"], precision: torch.dtype, needs: Sequence[bool]
) -> tuple[Float[Tensor, "N K"] | None, Float[Tensor, " N"] | None]:
    """Of a map's weight and bias, where they are needed."""
    needs_weight, needs_bias = needs
    if not needs_weight:
        return None, sum_columns(dy) if needs_bias else None
    d_bias = torch.empty(dy.size(1), dtype=torch.float32, device="cpu") if needs_bias else None
    d_weight = torch.empty(dy.size(1), x.size(1), dtype=torch.float32, device="cpu")
    return matmul(dy.t(), x, Finish(row_sums=d_bias), precision=precision, out=d_weight), d_bias


def feed(
    x: Float[Tensor, "*rows D"],
    linear_1: nn.Linear,
    activation: Activation,
    p: float,
    linear_2: nn.Linear,
    mapped: GradientAccumulator | None = None,
) -> Float[Tensor, "*rows D"]:
    """As `blocks.feed_forward`; on the way back, the slopes of what is between the maps cost no pass of their own."""
    precision, name = precision_asked(), INNER.get(activation)
    if name is None or not all(_is_known(x, each.weight, each.bias, precision) for each in (linear_1, linear_2)):
        inner = activation(linear(x, linear_1.weight, linear_1.bias))
        return linear(drop(inner, p), linear_2.weight, linear_2.bias)
    maps = (each for layer in (linear_1, linear_2) for each in (layer.weight, layer.bias))
    (y,) = _applied(_FeedForward, mapped, x, precision, (name, p), torch.is_grad_enabled(), *maps)
    return y


class _FeedForward(torch.autograd.Function):
    """Kept are the inner layer, after activation and dropout, and its slopes: of ReLU, what is above 0 has one."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, gives_back: bool, precision: torch.dtype, between: tuple[str, float], has_backward: bool,
        w_1: Tensor, b_1: Tensor | None, w_2: Tensor, b_2: Tensor | None,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        (activation, p), slopes = between, None
        rows = _rows(x, precision)
        inner = torch.empty(rows.size(0), w_1.size(0), dtype=precision, device="cpu")
        matmul(rows, w_1.t(), Finish(b_1, is_rectified=activation == "relu"), precision=precision, out=inner)
        if activation != "relu":
            is_by_tanh, wants_slopes = activation == "gelu_tanh", has_backward and any(ctx.needs_input_grad[:7])
            _, slopes = gelu(inner, is_by_tanh=is_by_tanh, wants_slopes=wants_slopes, is_in_place=True)
        if p:
            seed = drawn_seed(p)
            for each in (inner, slopes):
                if each is not None:
                    elementwise.drop_out(each, levels(p), seed, dtype=precision, is_in_place=True)
        y = torch.empty(*x.shape[:-1], w_2.size(0), dtype=precision, device="cpu")
        matmul(inner, w_2.t(), Finish(b_2), precision=precision, out=y.view(-1, w_2.size(0)))
        ctx.save_for_backward(rows, inner, slopes, w_1, w_2)
        ctx.shape, ctx.type, ctx.precision, ctx.gives_back = x.shape, x.dtype, precision, gives_back
        ctx.factor = LEVELS / (LEVELS - levels(p))
        ctx.set_materialize_grads(False)
        return (y, x) if gives_back else (y,)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        rows, inner, slopes, w_1, w_2 = ctx.saved_tensors
        needs, precision = ctx.needs_input_grad, ctx.precision
        if gradients[0] is None:
            return gradients[-1], *[None] * 8
        dy = _whole(gradients[0], rows, w_2, precision)
        d_inner = torch.empty_like(inner)
        finish = Finish(gate=inner, factor=ctx.factor) if slopes is None else Finish(slopes=slopes)
        matmul(dy, w_2, finish, precision=precision, out=d_inner)
        of_second = _gradients(dy, inner, precision, needs[7:9])
        dx = None
        if needs[0]:
            dx, is_begun = _begun(ctx, gradients, ctx.type)
            matmul(d_inner, w_1, Finish(is_added=is_begun), precision=precision, out=dx.view(rows.shape))
        return dx, None, None, None, None, *_gradients(d_inner, rows, precision, needs[5:7]), *of_second
