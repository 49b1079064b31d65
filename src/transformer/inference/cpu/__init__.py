"""Models converted for inference on a CPU: the same blocks, with weights packed in float32, bfloat16 or int8."""

from transformer.inference.cpu.convert import pack, packed_bytes
from transformer.inference.cpu.precision import PRECISION_CHOICES, choose_precision, describe_precision

__all__ = ["PRECISION_CHOICES", "choose_precision", "describe_precision", "pack", "packed_bytes"]
