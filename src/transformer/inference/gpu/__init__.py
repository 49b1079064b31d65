"""Models converted for inference on a GPU: decoder steps with few, fused kernels."""

from transformer.inference.gpu.decoder import fuse

__all__ = ["fuse"]
