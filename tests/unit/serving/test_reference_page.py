"""Compares the tables of `docs/reference/server.md` with the code."""

import re
import tomllib
from typing import Any

import pytest
from pydantic import BaseModel

from samples import ROOT
from transformer.serving.errors import STATUS
from transformer.serving.routes import all_operations
from transformer.serving.settings import Limits, ServerSettings

PAGE = (ROOT / "docs" / "reference" / "server.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs" / "how-to" / "serve.md").read_text(encoding="utf-8")
IN_WORDS = {"workers", "keys", "glossaries"}
"""Settings whose default is described, because TOML has no value for it."""


def rows(heading: str) -> list[list[str]]:
    """Returns the cells of the first table under a heading."""
    section = re.split(r"^## ", PAGE.partition(f"\n## {heading}\n")[2], flags=re.MULTILINE)[0]
    table = re.search(r"^\|---.*\n((?:\|.*\n)+)", section, re.MULTILINE)
    assert table is not None
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[1].splitlines()]


def test_all_routes_are_listed() -> None:
    """Catches a route that the reference lacks, or one that it lists and the server does not have."""
    operations = all_operations(ServerSettings(models={"en-de": "en-de"}))
    listed = {(row[0], row[1].strip("`"), row[2]) for row in rows("Routes")}
    assert listed == {(operation.method, operation.path, operation.interface) for operation in operations}


@pytest.mark.parametrize(("heading", "section"), [("Settings", ServerSettings), ("Limits", Limits)])
def test_settings_are_listed_with_their_defaults(heading: str, section: type[BaseModel]) -> None:
    """Catches a setting that the reference lacks, lists twice or describes with another default."""
    listed = [(row[0].strip("`"), row[1]) for row in rows(heading)]
    assert [name for name, _ in listed] == list(section.model_fields)
    for name, shown in listed:
        default = section.model_fields[name].default
        if name in ("models", "limits"):
            assert shown == ""
        elif section is ServerSettings and name in IN_WORDS:
            assert default is None
            assert not shown.startswith("`")
        else:
            assert tomllib.loads(f"value = {shown.strip('`')}")["value"] == _as_toml(default), name


def _as_toml(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def test_statuses_are_listed() -> None:
    """Catches an error code without a description, or with another status."""
    assert [(row[1].strip("`"), int(row[0])) for row in rows("Statuses and errors")] == list(STATUS.items())


def test_configurations_of_the_guide_are_valid() -> None:
    """Catches a configuration file in the guide with a key or value that the server refuses."""
    blocks = re.findall(r"^```toml\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        ServerSettings.model_validate({"models": {"en-de": "en-de"}, **tomllib.loads(block)})
