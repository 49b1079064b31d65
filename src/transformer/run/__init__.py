"""A whole run: from a recipe to a folder that holds a translator."""

from transformer.run.assembly import prepare
from transformer.run.execute import RunResult, train

__all__ = ["RunResult", "prepare", "train"]
