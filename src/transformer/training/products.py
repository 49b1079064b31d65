"""The products of training on a CPU, by the compiled kernels where they run."""

import math
from collections import deque
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Final

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode

from transformer.blocks import attention
from transformer.blocks.attention import PLAIN_UP_TO, Bias, Mask, joint_maps
from transformer.blocks.dropout import LEVELS, Dropout, add_dropped, drop_out, levels
from transformer.blocks.feed_forward import ACTIVATIONS, Activation, feed_forward
from transformer.blocks.normalization import LayerNormalization
from transformer.blocks.residual import normalized_sum
from transformer.kernels import elementwise, normalization
from transformer.kernels.elementwise import gelu, sum_columns
from transformer.kernels.matmul import Finish, matmul, multiplies
from transformer.kernels.trained_attention import AttentionInputs, attends
from transformer.training.lookups import Lookups
from transformer.training.loss import smoothed_cross_entropy

INNER: Final = {ACTIVATIONS[name]: name for name in ("relu", "gelu", "gelu_tanh")}
"""Activations of a feed-forward network that is computed as one function."""
ROUNDED: Final = "rounded"
"""The attribute of a norm's result that holds it in bfloat16, and which version of it that is."""
WATCHES: Final = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "forward")
"""What is called with a module, or in its place."""


class CompiledProducts(TorchFunctionMode):
    """Within this context, linear layers, attention, dropout, lookups and others go through the functions below.

    Blocks say what is computed and know nothing of it; elsewhere than on a CPU that runs the kernels nothing changes.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lookups = Lookups()
        self._mapped = Mapped()

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Called in place of every function of torch."""
        if function is F.linear:
            return self._linear(*args, **(kwargs or {}))
        if function is F.gelu:
            return activate(*args, **(kwargs or {}))
        if function is feed_forward:
            return feed(*args, mapped=self._mapped)
        if function is joint_maps:
            return linear_side_by_side(*args, mapped=self._mapped)
        if function is attention:
            return attend(*args, **(kwargs or {}))
        if function is drop_out:
            return drop(*args)
        if function is add_dropped:
            return add(*args)
        if function is normalized_sum:
            return normalize(*args, mapped=self._mapped)
        if function is F.embedding:
            return self._lookups.look_up(*args, **(kwargs or {}))
        if function is smoothed_cross_entropy:
            return self._lookups.loss(*args)
        return function(*args, **(kwargs or {}))

    def _linear(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:  # named as torch names them
        return linear(input, weight, bias, self._mapped)


class Mapped:
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
    mapped: Mapped | None = None,
) -> Float[Tensor, "*rows N"]:
    """X W^T + b as `torch.nn.functional.linear`, and its gradient.

    Under autocast, x is rounded to bfloat16 once and kept so for the backward pass, as autocast does; weights are
    rounded while they are read, and their gradients come out as float32, where autocast stores either twice.
    """
    precision = _precision()
    if not _is_known(x, weight, bias, precision):
        return F.linear(x, weight, bias)
    (y,) = _applied(_Linear, mapped, x, precision, weight, bias)
    return y


def linear_side_by_side(
    x: Float[Tensor, "*rows K"], maps: Sequence[nn.Linear], mapped: Mapped | None = None
) -> tuple[Tensor, ...]:
    """As `blocks.joint_maps`, with weights and their gradients where they are: nothing is joined or cut apart."""
    precision = _precision()
    if not all(_is_known(x, each.weight, each.bias, precision) for each in maps):
        return joint_maps(x, maps)
    weights_and_biases = (each for layer in maps for each in (layer.weight, layer.bias))
    return _applied(_Linear, mapped, x, precision, *weights_and_biases)


def _applied(
    function: type[torch.autograd.Function], mapped: Mapped | None, x: Tensor, *args: Any
) -> tuple[Tensor, ...]:
    """Results of a function that may give back its input as the last of them."""
    gives_back = mapped is not None and mapped.wants(x)
    found: tuple[Tensor, ...] = function.apply(x, gives_back, *args)  # pyright: ignore[reportAssignmentType]
    if mapped is None or not gives_back:
        return found
    mapped.keep(x, found[-1])
    return found[:-1]


def _precision() -> torch.dtype:
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
        dx = None
        if ctx.needs_input_grad[0]:
            dx, is_begun = _begun(ctx, gradients, torch.float32 if len(dys) > 1 else ctx.type)
            for place, (dy, weight) in enumerate(zip(dys, weights, strict=True)):
                finish = Finish(is_added=is_begun or place > 0)
                matmul(dy, weight, finish, precision=ctx.precision, out=dx.view(rows.shape))
            dx = dx.to(ctx.type)
        needs, of_maps = ctx.needs_input_grad[3:], list[Tensor | None]()
        of_weights, of_biases = needs[::2], needs[1::2]
        joined = _joined(dys) if len(dys) > 1 and all(of_weights) and len(set(of_biases)) == 1 else None
        if joined is not None:
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
    if not needs_weight or not x.size(1):
        d_weight = torch.empty(dy.size(1), 0, dtype=torch.float32, device="cpu") if needs_weight else None
        return d_weight, sum_columns(dy) if needs_bias else None
    d_bias = torch.empty(dy.size(1), dtype=torch.float32, device="cpu") if needs_bias else None
    d_weight = torch.empty(dy.size(1), x.size(1), dtype=torch.float32, device="cpu")
    return matmul(dy.t(), x, Finish(row_sums=d_bias), precision=precision, out=d_weight), d_bias


def feed(
    x: Float[Tensor, "*rows D"],
    linear_1: nn.Linear,
    activation: Activation,
    p: float,
    linear_2: nn.Linear,
    mapped: Mapped | None = None,
) -> Float[Tensor, "*rows D"]:
    """As `blocks.feed_forward`; on the way back, the slopes of what is between the maps cost no pass of their own."""
    precision, name = _precision(), INNER.get(activation)
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


def activate(x: Float[Tensor, "*shape"], approximate: str = "none") -> Float[Tensor, "*shape"]:
    """GELU as `torch.nn.functional.gelu`, and its gradient."""
    if approximate not in ("none", "tanh") or not multiplies(x):
        return F.gelu(x, approximate=approximate)  # which names the words it knows
    y: Tensor = _Gelu.apply(x, approximate == "tanh", torch.is_grad_enabled())  # pyright: ignore[reportAssignmentType]
    return y


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, is_by_tanh: bool, has_backward: bool) -> Tensor:
        y, slopes = gelu(x, is_by_tanh=is_by_tanh, wants_slopes=has_backward and ctx.needs_input_grad[0])
        ctx.save_for_backward(slopes)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        (slopes,) = ctx.saved_tensors
        return gradients[0].to(slopes.dtype) * slopes, None, None


def attend(
    query: Float[Tensor, "B H T E"],
    key: Float[Tensor, "B H S E"],
    value: Float[Tensor, "B H S E"],
    mask: Mask | None = None,
    dropout: float = 0.0,
    *,
    bias: Bias | None = None,
    scale: float | None = None,
) -> Float[Tensor, "B H T E"]:
    """As `blocks.attention`, where it would compute the weights of a short source without bias."""
    scale = 1 / math.sqrt(query.size(-1)) if scale is None else scale
    is_short = key.size(-2) <= PLAIN_UP_TO
    is_plain = bias is None and scale > 0
    if is_short and is_plain and multiplies(query, key, value) and attends(query, key, value, mask):
        found: Tensor = _Attention.apply(query, key, value, mask, scale, dropout)  # pyright: ignore[reportAssignmentType]
        return found
    return attention(query, key, value, mask, dropout, bias=bias, scale=scale)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float, dropout: float
    ) -> Tensor:
        ctx.settings = scale, levels(dropout), drawn_seed(dropout)
        out, weights = AttentionInputs(query, key, value, mask, *ctx.settings).forward()
        ctx.save_for_backward(query, key, value, mask, weights)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        query, key, value, mask, weights = ctx.saved_tensors
        found = AttentionInputs(query, key, value, mask, *ctx.settings).backward(weights, gradients[0])
        return *found, None, None, None


def drop(x: Float[Tensor, "*shape"], p: float) -> Float[Tensor, "*shape"]:
    """As `blocks.drop_out`, by numbers that are drawn again on the way back, not kept."""
    if not p or not multiplies(x):
        return drop_out(x, p)
    y: Tensor = _Dropped.apply(None, x, p)  # pyright: ignore[reportAssignmentType]
    return y


def add(x: Float[Tensor, "*shape"], y: Float[Tensor, "*shape"], p: float) -> Float[Tensor, "*shape"]:
    """As `blocks.add_dropped`, in one pass."""
    if x.shape != y.shape or not multiplies(x, y) or x.dtype != torch.promote_types(x.dtype, y.dtype):
        return add_dropped(x, y, p)
    z: Tensor = _Dropped.apply(x, y, p)  # pyright: ignore[reportAssignmentType]
    return z


def normalize(
    x: Float[Tensor, "*shape"], y: Float[Tensor, "*shape"], dropout: Dropout, norm: nn.Module, mapped: Mapped
) -> Float[Tensor, "*shape"]:
    """As `blocks.normalized_sum`, in one pass each way where the norm is a `LayerNormalization` that nobody watches."""
    p, given_back = dropout.p if dropout.training else 0.0, mapped.take(x)
    if not isinstance(norm, LayerNormalization) or not _is_normalized(x, y, norm):
        return norm(add(x, y, p))
    is_mapped_next = torch.is_grad_enabled() and _precision() == torch.bfloat16
    rounded = torch.empty(x.shape, dtype=torch.bfloat16, device="cpu") if is_mapped_next else None
    out: Tensor = _NormalizedSum.apply(given_back, y, norm.alpha, norm.beta, norm.eps, p, rounded)  # pyright: ignore[reportAssignmentType]
    if rounded is not None:
        setattr(out, ROUNDED, (rounded, out._version))
    return out


def _is_normalized(x: Tensor, y: Tensor, norm: LayerNormalization) -> bool:
    """Whether the kernel computes what this norm would."""
    alpha, beta = norm.alpha, norm.beta
    is_plain = type(norm) is LayerNormalization and not any(vars(norm).get(name) for name in WATCHES)
    is_known = x.shape == y.shape and multiplies(x, y, alpha, beta) and normalization.whole_draws(x.size(-1))
    is_whole = alpha.shape == beta.shape == x.shape[-1:] and alpha.is_contiguous() and beta.is_contiguous()
    return is_plain and is_known and is_whole and x.dtype == alpha.dtype == beta.dtype == torch.float32


class _NormalizedSum(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor, alpha: Tensor, beta: Tensor, eps: float, p: float, rounded: Tensor | None
    ) -> Tensor:
        ctx.settings = y.dtype, levels(p), drawn_seed(p)
        out, *found = normalization.add_dropped_norm(x, y, alpha, beta, eps, *ctx.settings[1:], rounded)
        ctx.save_for_backward(*found, alpha)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        found = normalization.add_dropped_norm_gradients(gradients[0], *ctx.saved_tensors, *ctx.settings)
        return *found, None, None, None


def drawn_seed(p: float) -> int:
    """From torch's generator; 0 where nothing is dropped."""
    return int(torch.empty((), dtype=torch.int64, device="cpu").random_(-(2**63), None)) if p else 0


class _Dropped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor | None, y: Tensor, p: float) -> Tensor:
        ctx.settings, ctx.type = (levels(p), drawn_seed(p)), y.dtype
        return elementwise.drop_out(y, *ctx.settings, onto=x, dtype=y.dtype if x is None else x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        (dz,) = gradients
        dy = elementwise.drop_out(dz, *ctx.settings, dtype=ctx.type) if ctx.needs_input_grad[1] else None
        return dz if ctx.needs_input_grad[0] else None, dy, None
