"""The families of models, one folder each; the registry discovers them."""

from transformer.models.registry import Family, family, family_names

__all__ = ["Family", "family", "family_names"]
