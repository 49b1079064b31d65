"""What a run computes with: device, precision, and how many compiled products are kept."""

import os
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Final

import torch

from transformer.errors import ConfigError
from transformer.kernels import kind
from transformer.training.cpu_ops.dispatch import CompiledProducts

PRECISIONS: Final = {"float32": torch.float32, "bf16": torch.bfloat16}
KEPT_KERNELS: Final = 4096


@dataclass(frozen=True)
class Backend:
    """Where a run computes, and in which precision.

    Attributes:
        device: of the model.
        precision: "float32", or "bf16": products and attention in bfloat16 (8 bits of mantissa), while weights, norms,
            softmax, loss and sums of gradients stay float32.
        is_compiled: layers go through `torch.compile`, which knows nothing of our kernels.
    """

    device: torch.device
    precision: str
    is_compiled: bool = False

    @contextmanager
    def compute_context(self) -> Generator[None]:
        """The context that a forward pass runs in: its precision, and on a CPU the compiled products."""
        dtype = PRECISIONS[self.precision]
        products = nullcontext() if self.is_compiled or self.device.type != "cpu" else CompiledProducts()
        with torch.autocast(self.device.type, dtype, enabled=dtype != torch.float32), products:
            yield

    def __str__(self) -> str:
        """What is said before the first step."""
        kind = "bf16 products, float32 weights and sums" if self.precision == "bf16" else "float32"
        kind = f"{kind}, layers compiled" if self.is_compiled else kind
        if self.device.type == "cuda":
            return f"{kind} on {torch.cuda.get_device_name(self.device)}"
        return f"{kind} on {torch.get_num_threads()} threads"


CPU_FLOAT32: Final = Backend(torch.device("cpu"), "float32")


def choose_backend(device: str = "auto", precision: str | None = None) -> Backend:
    """The hardware that settings ask for; by default a GPU where there is one, and bf16 where it is fast.

    Raises:
        ConfigError: there is no such device here, or no loss scaling for the precision.
    """
    if precision == "float16":
        raise ConfigError(
            "training.precision='float16' would need loss scaling, which is not offered; choose 'bf16' or 'float32'"
        )
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("training.device='cuda', but torch sees no GPU; choose 'cpu', or install torch with CUDA")
    use_gpu = torch.cuda.is_available() if device == "auto" else device == "cuda"
    chosen = torch.device("cuda", torch.cuda.current_device()) if use_gpu else torch.device("cpu")
    fast_bf16 = torch.cuda.is_bf16_supported(including_emulation=False) if use_gpu else _cpu_multiplies_bf16()
    return Backend(chosen, precision or ("bf16" if fast_bf16 else "float32"))


def _cpu_multiplies_bf16() -> bool:
    """Whether the processor has instructions for products of bfloat16 numbers, and what computes takes them."""
    if kind() == "avx2":
        return False
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16"))


def enlarge_onednn_cache() -> None:
    """Tells oneDNN, before its first product, to keep the kernels that it compiles for all batch shapes of an epoch.

    It compiles one for each shape of each product and keeps 1,024, where 70 steps of a small model on sentences of
    mixed lengths need 2,000: they would be compiled anew in every epoch. A value set by the user stays.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(KEPT_KERNELS))
