"""Recipes that come with the package, each with its expected time and scores in its first lines."""

from difflib import get_close_matches
from pathlib import Path

from transformer.errors import ConfigError

FOLDER = Path(__file__).parent


def recipe_names() -> list[str]:
    """Returns the names of the recipes, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def find_recipe(path: Path) -> Path:
    """Returns an existing path as it is, and for the name of a recipe that comes with the package its file.

    Raises:
        ConfigError: There is neither such a file nor such a recipe.
    """
    if path.exists():
        return path
    if path.parent in (Path(), Path("recipes")) and (name := path.name.removesuffix(".toml")) in recipe_names():
        return FOLDER / f"{name}.toml"
    similar = get_close_matches(path.name.removesuffix(".toml"), recipe_names(), n=1)
    hint = f"; did you mean {similar[0]}?" if similar else "; `transformer recipes` lists those that come with it"
    raise ConfigError(f"{path} does not exist, and no recipe has this name{hint}")


def summary(name: str) -> str:
    """Returns the comment at the beginning of a recipe as one paragraph."""
    lines = (FOLDER / f"{name}.toml").read_text(encoding="utf-8").splitlines()
    comment: list[str] = []
    for line in lines:
        if not line.startswith("# "):
            break
        comment.append(line.removeprefix("# "))
    return " ".join(comment)
