"""Where a model computes, and in which precision."""

from dataclasses import dataclass
from typing import Final

import torch

from transformer.bundle import Bundle
from transformer.errors import BundleError, ConfigError
from transformer.inference.cpu import choose_precision, describe_precision, pack
from transformer.kernels import Precision, for_gpus

DEVICES: Final = ("auto", "cpu", "cuda")
TYPES: Final = {"float32": torch.float32, "bf16": torch.bfloat16}
"""Of a model on a GPU."""


@dataclass(frozen=True)
class DevicePlan:
    """A device and a precision that it computes in.

    Attributes:
        device: a CPU, where models are packed, or a GPU, where they are as they were trained.
        precision: of the weights; on a GPU of all that is computed but sums, norms' statistics and the search.
    """

    device: torch.device
    precision: Precision

    @property
    def is_gpu(self) -> bool:
        """Whether it is one."""
        return self.device.type != "cpu"

    def put(self, bundle: Bundle) -> None:
        """Moves a bundle's model here, for inference.

        Raises:
            BundleError: it is stored in int8, which GPUs are not for.
        """
        if not self.is_gpu:
            if bundle.precision == "float32":
                pack(bundle.model, self.precision)
            return
        if bundle.precision != "float32":
            raise BundleError(
                f"{bundle.folder} is stored in {bundle.precision}, which is for CPUs; give the model that it was "
                "made of, or choose device='cpu'"
            )
        bundle.model.to(self.device, TYPES[self.precision])
        if for_gpus() is not None:
            from transformer.inference.gpu import fuse  # loads triton

            fuse(bundle.model)

    def described(self, workers: int) -> str:
        """What a command says of how it computes."""
        if self.is_gpu:
            return f"{self.precision} on {torch.cuda.get_device_name(self.device)}"
        return describe_precision(self.precision, workers)


def choose_place(device: str = "auto", precision: str = "auto", fastest: Precision = "int8") -> DevicePlan:
    """Where to compute: by default on a GPU where there is one, in bf16 if it multiplies that; else the fastest way.

    Args:
        device: one of `DEVICES`.
        precision: one of `transformer.inference.cpu.PRECISION_CHOICES`.
        fastest: precision that `auto` may choose on a CPU.

    Raises:
        ConfigError: there is no such device, here or at all; or no such precision, or not there.
    """
    if device not in DEVICES:
        raise ConfigError(f"device={device!r} is unknown; choose one of {', '.join(DEVICES)}")
    if device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
        return DevicePlan(torch.device("cpu"), choose_precision(precision, fastest))
    if not torch.cuda.is_available():
        raise ConfigError("device='cuda', but torch sees no GPU; choose 'cpu', or install torch with CUDA")
    has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
    chosen = ("bf16" if has_bf16 else "float32") if precision == "auto" else choose_precision(precision)
    if chosen == "int8":
        raise ConfigError("precision='int8' is for CPUs; on a GPU choose 'bf16' or 'float32', or device='cpu'")
    return DevicePlan(torch.device("cuda", torch.cuda.current_device()), chosen)
