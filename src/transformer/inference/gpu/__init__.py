"""Decoders whose steps take few kernels on a GPU, rewritten from the model's blocks."""

from transformer.inference.gpu.decoder import fuse

__all__ = ["fuse"]
