"""Command-line options made from the fields of a dataclass."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import typer
from annotated_types import Ge, Le
from typer.testing import CliRunner

from transformer.cli.fields import collects, takes
from transformer.options.fields import Doc, facts_of


@dataclass(frozen=True)
class Settings:
    """Settings of every type that has options."""

    port: Annotated[int, Ge(0), Le(9), Doc("port to listen on")] = 5
    size: Annotated[int, Ge(1), Doc("size; default: one per core")] | None = None
    mode: Annotated[Literal["a", "b"], Doc("mode")] = "a"
    fast: Annotated[bool, Doc("go fast")] = False
    page: Annotated[bool, Doc("show the page")] = True
    paths: Annotated[tuple[Path, ...], Doc("path")] = ()
    hidden: int = 1


@pytest.fixture
def run() -> Any:
    """Runs a command with the options of the settings; returns its output and the settings that it got."""
    options_received: list[dict[str, Any]] = []

    @collects(
        Settings, {"Main": ("port", "size", "mode"), "More": ("fast", "page", "paths")}, flags={"paths": "--path"}
    )
    def settings_of(**options: Any) -> dict[str, Any]:
        return options

    @takes("options", settings_of)
    def command(name: str = "", *, options: dict[str, Any]) -> None:
        options_received.append(options)

    app = typer.Typer()
    app.command()(command)

    def run(*arguments: str) -> tuple[str, dict[str, Any] | None]:
        options_received.clear()
        result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200", "TERMINAL_WIDTH": "200"})
        return result.output, options_received[0] if options_received else None

    return run


def test_options_that_are_given_arrive_and_no_others(run: Any) -> None:
    """Catches a default that overrides a settings file, and a 0 that is taken for an option that was left out."""
    assert run()[1] == {}
    assert run("--port", "0", "--fast", "--no-page", "--path", "x", "--path", "y")[1] == {
        "port": 0, "fast": True, "page": False, "paths": [Path("x"), Path("y")],
    }  # fmt: skip


@pytest.mark.parametrize("arguments", [("--port", "10"), ("--size", "0"), ("--mode", "c"), ("--hidden", "2")])
def test_bounds_and_choices_are_those_of_the_field(run: Any, arguments: tuple[str, str]) -> None:
    """Catches a bound that only one of several places knows."""
    output, options_received = run(*arguments)
    assert options_received is None
    assert arguments[0] in output


def test_help_tells_descriptions_and_defaults(run: Any) -> None:
    """Catches an option without help, or with a default that it does not have."""
    output, _ = run("--help")
    for text in (
        "port to listen on (default: 5)",
        "size; default: one per core",
        "mode (default: a)",
        "may be repeated",
    ):
        assert text in output
    assert "go fast (default" not in output
    assert "[default" not in output


def test_facts_of_optional_fields() -> None:
    """Catches metadata that is lost inside `X | None`."""
    size = facts_of(Settings)["size"]
    assert (size.kind, size.default, size.bounds) == (int, None, {"min": 1, "max": None})
