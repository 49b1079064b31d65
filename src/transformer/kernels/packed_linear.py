"""Linear layers with prepacked weights, in the order in which the kernels read them: float32, bfloat16 or int8."""

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
from transformer.kernels.library import library, supports_bf16, threads_for
from transformer.kernels.topk import MAX_TOP_K, best_tokens

Precision = Literal["float32", "bf16", "int8"]
PRECISIONS: Final = get_args(Precision)
PANEL: Final = 64
"""Number of outputs that the kernels compute together; weights are padded to a multiple of it."""
INPUTS_PER_GROUP: Final = {"float32": 1, "bf16": 2, "int8": 4}
"""Number of inputs that one instruction multiplies and adds: four bytes of weight in each precision."""
COLUMN_COST: Final = 8
"""Number of multiplications that take as long as loading one element of a column."""
HUGE_PAGE: Final = 1 << 21
DTYPES: Final = {"float32": torch.float32, "bf16": torch.bfloat16, "int8": torch.int8}


ACTIVATIONS: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    "none": lambda y: y, "relu": torch.relu, "silu": F.silu, "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
}  # fmt: skip
"""Activations that can be fused into a product, in the order in which the kernel numbers them."""


class PackedMatrixArgs(ctypes.Structure):
    """Description of a packed weight, with the fields of the C++ struct `PackedMatrix` in kernels.h, in its order."""

    __slots__ = ()  # a misspelled field is an error
    _fields_ = (
        ("weight", ctypes.c_void_p), ("bias", ctypes.c_void_p), ("scales", ctypes.c_void_p),
        ("offsets", ctypes.c_void_p), ("inner", ctypes.c_long), ("columns", ctypes.c_long),
        ("precision", ctypes.c_int), ("activation", ctypes.c_int),
    )  # fmt: skip


@dataclass(frozen=True)
class Weight:
    """The weight of a linear layer in one of three precisions.

    Attributes:
        values: Weight with one row per output. Int8 values are in units of `scales`.
        scales: Scale of each row if the values are int8: its largest absolute value / 127.
    """

    values: Tensor
    scales: Float[Tensor, " N"] | None = None

    @classmethod
    def from_tensor(cls, weight: Float[Tensor, "N K"], precision: Precision) -> "Weight":
        """Converts a weight to a precision; for int8, quantizes each row symmetrically (absmax)."""
        if precision != "int8":
            return cls(weight.detach().to(DTYPES[precision]))
        return cls(*quantize_to_int8(weight))

    @property
    def precision(self) -> Precision:
        """Precision of the stored values."""
        return next(name for name in PRECISIONS if DTYPES[name] == self.values.dtype)

    def dequantize(self) -> Float[Tensor, "N K"]:
        """Dequantizes the weight to float32."""
        values = self.values.float()
        return values if self.scales is None else values * self.scales[:, None]


def quantize_to_int8(weight: Float[Tensor, "N K"]) -> tuple[Int[Tensor, "N K"], Float[Tensor, " N"]]:
    """Quantizes each row of a weight to int8, symmetrically (absmax).

    Returns:
        The values, and the scale of each row: its largest absolute value / 127.
    """
    weight = weight.detach().float().contiguous()
    compiled, (rows, inner) = library(), weight.shape
    if compiled is None:
        scales = weight.abs().amax(dim=1) / 127
        per_unit = torch.where(scales > 0, 1 / scales, 0.0)[:, None]
        return (weight * per_unit).round_().to(torch.int8), scales
    values = torch.empty(rows, inner, dtype=torch.int8, device="cpu")
    scales = torch.empty(rows, dtype=torch.float32, device="cpu")
    compiled.transformer_quantize_rows(
        weight.data_ptr(), rows, inner, values.data_ptr(), scales.data_ptr(), threads_for(weight.numel())
    )
    return values, scales


class PackedLinear:
    """A linear layer y = activation(x W^T + b), whose weight may be a concatenation of several.

    The weight is stored in the order in which the compiled kernel reads it, see `packed_linear.cpp`. Without the
    kernels, PyTorch computes the product. In int8, each row of x is quantized with its own scale, its largest absolute
    value / 127, and the products are summed exactly.

    The result of a row does not depend on the other rows of the batch. The one exception is float32 with AMX, which
    multiplies many rows by another method than few: the last bits may differ, and infinite inputs give NaN.

    Args:
        weights: Weights of the same precision, whose outputs are concatenated.
        bias: Bias of all outputs.
        activation: Activation of the results, a key of `ACTIVATIONS`.

    Raises:
        ConfigError: The weights have different precisions.
        ValueError: The bias does not match the outputs.

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
            self.scales = _pad_to_panel(torch.cat([_require_scales(weight) for weight in weights]))
        self.bias = self._check_bias(bias)
        self.offsets: Tensor | None = None
        self._compiled = library()
        if self._compiled is None:
            self.values = values.t().contiguous() if self.precision == "int8" else values
            return
        self.column_block: int = self._compiled.transformer_packed_column_block()
        self.values = _pack_column_blocks(values, INPUTS_PER_GROUP[self.precision], self.column_block)
        if self.precision == "int8":
            sums = torch.empty(self.columns, dtype=torch.int32, device="cpu")
            threads = threads_for(values.numel())
            self._compiled.transformer_sum_int8_rows(values.data_ptr(), *values.shape, sums.data_ptr(), threads)
            self.offsets = _pad_to_panel(sums * 128)
        self._update_args()

    def _update_args(self) -> None:
        """Updates the description of the weight that is passed to the kernel."""
        tensors = (self.values, self.bias, self.scales, self.offsets)
        pointers = [None if tensor is None else tensor.data_ptr() for tensor in tensors]
        self._args = PackedMatrixArgs(
            *pointers,
            self.inner,
            self.columns,
            PRECISIONS.index(self.precision),
            list(ACTIVATIONS).index(self.activation),
        )
        self.address = ctypes.addressof(self._args)

    def _check_bias(self, bias: Tensor | None) -> Tensor | None:
        if bias is not None and bias.shape != (self.columns,):
            raise ValueError(
                f"bias={tuple(bias.shape)} does not match {self.columns} outputs; pass one number per output"
            )
        return None if bias is None else _pad_to_panel(bias.detach().float())

    def with_activation(self, bias: Tensor | None, activation: str) -> "PackedLinear":
        """Returns a layer that shares the weight, with another bias and activation."""
        other = copy(self)
        other.bias, other.activation = self._check_bias(bias), activation
        if self._compiled is not None:
            other._update_args()
        return other

    def slice_outputs(self, start: int, stop: int) -> "PackedLinear":
        """Returns a layer with a range of the outputs. The weight is not copied if `start` is a multiple of `PANEL`."""
        part = copy(self)
        part.columns = stop - start
        outputs = slice(start, stop)
        if self._compiled is None:
            part.values = self.values[:, outputs] if self.precision == "int8" else self.values[outputs]
        elif start % PANEL == 0:
            part.values = self.values[start // self.column_block : -(-stop // PANEL) * (PANEL // self.column_block)]
        else:
            rows = self.values.transpose(1, 2).flatten(2).flatten(0, 1)[outputs]
            part.values = _pack_column_blocks(rows, INPUTS_PER_GROUP[self.precision], self.column_block)
        part.bias, part.scales, part.offsets = (
            None if row is None else _pad_to_panel(row[outputs]) for row in (self.bias, self.scales, self.offsets)
        )
        if self._compiled is not None:
            part._update_args()
        return part

    def select(self, ids: Int[Tensor, " C"]) -> "PackedLinear":
        """Returns a layer with a copy of the given outputs, in the given order."""
        chosen = copy(self)
        chosen.columns = len(ids)
        if self._compiled is None:
            chosen.values = self.values[:, ids] if self.precision == "int8" else self.values[ids]
        else:
            groups = self.values.flatten(2).view(torch.int32)  # column blocks, groups, columns
            rows = F.pad(groups[ids // self.column_block, :, ids % self.column_block], (0, 0, 0, -len(ids) % PANEL))
            blocks = rows.unflatten(0, (-1, self.column_block)).transpose(1, 2).contiguous().view(self.values.dtype)
            chosen.values = blocks.unflatten(-1, (self.column_block, INPUTS_PER_GROUP[self.precision]))
        chosen.bias, chosen.scales, chosen.offsets = (
            None if row is None else _pad_to_panel(row[ids]) for row in (self.bias, self.scales, self.offsets)
        )
        if self._compiled is not None:
            chosen._update_args()
        return chosen

    @property
    def nbytes(self) -> int:
        """Memory of the weight, its scales and the bias, in bytes."""
        tensors = (self.values, self.scales, self.bias)
        return sum(tensor.nbytes for tensor in tensors if tensor is not None)

    @property
    def accepts_bf16(self) -> bool:
        """Whether the product accepts and can return bfloat16, which halves the memory traffic of activations."""
        return self.precision != "float32" and supports_bf16()

    def __call__(self, x: Float[Tensor, "*rows K"], *, bf16_output: bool = False) -> Float[Tensor, "*rows N"]:
        """Applies the layer to each row.

        Args:
            x: Input, float32 or bfloat16.
            bf16_output: Whether the result is bfloat16, as input of another product. It is float32 regardless of this
                option unless `accepts_bf16`.
        """
        rows = x.numel() // self.inner
        if self._compiled is None:
            return self._torch_forward(x.reshape(rows, self.inner).float()).view(*x.shape[:-1], self.columns)
        threads = threads_for(rows * self.inner * self.columns)
        bf16_input, bf16_output = self.accepts_bf16 and x.dtype == torch.bfloat16, self.accepts_bf16 and bf16_output
        x = self._prepare_input(x, x.dtype if bf16_input else torch.float32)
        y = torch.empty(
            *x.shape[:-1], self.columns, dtype=torch.bfloat16 if bf16_output else torch.float32, device="cpu"
        )
        if bf16_input or bf16_output:
            self._compiled.transformer_packed_linear_bf16(
                self.address, x.data_ptr(), bf16_input, rows, y.data_ptr(), bf16_output, threads
            )
        else:
            self._compiled.transformer_packed_linear(self.address, x.data_ptr(), rows, y.data_ptr(), threads)
        return y

    def top_k(
        self, x: Float[Tensor, "M K"], k: int, forbidden: Bool[Tensor, " N"] | None = None
    ) -> tuple[Float[Tensor, "M k"], Int[Tensor, "M k"]]:
        """Applies `best_tokens` to the outputs without storing all of them."""
        if self._compiled is None or k > MAX_TOP_K or self.activation != "none":
            return best_tokens(self(x), k, forbidden)
        x = self._prepare_input(x)
        log_p = torch.empty(len(x), k, dtype=torch.float32, device="cpu")
        tokens = torch.empty(len(x), k, dtype=torch.long, device="cpu")
        self._compiled.transformer_packed_linear_topk(
            self.address, x.data_ptr(), len(x), k, None if forbidden is None else forbidden.data_ptr(),
            log_p.data_ptr(), tokens.data_ptr(), threads_for(x.numel() * self.columns),
        )  # fmt: skip
        return log_p, tokens

    def lookup(self, ids: Int[Tensor, "*ids"], factor: float = 1.0) -> Float[Tensor, "*ids K"]:
        """Returns rows of the weight times a factor, in float32, for a matrix that is used as an embedding too.

        Raises:
            IndexError: An id is out of range.
        """
        if self._compiled is None:
            values = self.values[:, ids].movedim(0, -1) if self.precision == "int8" else self.values[ids]
            rows = values.float() if self.scales is None else values * self.scales[ids][..., None]
            return rows * factor
        ids = ids.long().contiguous()
        rows = torch.empty(*ids.shape, self.inner, dtype=torch.float32, device="cpu")
        threads = threads_for(COLUMN_COST * rows.numel())
        if self._compiled.transformer_embedding_lookup(
            self.address, ids.data_ptr(), ids.numel(), factor, rows.data_ptr(), threads
        ):
            raise IndexError(f"ids {int(ids.min())} to {int(ids.max())} are not all in 0 to {self.columns - 1}")
        return rows

    def _prepare_input(
        self, x: Float[Tensor, "*rows K"], dtype: torch.dtype = torch.float32
    ) -> Float[Tensor, "*rows K"]:
        """Converts an input to the dtype and layout that the kernel reads.

        Raises:
            ValueError: The input does not have the width of the weight.
        """
        if x.size(-1) != self.inner:
            raise ValueError(f"x.size(-1)={x.size(-1)} does not match the weight; pass {self.inner} features")
        return x.to(dtype).contiguous()

    def _torch_forward(self, x: Float[Tensor, "M K"]) -> Float[Tensor, "M N"]:
        bias = None if self.bias is None else self.bias[: self.columns]
        if self.scales is None:
            y = F.linear(x.to(self.values.dtype), self.values).float()
            y = y if bias is None else y + bias
        else:
            largest = x.abs().amax(dim=1, keepdim=True)
            quantized = (x * torch.where(largest > 0, 127 / largest, 0.0)).round().to(torch.int8)
            integer_product = torch.ops.aten._int_mm(quantized, self.values).float()
            y = integer_product * (self.scales[: self.columns] * (largest / 127))
            y = y if bias is None else y + bias
        return ACTIVATIONS[self.activation](y)


def _require_scales(weight: Weight) -> Tensor:
    if weight.scales is None:
        raise ConfigError("weights have different precisions and cannot be concatenated; convert them to the same one")
    return weight.scales


def _pad_to_panel(row: Tensor) -> Tensor:
    """Appends zeros up to a whole number of panels, which the kernel reads in full."""
    return F.pad(row, (0, -row.numel() % PANEL))


def _pack_column_blocks(values: Float[Tensor, "N K"] | Int[Tensor, "N K"], group: int, column_block: int) -> Tensor:
    """Packs a weight as (column blocks, k-groups, columns, inputs of a k-group), padded to whole panels with zeros."""
    padded = F.pad(values, (0, -values.size(1) % group, 0, -values.size(0) % PANEL))
    groups = padded.view(torch.int32).unflatten(0, (-1, column_block))  # a group of inputs is four bytes
    return copy_to_huge_pages(groups.transpose(1, 2)).view(values.dtype).unflatten(-1, (column_block, group))


def copy_to_huge_pages(numbers: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
    """Returns a contiguous int32 tensor, in huge pages if it is large enough."""
    if not _is_large(numbers):
        return numbers.contiguous()
    return _in_huge_pages(numbers.numel()).view(numbers.shape).copy_(numbers)


def _is_large(tensor: Tensor) -> bool:
    return tensor.nbytes >= HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE")


def _in_huge_pages(numbers: int) -> Int[Tensor, " n"]:
    """Allocates an int32 tensor in pages of 2 MiB, so that a product with one row reads at full memory bandwidth."""
    memory = mmap.mmap(-1, -(-4 * numbers // HUGE_PAGE) * HUGE_PAGE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # Linux was built without huge pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.int32, count=numbers)
