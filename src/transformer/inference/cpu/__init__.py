"""Models rewritten for inference on a CPU: the same blocks, their weights packed in float32, bfloat16 or int8."""

from transformer.inference.cpu.convert import pack, packed_bytes
from transformer.inference.cpu.precision import CHOICES, choose_precision, described

__all__ = ["CHOICES", "choose_precision", "described", "pack", "packed_bytes"]
