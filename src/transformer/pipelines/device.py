"""Choice of the device and the precision that a model computes in."""

from dataclasses import dataclass
from typing import Final

import torch
from torch import nn

from transformer.bundle import Bundle
from transformer.errors import BundleError, ConfigError
from transformer.inference.cpu import choose_precision, describe_precision, pack
from transformer.kernels import Precision, triton_module
from transformer.runtime.threads import check_gpu
from transformer.transformer import Transformer

DEVICES: Final = ("auto", "cpu", "cuda")
GPU_DTYPES: Final = {"float32": torch.float32, "bf16": torch.bfloat16}
"""Dtypes supported on GPUs, by the name of the precision."""


@dataclass(frozen=True)
class DevicePlan:
    """A device and the precision to compute in.

    Attributes:
        device: CPU, where models are packed, or GPU, where they keep the modules that they were trained with.
        precision: Precision of the weights. On a GPU, all computation uses it except sums, the statistics of norms,
            and the search.
    """

    device: torch.device
    precision: Precision

    @property
    def is_gpu(self) -> bool:
        """Whether the device is a GPU."""
        return self.device.type != "cpu"

    def prepare(self, bundle: Bundle) -> None:
        """Moves a bundle's model to the device and prepares it for inference.

        Raises:
            BundleError: The model is stored in int8, which GPUs do not support.
        """
        if not self.is_gpu:
            if bundle.precision == "float32":
                pack(bundle.model, self.precision)
            return
        if bundle.precision != "float32":
            raise BundleError(
                f"{bundle.folder} is stored in {bundle.precision}, which only runs on CPUs; load the float32 model "
                "that it was made from, or choose device='cpu'"
            )
        bundle.model.to(self.device, GPU_DTYPES[self.precision])
        if isinstance(bundle.model, Transformer) and triton_module() is not None:
            from transformer.inference.gpu import fuse  # loads triton

            fuse(bundle.model)

    def describe(self, workers: int) -> str:
        """Returns a description for users of the device, the precision and the number of worker processes."""
        if self.is_gpu:
            return f"{self.precision} on {torch.cuda.get_device_name(self.device)}"
        return describe_precision(self.precision, workers)


def choose_device_plan(device: str = "auto", precision: str = "auto", fastest: Precision = "int8") -> DevicePlan:
    """Chooses the device and the precision.

    The default is a GPU if there is one, in bf16 if the GPU supports it. Without a GPU, the default is the CPU in its
    fastest precision.

    Args:
        device: One of `DEVICES`.
        precision: One of `transformer.inference.cpu.PRECISION_CHOICES`.
        fastest: Precision that "auto" may choose on a CPU.

    Raises:
        ConfigError: The device or the precision is unknown, or not available here.
    """
    if device not in DEVICES:
        raise ConfigError(f"device={device!r} is unknown; choose one of {', '.join(DEVICES)}")
    if device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
        return DevicePlan(torch.device("cpu"), choose_precision(precision, fastest))
    if not torch.cuda.is_available():
        raise ConfigError("device='cuda', but torch sees no GPU; choose 'cpu', or install torch with CUDA")
    check_gpu()
    has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
    chosen = ("bf16" if has_bf16 else "float32") if precision == "auto" else choose_precision(precision)
    if chosen == "int8":
        raise ConfigError("precision='int8' only runs on CPUs; choose 'bf16' or 'float32' on a GPU, or device='cpu'")
    return DevicePlan(torch.device("cuda", torch.cuda.current_device()), chosen)


def device_of(model: nn.Module) -> torch.device:
    """Returns the device of a model. Packed models may have no parameters and are on the CPU."""
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
