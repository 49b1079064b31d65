"""Matrix products (GEMM) without packing in advance, for training, where weights change with every step."""

import ctypes
from dataclasses import dataclass
from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor

from transformer.kernels.library import compiled_library, library, threads_for


class MatrixArgs(ctypes.Structure):
    """Address and layout of a matrix, with the fields of the C++ struct `MatrixView` in kernels.h, in its order."""

    __slots__ = ()  # a misspelled field is an error
    _fields_ = (
        ("data", ctypes.c_void_p), ("stride", ctypes.c_long), ("is_bfloat16", ctypes.c_int),
        ("is_transposed", ctypes.c_int), ("is_padded", ctypes.c_int),
    )  # fmt: skip

    @classmethod
    def from_tensor(cls, x: Float[Tensor, "M N"], is_padded: bool = False) -> "MatrixArgs":
        """Describes a matrix whose rows or columns are contiguous; see `matmul` for `is_padded`.

        Raises:
            ValueError: Neither rows nor columns are contiguous.
        """
        is_transposed = x.size(1) > 1 and x.stride(1) != 1  # a single column may have any stride
        if is_transposed and x.size(0) > 1 and x.stride(0) != 1:
            raise ValueError(
                f"x.stride()={x.stride()} of shape {tuple(x.shape)} has neither contiguous rows nor contiguous "
                "columns; copy it first"
            )
        return cls(x.data_ptr(), x.stride(int(is_transposed)), x.dtype == torch.bfloat16, is_transposed, is_padded)


class EpilogueArgs(ctypes.Structure):
    """An `Epilogue`, with the fields of the C++ struct `Epilogue` in kernels.h, in its order."""

    __slots__ = ()  # a misspelled field is an error
    _fields_ = (
        ("bias", ctypes.c_void_p), ("factor_matrix", ctypes.c_void_p), ("factor_stride", ctypes.c_long),
        ("factor", ctypes.c_float), ("has_derivatives", ctypes.c_int), ("accumulate", ctypes.c_int),
        ("relu", ctypes.c_int), ("row_sums", ctypes.c_void_p),
    )  # fmt: skip


@dataclass(frozen=True)
class Epilogue:
    """Operations fused into a product (oneDNN's post-ops), in the order of the attributes up to `derivatives`.

    Attributes:
        bias: Bias added to each row, float32.
        accumulate: Whether the previous contents of the output, float32, are added.
        relu: Whether ReLU is applied.
        relu_output: Output of the ReLU whose gradient is computed, with the result's shape and the product's
            precision. The result is 0 where this is not positive.
        factor: Factor of the result if `relu_output` is given.
        derivatives: Matrix to multiply the result with, element by element; excludes `relu_output`.
        row_sums: Output for the sums of the rows of A, float32. With `accumulate`, they are added to its contents.
    """

    bias: Float[Tensor, " N"] | None = None
    accumulate: bool = False
    relu: bool = False
    relu_output: Float[Tensor, "M N"] | None = None
    factor: float = 1.0
    derivatives: Float[Tensor, "M N"] | None = None
    row_sums: Float[Tensor, " M"] | None = None

    def to_args(self, out: Float[Tensor, "M N"], precision: torch.dtype) -> EpilogueArgs:
        """Converts the epilogue of a product that is written to `out` to the arguments of the kernel.

        Raises:
            ValueError: The epilogue does not fit the output or the precision.
        """
        bias, row_sums = self.bias, self.row_sums
        factors = self.relu_output if self.derivatives is None else self.derivatives
        if self.relu_output is not None and self.derivatives is not None:
            raise ValueError("relu_output and derivatives are both set and cannot be combined; pass one of them")
        if bias is not None and (bias.shape, bias.dtype, bias.stride()) != (out.shape[1:], torch.float32, (1,)):
            raise ValueError(
                f"bias={tuple(bias.shape)} ({bias.dtype}, strides {bias.stride()}) cannot be added to "
                f"{tuple(out.shape)}; pass one contiguous float32 number per column"
            )
        if self.accumulate and out.dtype != torch.float32:
            raise ValueError(f"accumulate=True cannot be combined with out.dtype={out.dtype}; pass a float32 output")
        if factors is not None and (factors.shape, factors.dtype, factors.stride(1)) != (out.shape, precision, 1):
            raise ValueError(
                f"relu_output or derivatives={tuple(factors.shape)} ({factors.dtype}) cannot be applied to "
                f"{tuple(out.shape)} in {precision}; pass the same shape and dtype with contiguous rows"
            )
        if row_sums is not None and (row_sums.shape, row_sums.dtype, row_sums.stride()) != (
            out.shape[:1], torch.float32, (1,),
        ):  # fmt: skip
            raise ValueError(
                f"row_sums={tuple(row_sums.shape)} ({row_sums.dtype}) cannot hold the sums of {out.size(0)} rows; "
                "pass one contiguous float32 number per row"
            )
        bias_address, factors_address, sums_address = (
            None if tensor is None else tensor.data_ptr() for tensor in (bias, factors, row_sums)
        )
        return EpilogueArgs(
            bias_address, factors_address, 0 if factors is None else factors.stride(0), self.factor,
            self.derivatives is not None, self.accumulate, self.relu, sums_address,
        )  # fmt: skip


NO_EPILOGUE: Final = Epilogue()


def supports_tensors(*matrices: Tensor) -> bool:
    """Whether the kernels support these tensors: plain tensors or parameters on a CPU, in float32 or bfloat16."""
    return library() is not None and all(
        type(x) in (Tensor, torch.nn.Parameter)
        and x.device.type == "cpu"
        and x.dtype in (torch.float32, torch.bfloat16)
        for x in matrices
    )


def matmul(
    a: Float[Tensor, "M K"],
    b: Float[Tensor, "K N"],
    epilogue: Epilogue = NO_EPILOGUE,
    *,
    precision: torch.dtype,
    out: Float[Tensor, "M N"],
    is_padded: bool = False,
) -> Float[Tensor, "M N"]:
    """Computes A B with the compiled kernel, applies an epilogue, and writes the result to `out`.

    The inputs must pass `supports_tensors`. Products are summed in float32.

    Args:
        a: Left factor with contiguous rows or columns; float32, or bfloat16 if that is the precision.
        b: Right factor, under the same conditions.
        epilogue: Operations applied before the result is written.
        precision: Precision of the products, float32 or bfloat16. Inputs are rounded to it.
        out: Output with contiguous rows, float32 or bfloat16.
        is_padded: Whether each row of `a` is followed by a zero if its length is odd, so that it need not be copied.

    Raises:
        ValueError: The shapes, dtypes or layouts do not match.
    """
    compiled = compiled_library()
    (m, k), n = a.shape, b.size(1)
    is_bf16, out_is_bf16 = precision == torch.bfloat16, out.dtype == torch.bfloat16
    if (b.size(0), out.shape) != (k, (m, n)) or out.stride(1) != 1:
        raise ValueError(
            f"out={tuple(out.shape)} with strides {out.stride()} cannot hold {tuple(a.shape)} times {tuple(b.shape)}; "
            "pass matrices of matching shapes and contiguous rows"
        )
    is_supported = {precision, a.dtype, b.dtype, out.dtype} <= {torch.float32, torch.bfloat16}
    if not is_supported or (not is_bf16 and torch.bfloat16 in (a.dtype, b.dtype)):
        raise ValueError(
            f"precision={precision} cannot be used with {a.dtype} times {b.dtype} to {out.dtype}; pass float32 or "
            "bfloat16, and bfloat16 inputs with precision bfloat16 only"
        )
    compiled.transformer_matmul(
        ctypes.byref(MatrixArgs.from_tensor(a, is_padded)), ctypes.byref(MatrixArgs.from_tensor(b)),
        ctypes.byref(epilogue.to_args(out, precision)), out.data_ptr(), out_is_bf16,
        out.stride(0), m, n, k, is_bf16, threads_for(m * n * k),
    )  # fmt: skip
    return out
