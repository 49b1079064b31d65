"""Products of matrices as they lie in memory, which training needs: its weights change with every step."""

import ctypes
from dataclasses import dataclass
from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor

from transformer.kernels.library import library, threads_for


class Layout(ctypes.Structure):
    """What the kernel knows of a matrix; the same fields in the same order as `Layout` in kernels.h."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("stride", ctypes.c_long), ("is_bfloat16", ctypes.c_int),
        ("is_transposed", ctypes.c_int), ("is_padded", ctypes.c_int),
    )  # fmt: skip

    @classmethod
    def of(cls, x: Float[Tensor, "M N"], is_padded: bool = False) -> "Layout":
        """Elements of a row, or of a column, lie side by side; `is_padded` as in `matmul`."""
        is_transposed = x.size(1) > 1 and x.stride(1) != 1  # a single column may have any stride
        if is_transposed and x.size(0) > 1 and x.stride(0) != 1:
            raise ValueError(f"neither rows nor columns of {tuple(x.shape)} lie side by side, but {x.stride()} apart")
        return cls(x.data_ptr(), x.stride(int(is_transposed)), x.dtype == torch.bfloat16, is_transposed, is_padded)


class FinishFields(ctypes.Structure):
    """`Finish` for the kernel; the same fields in the same order as there in kernels.h."""

    _fields_ = (
        ("bias", ctypes.c_void_p), ("gate", ctypes.c_void_p), ("gate_stride", ctypes.c_long),
        ("factor", ctypes.c_float), ("is_slope", ctypes.c_int), ("is_added", ctypes.c_int),
        ("is_rectified", ctypes.c_int), ("row_sums", ctypes.c_void_p),
    )  # fmt: skip


@dataclass(frozen=True)
class Finish:
    """What becomes of the sums of a product, in this order, before they are written.

    Attributes:
        bias: is added to each row, float32.
        is_added: so is what is there, float32.
        is_rectified: max(0, y) is taken.
        gate: of the result's shape and the product's precision: where it is not above 0, the result is 0.
        factor: of a result with a gate.
        slopes: in place of a gate, what the result is multiplied by.
        row_sums: where the sums of A's rows go, float32; with `is_added`, they are added to what is there.
    """

    bias: Float[Tensor, " N"] | None = None
    is_added: bool = False
    is_rectified: bool = False
    gate: Float[Tensor, "M N"] | None = None
    factor: float = 1.0
    slopes: Float[Tensor, "M N"] | None = None
    row_sums: Float[Tensor, " M"] | None = None

    def of(self, out: Float[Tensor, "M N"], precision: torch.dtype) -> FinishFields:
        """For the kernel, which is to write to `out`."""
        bias, gate, row_sums = self.bias, self.gate if self.slopes is None else self.slopes, self.row_sums
        if self.gate is not None and self.slopes is not None:
            raise ValueError("a gate and slopes cannot go together")
        if bias is not None and (bias.shape, bias.dtype, bias.stride()) != (out.shape[1:], torch.float32, (1,)):
            raise ValueError(f"a bias of {bias.dtype}, {tuple(bias.shape)}, {bias.stride()} apart, cannot go with it")
        if self.is_added and out.dtype != torch.float32:
            raise ValueError(f"sums cannot go to what is there as {out.dtype}")
        if gate is not None and (gate.shape, gate.dtype, gate.stride(1)) != (out.shape, precision, 1):
            raise ValueError(f"a gate of {gate.dtype}, {tuple(gate.shape)}, cannot go with {tuple(out.shape)}")
        if row_sums is not None and (row_sums.shape, row_sums.dtype, row_sums.stride()) != (
            out.shape[:1], torch.float32, (1,),
        ):  # fmt: skip
            raise ValueError(f"sums of rows cannot go to {row_sums.dtype}, {tuple(row_sums.shape)}")
        of_bias, of_gate, of_sums = (None if each is None else each.data_ptr() for each in (bias, gate, row_sums))
        stride = 0 if gate is None else gate.stride(0)
        is_slope = self.slopes is not None
        return FinishFields(of_bias, of_gate, stride, self.factor, is_slope, self.is_added, self.is_rectified, of_sums)


PLAIN: Final = Finish()


def multiplies(*matrices: Tensor) -> bool:
    """Whether the kernel takes these: real tensors of a CPU, in float32 or bfloat16."""
    return library() is not None and all(
        type(x) in (Tensor, torch.nn.Parameter)
        and x.device.type == "cpu"
        and x.dtype in (torch.float32, torch.bfloat16)
        for x in matrices
    )


def matmul(
    a: Float[Tensor, "M K"],
    b: Float[Tensor, "K N"],
    finish: Finish = PLAIN,
    *,
    precision: torch.dtype,
    out: Float[Tensor, "M N"],
    is_padded: bool = False,
) -> Float[Tensor, "M N"]:
    """A B, finished, by the compiled kernel, for what `multiplies` says it takes; sums are float32.

    Args:
        a: in float32, or bfloat16 where the precision is.
        b: likewise; both with rows or columns that lie side by side.
        finish: what becomes of the sums.
        precision: float32, or bfloat16, to which the inputs are rounded.
        out: where the result goes; float32 or bfloat16, its rows side by side.
        is_padded: a zero follows each row of `a` if its length is odd, so that it is read where it lies.
    """
    compiled = library()
    assert compiled is not None
    (m, k), n = a.shape, b.size(1)
    is_bf16, out_is_bf16 = precision == torch.bfloat16, out.dtype == torch.bfloat16
    if (b.size(0), out.shape) != (k, (m, n)) or out.stride(1) != 1:
        raise ValueError(f"{tuple(a.shape)} times {tuple(b.shape)} do not give {tuple(out.shape)}")
    is_known = {precision, a.dtype, b.dtype, out.dtype} <= {torch.float32, torch.bfloat16}
    if not is_known or (not is_bf16 and torch.bfloat16 in (a.dtype, b.dtype)):
        raise ValueError(f"{a.dtype} times {b.dtype} in {precision} cannot go to {out.dtype}")
    compiled.transformer_matmul(
        ctypes.byref(Layout.of(a, is_padded)), ctypes.byref(Layout.of(b)), ctypes.byref(finish.of(out, precision)),
        out.data_ptr(), out_is_bf16, out.stride(0), m, n, k, is_bf16, threads_for(m * n * k),
    )  # fmt: skip
    return out
