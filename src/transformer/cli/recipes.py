"""`transformer recipes`: lists the recipes that come with the program, and the keys of a recipe."""

import json
from typing import Annotated

import typer

from transformer.cli.completion import complete_recipe
from transformer.errors import ConfigError
from transformer.recipes import recipe_names, recipe_path, summary

EPILOG = "Example: transformer recipes multi30k-en-de > my.toml, then change it and run transformer train my.toml"


def recipes(
    name: Annotated[
        str | None,
        typer.Argument(help="recipe to print; all are listed if not given", autocompletion=complete_recipe),
    ] = None,
    keys: Annotated[bool, typer.Option("--keys", help="list all keys of a recipe with their defaults")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print the list as JSON")] = False,
) -> None:
    """List the recipes that come with the program, print one of them, or list all keys of a recipe.

    The name of a recipe stands wherever its path may: `transformer train multi30k-en-de`.
    """
    if keys:
        if name is not None:
            raise ConfigError(f"--keys lists the keys of all recipes; leave out {name}")
        from transformer.cli.train import recipe_keys

        typer.echo(recipe_keys())
    elif name is not None:
        typer.echo(recipe_path(name).read_text(encoding="utf-8"), nl=False)
    elif as_json:
        typer.echo(json.dumps({name: summary(name) for name in recipe_names()}, ensure_ascii=False, indent=2))
    else:
        for known in recipe_names():
            typer.echo(f"{known}\n    {_wrapped(summary(known))}")
        typer.echo("next: transformer train NAME, or transformer recipes NAME to print it")


def _wrapped(text: str) -> str:
    import textwrap

    return "\n    ".join(textwrap.wrap(text, 76))
