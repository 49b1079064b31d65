"""Compares the tables of `docs/reference/server.md` with the code."""

import re
import tomllib

from pydantic import TypeAdapter

from samples import ROOT
from transformer.serving.errors import STATUS
from transformer.serving.routes import all_operations
from transformer.serving.settings import ServerSettings

PAGE = (ROOT / "docs" / "reference" / "server.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs" / "how-to" / "serve.md").read_text(encoding="utf-8")


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
    assert listed == {(operation.method, operation.shown_path, operation.interface) for operation in operations}


def test_statuses_are_listed() -> None:
    """Catches an error code without a description, or with another status."""
    assert [(row[1].strip("`"), int(row[0])) for row in rows("Statuses and errors")] == list(STATUS.items())


def test_configurations_of_the_guide_are_valid() -> None:
    """Catches a configuration file in the guide with a key or value that the server refuses."""
    blocks = re.findall(r"^```toml\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        TypeAdapter(ServerSettings).validate_python({"models": {"en-de": "en-de"}, **tomllib.loads(block)})
