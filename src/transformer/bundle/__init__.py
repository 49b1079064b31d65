"""A trained model as one folder that needs nothing else."""

from transformer.bundle.bundle import Bundle, load_bundle, save_bundle
from transformer.bundle.folder import FORMAT

__all__ = ["FORMAT", "Bundle", "load_bundle", "save_bundle"]
