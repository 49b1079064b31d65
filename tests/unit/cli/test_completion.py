"""Completion of names in shells."""

from typing import Any

import pytest
import typer.main

from transformer.bundle.installed import installed_models
from transformer.cli.app import COMMANDS, make_app
from transformer.recipes import recipe_names

TAKE_NO_NAME = {"average", "import"}
"""Commands whose argument `model` is a folder that is not installed."""


def completions(command: str, parameter: str, beginning: str) -> list[str]:
    group: Any = typer.main.get_command(make_app([command]))
    parameters = {known.name: known for known in group.commands[command].params}
    items = parameters[parameter].shell_complete(typer.Context(group.commands[command]), beginning)
    return [item.value for item in items]


def commands_with_models() -> list[tuple[str, str]]:
    group: Any = typer.main.get_command(make_app())
    return [
        (name, parameter.name)
        for name in COMMANDS
        for parameter in group.commands[name].params
        if parameter.name in ("model", "models", "start") and name not in TAKE_NO_NAME
    ]


@pytest.mark.parametrize(("command", "parameter"), commands_with_models())
def test_names_of_installed_models_are_completed(command: str, parameter: str) -> None:
    """Catches a command in whose place of a model nothing is completed, and names of another group."""
    assert completions(command, parameter, "") == [*installed_models()]
    assert completions(command, parameter, "en-") == [name for name in installed_models() if name.startswith("en-")]


def test_names_of_recipes_are_completed() -> None:
    """Catches a recipe that must be typed from memory."""
    for command, parameter in (("train", "arguments"), ("prepare", "arguments"), ("recipes", "name")):
        assert completions(command, parameter, "multi30k-en") == [
            name for name in recipe_names() if name.startswith("multi30k-en")
        ]
