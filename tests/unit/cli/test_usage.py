"""Arguments of the command line: old spellings, and messages about mistakes."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main

from commands import run
from transformer.cli.app import COMMANDS, make_app
from transformer.cli.usage import OLD_SPELLINGS, usage_error, with_current_spellings

MISTAKES = {
    "tranlate x": "error: tranlate is not a command of transformer; did you mean translate? See transformer --help\n",
    "qqqqq": "error: qqqqq is not a command of transformer; choose another one, see transformer --help\n",
    "translate": "error: model is missing; give it, see transformer translate --help\n",
    "translate x --outptu y": "error: --outptu is not an option of transformer translate; did you mean --output? "
    "See transformer translate --help\n",
    "translate x --beam": "error: --beam needs a value; give one after it, see transformer translate --help\n",
    "translate x --beam 0": "error: --beam=0 is too small; give at least 1, see transformer translate --help\n",
    "translate x --beam two": "error: --beam=two is not a whole number; give e.g. 4, "
    "see transformer translate --help\n",
    "translate x --top-p 7": "error: --top-p=7 is too large; give at most 1, see transformer translate --help\n",
    "translate x --alpha a": "error: --alpha=a is not a number; give e.g. 0.5, see transformer translate --help\n",
    "score x --format y": "error: --format='y' is unknown; choose one of 'text', 'jsonl', "
    "see transformer score --help\n",
    "average a b": "error: --output is missing; give it, see transformer average --help\n",
    "average a b --output=": "error: --output: it is empty; give a folder, see transformer average --help\n",
    "report a b c": "error: b c: more arguments than transformer report takes; leave them out, see transformer report "
    "--help\n",
    "train a --fresh=1": "error: --fresh takes no value; leave out what stands after the =, see transformer train "
    "--help\n",
}


def test_a_file_without_permission_is_named() -> None:
    """Catches the words of a library; root may read every file, so the message is given."""
    message = usage_error("Invalid value for '--input': Path '/a b' is not readable.", "translate", [])
    assert message == (
        "--input='/a b' cannot be read; change its permissions, or take another file, see transformer translate --help"
    )


@pytest.mark.parametrize("arguments", MISTAKES)
def test_a_mistake_points_to_the_help_of_its_command(arguments: str) -> None:
    """Catches the words of a library, and a hint at the help of all commands, which explains no option."""
    result = run(*arguments.split())
    assert (result.returncode, result.stdout, result.stderr) == (2, "", MISTAKES[arguments])


def test_old_spellings_work_with_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    """Catches scripts that no longer run, and words after -- that are changed."""
    for command in OLD_SPELLINGS:
        arguments = [command, "--out", "a", "--out=b=c", "--outer", "out", "--", "--out"]
        assert with_current_spellings(arguments, command) == [
            command, "--output", "a", "--output=b=c", "--outer", "out", "--", "--out"
        ]  # fmt: skip
        assert capsys.readouterr().err == "note: --out is now called --output\n" * 2
    assert with_current_spellings(["translate", "--out"], "translate") == ["translate", "--out"]


@pytest.mark.parametrize("command", [*OLD_SPELLINGS])
def test_the_new_spelling_is_shown_alone(command: str) -> None:
    """Catches an option that is named differently in two commands."""
    options = re.findall(r"--[\w-]+", run(command, "--help").stdout)
    assert "--output" in options
    assert "--out" not in options


def test_an_old_spelling_writes_what_the_new_one_does(tmp_path: Path) -> None:
    """Catches an old spelling that is accepted, but not obeyed."""
    for name in ("a.en", "a.de"):
        (tmp_path / name).write_text("one two\nthree\n")
    for option in ("--out", "--output"):
        result = run("check", "a.en", "a.de", "--format", "json", option, f"{option}.json", cwd=tmp_path)
        assert result.stderr == ("note: --out is now called --output\n" if option == "--out" else "")
    assert (tmp_path / "--out.json").read_bytes() == (tmp_path / "--output.json").read_bytes()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example_that_can_be_parsed(name: str) -> None:
    """Catches examples with options that do not exist, and commands without one."""
    (registered,) = make_app([name]).registered_commands
    help_text = f"{registered.epilog or ''}\n{registered.callback.__doc__ if registered.callback else ''}"
    example = re.search(r"Example: (.*)", help_text)
    assert example, f"{name} has no example"
    calls = [part for part in re.split(r"&&|\||, then |, to |>", example[1]) if part.strip().startswith("transformer ")]
    assert calls
    for call in calls:
        _, called, *arguments = shlex.split(call)
        group: Any = typer.main.get_command(make_app([called]))
        assert group.commands[called].make_context(called, arguments).params
