"""Linear layers whose weights were packed for speed, in float32, bfloat16 or int8."""

import ctypes
import mmap
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from transformer.errors import ConfigError
from transformer.kernels.library import library, rounds, threads_for
from transformer.kernels.topk import MOST_RANKED, best_tokens

Precision = Literal["float32", "bf16", "int8"]
PRECISIONS: Final = get_args(Precision)
PANEL: Final = 64
GROUPS: Final = {"float32": 1, "bf16": 2, "int8": 4}
"""Inputs that one instruction multiplies and adds: four bytes of weight in each precision."""
COLUMN_COST: Final = 8
"""Multiplications that take as long as fetching one number of a column."""
HUGE_PAGE: Final = 1 << 21
TYPES: Final = {"float32": torch.float32, "bf16": torch.bfloat16, "int8": torch.int8}


ACTIVATIONS: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    "none": lambda y: y, "relu": torch.relu, "silu": F.silu, "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
}  # fmt: skip
"""What a product may do with its results; the kernel has them in the same order."""


class Matrix(ctypes.Structure):
    """What a kernel knows of a packed weight; the same fields in the same order as `Matrix` in kernels.h."""

    _fields_ = (
        ("weight", ctypes.c_void_p), ("bias", ctypes.c_void_p), ("scales", ctypes.c_void_p),
        ("offsets", ctypes.c_void_p), ("inner", ctypes.c_long), ("columns", ctypes.c_long),
        ("precision", ctypes.c_int), ("activation", ctypes.c_int),
    )  # fmt: skip


@dataclass(frozen=True)
class Weight:
    """The numbers of a linear layer's weight, in one of three precisions.

    Attributes:
        values: one row an output; int8 in units of `scales`.
        scales: of each row, where the values are int8: its largest absolute number / 127.
    """

    values: Tensor
    scales: Float[Tensor, " N"] | None = None

    @classmethod
    def of(cls, weight: Float[Tensor, "N K"], precision: Precision) -> "Weight":
        """Rounds a weight to a precision."""
        if precision != "int8":
            return cls(weight.detach().to(TYPES[precision]))
        weight = weight.detach().float().contiguous()
        compiled, (rows, inner) = library(), weight.shape
        if compiled is None:
            scales = weight.abs().amax(dim=1) / 127
            per_unit = torch.where(scales > 0, 1 / scales, 0.0)[:, None]
            return cls((weight * per_unit).round_().to(torch.int8), scales)
        values = torch.empty(rows, inner, dtype=torch.int8, device="cpu")
        scales = torch.empty(rows, dtype=torch.float32, device="cpu")
        compiled.transformer_round_rows(
            weight.data_ptr(), rows, inner, values.data_ptr(), scales.data_ptr(), threads_for(weight.numel())
        )
        return cls(values, scales)

    @property
    def precision(self) -> Precision:
        """How the values are stored."""
        return next(name for name in PRECISIONS if TYPES[name] == self.values.dtype)

    def numbers(self) -> Float[Tensor, "N K"]:
        """The weight in float32."""
        values = self.values.float()
        return values if self.scales is None else values * self.scales[:, None]


class PackedMatrix:
    """y = activation(x W^T + b), for one or more weights side by side.

    The compiled kernel reads the weight in the order in which it is multiplied, see `product.cpp`; elsewhere torch
    multiplies. In int8, each row of x is rounded in units of its own largest number / 127 and the products are summed
    exactly, so that a row's result does not depend on its neighbours; this holds for bf16 too, and for float32 except
    that AMX multiplies many rows in another way than few: the last bits of their sums may differ, and what is infinite
    gives NaN.

    Args:
        weights: all of one precision; their outputs stand side by side.
        bias: of all outputs.
        activation: of the results, one of `ACTIVATIONS`.

    Source: Jacob et al. 2018, "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
    Inference", Sec. 2, with the zero point at 0.
    """

    def __init__(self, *weights: Weight, bias: Tensor | None = None, activation: str = "none") -> None:
        self.precision: Precision = weights[0].precision
        values = torch.cat([weight.values for weight in weights])
        self.columns, self.inner = values.shape
        self.activation = activation
        self.scales = None
        if self.precision == "int8":
            self.scales = _filled(torch.cat([_known(weight.scales) for weight in weights]))
        self.bias = self._checked(bias)
        self.offsets: Tensor | None = None
        self._compiled = library()
        if self._compiled is None:
            self.values = values.t().contiguous() if self.precision == "int8" else values
            return
        self.strip: int = self._compiled.transformer_columns_of_a_strip()
        self.values = _strips(values, GROUPS[self.precision], self.strip)
        if self.precision == "int8":
            sums = torch.empty(self.columns, dtype=torch.int32, device="cpu")
            threads = threads_for(values.numel())
            self._compiled.transformer_sum_rows(values.data_ptr(), *values.shape, sums.data_ptr(), threads)
            self.offsets = _filled(sums * 128)
        self._describe()

    def _describe(self) -> None:
        """Tells the kernel where everything lies."""
        tensors = (self.values, self.bias, self.scales, self.offsets)
        pointers = [None if tensor is None else tensor.data_ptr() for tensor in tensors]
        self._matrix = Matrix(
            *pointers,
            self.inner,
            self.columns,
            PRECISIONS.index(self.precision),
            list(ACTIVATIONS).index(self.activation),
        )
        self.address = ctypes.addressof(self._matrix)

    def _checked(self, bias: Tensor | None) -> Tensor | None:
        if bias is not None and bias.shape != (self.columns,):
            raise ValueError(f"a bias of {tuple(bias.shape)} does not go with {self.columns} outputs")
        return None if bias is None else _filled(bias.detach().float())

    def finished(self, bias: Tensor | None, activation: str) -> "PackedMatrix":
        """The same weight with another bias and activation."""
        other = copy(self)
        other.bias, other.activation = self._checked(bias), activation
        if self._compiled is not None:
            other._describe()
        return other

    def part(self, start: int, stop: int) -> "PackedMatrix":
        """Some of the outputs. Where they begin and end with a panel, nothing is copied."""
        part = copy(self)
        part.columns = stop - start
        own = slice(start, stop)
        if self._compiled is None:
            part.values = self.values[:, own] if self.precision == "int8" else self.values[own]
        elif start % PANEL == 0:
            part.values = self.values[start // self.strip : -(-stop // PANEL) * (PANEL // self.strip)]
        else:
            rows = self.values.transpose(1, 2).flatten(2).flatten(0, 1)[own]
            part.values = _strips(rows, GROUPS[self.precision], self.strip)
        part.bias, part.scales, part.offsets = (
            None if row is None else _filled(row[own]) for row in (self.bias, self.scales, self.offsets)
        )
        if self._compiled is not None:
            part._describe()
        return part

    def select(self, ids: Int[Tensor, " C"]) -> "PackedMatrix":
        """Some of the outputs, in the given order, copied."""
        chosen = copy(self)
        chosen.columns = len(ids)
        if self._compiled is None:
            chosen.values = self.values[:, ids] if self.precision == "int8" else self.values[ids]
        else:
            fours = self.values.flatten(2).view(torch.int32)  # strips, groups, columns
            rows = F.pad(fours[ids // self.strip, :, ids % self.strip], (0, 0, 0, -len(ids) % PANEL))
            strips = rows.unflatten(0, (-1, self.strip)).transpose(1, 2).contiguous()
            chosen.values = strips.view(self.values.dtype).unflatten(-1, (self.strip, GROUPS[self.precision]))
        chosen.bias, chosen.scales, chosen.offsets = (
            None if row is None else _filled(row[ids]) for row in (self.bias, self.scales, self.offsets)
        )
        if self._compiled is not None:
            chosen._describe()
        return chosen

    @property
    def nbytes(self) -> int:
        """Memory of the weight."""
        held = (self.values, self.scales, self.bias)
        return sum(tensor.nbytes for tensor in held if tensor is not None)

    @property
    def takes_rounded(self) -> bool:
        """Whether its product takes and writes bfloat16 where that is wanted, which halves what is moved."""
        return self.precision != "float32" and rounds()

    def __call__(self, x: Float[Tensor, "*rows K"], *, rounded: bool = False) -> Float[Tensor, "*rows N"]:
        """Returns the outputs of every row.

        Args:
            x: float32, or bfloat16.
            rounded: bfloat16 if it `takes_rounded`, for another product; otherwise float32.
        """
        rows = x.numel() // self.inner
        if self._compiled is None:
            return self._by_torch(x.reshape(rows, self.inner).float()).view(*x.shape[:-1], self.columns)
        threads = threads_for(rows * self.inner * self.columns)
        is_rounded, rounded = self.takes_rounded and x.dtype == torch.bfloat16, self.takes_rounded and rounded
        x = self._readable(x, x.dtype if is_rounded else torch.float32)
        y = torch.empty(*x.shape[:-1], self.columns, dtype=torch.bfloat16 if rounded else torch.float32, device="cpu")
        if is_rounded or rounded:
            own = x.data_ptr(), is_rounded, rows, y.data_ptr(), rounded
            self._compiled.transformer_rounded_product(self.address, *own, threads)
        else:
            self._compiled.transformer_product(self.address, x.data_ptr(), rows, y.data_ptr(), threads)
        return y

    def best(
        self, x: Float[Tensor, "M K"], k: int, never: Bool[Tensor, " N"] | None = None
    ) -> tuple[Float[Tensor, "M k"], Int[Tensor, "M k"]]:
        """`best_tokens` of the outputs, of which no more are in memory at a time than are compared."""
        if self._compiled is None or k > MOST_RANKED or self.activation != "none":
            return best_tokens(self(x), k, never)
        x = self._readable(x)
        log_p = torch.empty(len(x), k, dtype=torch.float32, device="cpu")
        tokens = torch.empty(len(x), k, dtype=torch.long, device="cpu")
        self._compiled.transformer_best_of_product(
            self.address, x.data_ptr(), len(x), k, None if never is None else never.data_ptr(), log_p.data_ptr(),
            tokens.data_ptr(), threads_for(x.numel() * self.columns),
        )  # fmt: skip
        return log_p, tokens

    def rows(self, ids: Int[Tensor, "*ids"], factor: float = 1.0) -> Float[Tensor, "*ids K"]:
        """The weights of some outputs times a factor, in float32: the matrix as an embedding."""
        if self._compiled is None:
            found = self.values[:, ids].movedim(0, -1) if self.precision == "int8" else self.values[ids]
            numbers = found.float() if self.scales is None else found * self.scales[ids][..., None]
            return numbers * factor
        ids = ids.long().contiguous()
        numbers = torch.empty(*ids.shape, self.inner, dtype=torch.float32, device="cpu")
        threads = threads_for(COLUMN_COST * numbers.numel())
        out = numbers.data_ptr()
        if self._compiled.transformer_lookup(self.address, ids.data_ptr(), ids.numel(), factor, out, threads):
            raise IndexError(f"ids {int(ids.min())} to {int(ids.max())} are not all of 0 to {self.columns - 1}")
        return numbers

    def _readable(self, x: Float[Tensor, "*rows K"], dtype: torch.dtype = torch.float32) -> Float[Tensor, "*rows K"]:
        """As the kernel reads it."""
        if x.size(-1) != self.inner:
            raise ValueError(f"rows of {x.size(-1)} do not go with a weight of {self.inner} inputs")
        return x.to(dtype).contiguous()

    def _by_torch(self, x: Float[Tensor, "M K"]) -> Float[Tensor, "M N"]:
        bias = None if self.bias is None else self.bias[: self.columns]
        if self.scales is None:
            y = F.linear(x.to(self.values.dtype), self.values).float()
            y = y if bias is None else y + bias
        else:
            largest = x.abs().amax(dim=1, keepdim=True)
            rounded = (x * torch.where(largest > 0, 127 / largest, 0.0)).round().to(torch.int8)
            whole = torch.ops.aten._int_mm(rounded, self.values).float()
            y = whole * (self.scales[: self.columns] * (largest / 127))
            y = y if bias is None else y + bias
        return ACTIVATIONS[self.activation](y)


def _known(scales: Tensor | None) -> Tensor:
    if scales is None:
        raise ConfigError("weights of several precisions do not stand side by side")
    return scales


def _filled(row: Tensor) -> Tensor:
    """With zeros up to a whole number of panels, which the kernel reads in full."""
    return F.pad(row, (0, -row.numel() % PANEL))


def _strips(values: Float[Tensor, "N K"] | Int[Tensor, "N K"], group: int, strip: int) -> Tensor:
    """(strips, groups, columns of a strip, inputs of a group), filled with zeros up to a whole number of panels."""
    filled = F.pad(values, (0, -values.size(1) % group, 0, -values.size(0) % PANEL))
    fours = filled.view(torch.int32).unflatten(0, (-1, strip))  # a group is four bytes, which move together
    moved = fours.transpose(1, 2)
    return laid_out(moved).view(values.dtype).unflatten(-1, (strip, group))


def laid_out(numbers: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
    """A copy of int32 numbers in the order in which they are counted, in large pages where there are many."""
    if not _is_large(numbers):
        return numbers.contiguous()
    return _in_huge_pages(numbers.numel()).view(numbers.shape).copy_(numbers)


def _is_large(tensor: Tensor) -> bool:
    return tensor.nbytes >= HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE")


def _in_huge_pages(numbers: int) -> Int[Tensor, " n"]:
    """Memory for int32 numbers in pages of 2 MiB, of which a product of one row reads as many as memory can give."""
    room = mmap.mmap(-1, -(-4 * numbers // HUGE_PAGE) * HUGE_PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel without huge pages
        room.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(room, dtype=torch.int32, count=numbers)
