"""Recipes that come with the package, each with its expected time and scores in its first lines."""

from difflib import get_close_matches
from pathlib import Path

from transformer.errors import ConfigError

FOLDER = Path(__file__).parent


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


def summary(name: str) -> str:
    """Returns the comment at the beginning of a recipe as one paragraph."""
    lines = (FOLDER / f"{name}.toml").read_text(encoding="utf-8").splitlines()
    comment: list[str] = []
    for line in lines:
        if not line.startswith("# "):
            break
        comment.append(line.removeprefix("# "))
    return " ".join(comment)
