"""The pages of --help."""

import re
import subprocess
import sys

import pytest

from commands import run
from transformer.cli.app import make_app
from transformer.cli.help import FIRST, command_help

LOADED = """
import atexit, sys
from transformer.cli import main
atexit.register(lambda: print({"torch", "numpy", "pydantic", "rich"} & set(sys.modules)))
sys.argv = ["transformer", *sys.argv[1:], "--help"]
main()
"""


@pytest.mark.parametrize("command", FIRST)
def test_what_most_people_need_stands_first(command: str) -> None:
    """Catches a main list that grows until nobody finds anything, or names an option that no longer exists."""
    page = command_help(make_app([command]), command)
    names = re.findall(r"^  (?:-h, )?--([\w-]+)", page.partition("\nOptions:\n")[2].partition("\n\n")[0], re.MULTILINE)
    assert names[-1] == "help"
    assert len(names) == len(FIRST[command]) + 1 <= 11
    assert max(map(len, page.splitlines())) <= 80


def test_program_without_arguments_prints_its_help() -> None:
    """Catches an error in front of whoever tries the program for the first time."""
    alone = run()
    assert (alone.returncode, alone.stdout, alone.stderr) == (0, run("--help").stdout, "")


@pytest.mark.parametrize("command", [["translate"], ["generate", "--beam"]])
def test_help_comes_fast(command: list[str]) -> None:
    """Catches an import that doubles the time of a help page; what the options mean is known without it."""
    page = subprocess.run([sys.executable, "-c", LOADED, *command], capture_output=True, text=True, check=True).stdout
    assert page.startswith("Usage: transformer")
    assert page.endswith("set()\n")
