"""Recipes that come with the package, each with its expected time and scores in its first lines."""

import os
import re
from collections.abc import Container
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from transformer.errors import ConfigError

FOLDER = Path(__file__).parent
ORIGINS: Final = {
    "multi30k": "github.com/multi30k/dataset",
    "tatoeba-en-de": "manythings.org/anki",
    "wmt": "statmt.org/wmt14/translation-task.html",
    "WMT14": "statmt.org/wmt14/translation-task.html",
    "WMT14_EN_FR": "statmt.org/wmt14/translation-task.html",
    "PTB": "catalog.ldc.upenn.edu/LDC99T42 (under a license of its own)",
    "PARSING": "`transformer demo --parsing --folder parsing-demo`",
    "text": "github.com/karpathy/char-rnn",
    "sst2": "nlp.stanford.edu/sentiment",
    "fashion-mnist": "github.com/zalandoresearch/fashion-mnist",
}
"""Where a corpus comes from, by its folder, or by the environment variable that names it."""
CORPUS_FILE: Final = re.compile(r"\$\{(\w+):-([^}]*)\}/([^\"]+)")
"""A file in a recipe: the environment variable that names its folder, the default, and the rest of the path."""


def recipe_names() -> list[str]:
    """Returns the names of the recipes, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def find_recipe(path: Path) -> Path:
    """Returns the file of a recipe that comes with the package by its name, and any other path as it is.

    Raises:
        ConfigError: A name is neither that of a file nor that of a recipe.
    """
    if path.exists() or path.parent not in (Path(), Path("recipes")):
        return path
    return recipe_path(path.name.removesuffix(".toml"))


def recipe_path(name: str) -> Path:
    """Returns the file of a recipe that comes with the package.

    Raises:
        ConfigError: No recipe has this name.
    """
    if name in recipe_names():
        return FOLDER / f"{name}.toml"
    similar = get_close_matches(name, recipe_names(), n=1)
    hint = f"did you mean {similar[0]}?" if similar else "`transformer recipes` lists those that come with the program"
    raise ConfigError(f"neither a file nor a recipe is called {name}; {hint}")


def missing_corpus(recipe: Path, files: Container[str]) -> str | None:
    """Says how to get what is missing of the corpora of a recipe that comes with the package.

    Args:
        recipe: File of the recipe.
        files: Files that the run reads, since options may have replaced those of the recipe.
    """
    text = recipe.read_text(encoding="utf-8") if recipe.parent == FOLDER else ""
    for variable, default, name in CORPUS_FILE.findall(text):
        path = f"{os.environ.get(variable, default)}/{name}"
        if path in files and not Path(path).exists():
            origin = ORIGINS[variable if variable in ORIGINS else name.partition("/")[0]]
            return (
                f"{path} does not exist; get the corpus from {origin}, and set {variable} to the folder that has "
                f"{name}; `transformer docs corpora` lists the files"
            )
    return None


def summary(name: str) -> str:
    """Returns the comment at the beginning of a recipe as one paragraph."""
    lines = (FOLDER / f"{name}.toml").read_text(encoding="utf-8").splitlines()
    comment: list[str] = []
    for line in lines:
        if not line.startswith("# "):
            break
        comment.append(line.removeprefix("# "))
    return " ".join(comment)
