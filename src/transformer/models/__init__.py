"""The families of models, one folder each, found by looking."""

from transformer.models.registry import Family, family, family_names

__all__ = ["Family", "family", "family_names"]
