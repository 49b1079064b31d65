"""Device, precision and oneDNN cache size of a run."""

import os
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Final

import torch

from transformer.errors import ConfigError
from transformer.kernels import instruction_set
from transformer.runtime.threads import check_gpu
from transformer.training.cpu_ops.dispatch import CpuKernelMode
from transformer.training.fake_quantization import FakeQuantizationMode

PRECISIONS: Final = {"float32": torch.float32, "bf16": torch.bfloat16}
ONEDNN_CACHE_CAPACITY: Final = 4096
"""Compiled kernels that oneDNN keeps."""


@dataclass(frozen=True)
class Backend:
    """The device and the precision that a run computes with.

    Attributes:
        device: Device of the model.
        precision: "float32" or "bf16". The latter computes matrix products and attention in bfloat16 (8 bits of
            mantissa) and keeps weights, norms, softmax, loss and gradient sums in float32.
        is_compiled: Whether layers go through `torch.compile`, which cannot use the compiled CPU kernels.
        quantized_from: Number of updates before products are rounded as in int8 inference; None if they never are.
    """

    device: torch.device
    precision: str
    is_compiled: bool = False
    quantized_from: int | None = None

    @property
    def keeps_cores(self) -> bool:
        """Whether the threads of an update may be bound to cores.

        For a GPU and for `torch.compile`, the first update starts further threads and processes, which would keep the
        core of the main thread from then on.
        """
        return self.device.type == "cpu" and not self.is_compiled

    @contextmanager
    def compute_context(self, step: int | None = None) -> Generator[None]:
        """Enters the context of a forward pass: autocast to the precision and, on a CPU, the compiled kernels.

        Args:
            step: Number of updates before this one; None outside of training.
        """
        is_quantized = step is not None and self.quantized_from is not None and step >= self.quantized_from
        dtype = PRECISIONS[self.precision]
        products = nullcontext() if self.is_compiled or self.device.type != "cpu" else CpuKernelMode()
        with torch.autocast(self.device.type, dtype, enabled=dtype != torch.float32), products:
            if is_quantized:
                with FakeQuantizationMode():  # within the other contexts, whose kernels it calls
                    yield
                return
            yield

    def __str__(self) -> str:
        """Returns the description that is printed before the first step."""
        text = "bf16 products, float32 weights and sums" if self.precision == "bf16" else "float32"
        text = f"{text}, layers compiled" if self.is_compiled else text
        if self.device.type == "cuda":
            return f"{text} on {torch.cuda.get_device_name(self.device)}"
        threads = torch.get_num_threads()
        return f"{text} on {threads} thread{'' if threads == 1 else 's'}"


CPU_FLOAT32: Final = Backend(torch.device("cpu"), "float32")


def choose_backend(device: str = "auto", precision: str | None = None) -> Backend:
    """Selects the backend for the settings: by default a GPU if one is available, and bf16 where it is fast.

    Raises:
        ConfigError: The device is not available, or the precision would need loss scaling.
    """
    if precision == "float16":
        raise ConfigError(
            "training.precision='float16' would need loss scaling, which is not supported; choose 'bf16' or 'float32'"
        )
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("training.device='cuda', but torch sees no GPU; choose 'cpu', or install torch with CUDA")
    use_gpu = torch.cuda.is_available() if device == "auto" else device == "cuda"
    if use_gpu:
        check_gpu()
    selected = torch.device("cuda", torch.cuda.current_device()) if use_gpu else torch.device("cpu")
    fast_bf16 = torch.cuda.is_bf16_supported(including_emulation=False) if use_gpu else _cpu_has_fast_bf16()
    return Backend(selected, precision or ("bf16" if fast_bf16 else "float32"))


def _cpu_has_fast_bf16() -> bool:
    """Whether the CPU has bfloat16 matrix instructions and the kernels use them."""
    if instruction_set() in ("avx2", "avx_vnni"):
        return False
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16"))


def enlarge_onednn_cache() -> None:
    """Enlarges the cache of kernels that oneDNN compiles; must be called before its first matrix product.

    oneDNN compiles a kernel for each shape of each product and keeps 1,024 of them by default. A small model needs
    2,000 for 70 steps on sentences of mixed lengths, which would be recompiled in every epoch. A value set by the user
    is not changed.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(ONEDNN_CACHE_CAPACITY))
