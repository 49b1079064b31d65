"""Completion of names when Tab is pressed in a shell, which completes paths where no name begins so."""

from typing import Final

GROUP: Final = "transformer.models"
"""Group of the entry points of models, as in `transformer.bundle.installed`, which takes a second to load."""


def complete_model(incomplete: str) -> list[str]:
    """Returns the names of the installed models that begin with the given text."""
    from importlib.metadata import entry_points

    return sorted(name for name in entry_points(group=GROUP).names if name.startswith(incomplete))


def complete_recipe(incomplete: str) -> list[str]:
    """Returns the names of the recipes that begin with the given text."""
    from transformer.recipes import recipe_names

    return [name for name in recipe_names() if name.startswith(incomplete)]
