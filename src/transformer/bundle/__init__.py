"""A trained model as one folder that needs nothing else."""

from transformer.bundle.bundle import FORMAT, Bundle, load_bundle, save_bundle, save_quantized

__all__ = ["FORMAT", "Bundle", "load_bundle", "save_bundle", "save_quantized"]
