"""Texts as arguments, --json, --quiet and --verbose, and checks of files before the work."""

import inspect
import io
import json
import sys
from pathlib import Path

import pytest

from commands import run
from samples import write_lines
from transformer.cli.app import COMMANDS, make_app
from transformer.cli.verbosity import prompt_on_terminal, say, takes_verbosity
from transformer.errors import ConfigError


def test_texts_are_translated_as_lines_of_a_file_are(tiny_run: Path, tmp_path: Path) -> None:
    """Catches an argument that is lost, and other options for texts than for files."""
    lines = ["one two", "seven", "", "three"]
    from_file = run("translate", tiny_run, "--input", write_lines(tmp_path / "lines", lines), "--quiet")
    from_arguments = run("translate", tiny_run, lines[0], "seven\n\nthree", "--quiet")
    assert from_arguments.stdout == from_file.stdout
    assert from_arguments.stdout.count("\n") == 4
    assert from_arguments.stderr == ""
    both = run("translate", tiny_run, "one", "--input", tmp_path / "lines")
    assert (both.returncode, both.stdout) == (2, "")
    assert "texts as arguments and --input are mutually exclusive" in both.stderr


def test_a_pair_is_scored_as_lines_of_files_are(tiny_run: Path, tmp_path: Path) -> None:
    """Catches swapped sides."""
    source, target = write_lines(tmp_path / "s", ["one two"]), write_lines(tmp_path / "t", ["1 2"])
    from_files = run("score", tiny_run, "--source", source, "--target", target, "--json")
    from_texts = run("score", tiny_run, "one two", "1 2", "--json")
    assert json.loads(from_texts.stdout) == json.loads(from_files.stdout)
    assert "a side is missing" in run("score", tiny_run, "one two").stderr


def test_json_is_the_long_form(tiny_run: Path) -> None:
    """Catches a short form with other fields."""
    short, long = (run("translate", tiny_run, "one two", *options) for options in (["--json"], ["--format", "jsonl"]))
    assert short.stdout == long.stdout
    assert json.loads(short.stdout)["line"] == 1


def test_lists_of_moses_can_be_parsed(tiny_run: Path) -> None:
    """Catches lines that count from 1, and missing fields: Moses writes `0 ||| text ||| feature= value ||| score`."""
    options = ["--beam", 3, "--n-best", 2]
    rows = run("translate", tiny_run, "one two", "seven", *options, "--format", "moses").stdout.splitlines()
    records = [
        json.loads(line)
        for line in run("translate", tiny_run, "one two", "seven", *options, "--json").stdout.splitlines()
    ]
    fields = [row.split(" ||| ") for row in rows]
    assert [int(number) for number, _, _, _ in fields] == [0, 0, 1, 1]
    alternatives = [alternative for record in records for alternative in record["alternatives"]]
    for (_, text, feature, score), alternative in zip(fields, alternatives, strict=True):
        name, value = feature.split("= ")
        assert (text, name) == (alternative["text"], "F0")
        assert float(value) == pytest.approx(alternative["score"], abs=1e-3)
        assert float(score) == pytest.approx(alternative["value"], abs=1e-3)


def test_figures_of_a_model_are_json(tiny_run: Path) -> None:
    """Catches JSON that cannot be parsed, and figures that differ from the printed ones."""
    facts = json.loads(run("info", tiny_run, "--json").stdout)
    printed = run("info", tiny_run).stdout
    assert f"total             {facts['parameters']['total']:,}" in printed
    assert sum(facts["parameters"].values()) == 2 * facts["parameters"]["total"]
    assert "None" not in printed
    for name, value in facts["validation"]["scores"].items():
        (line,) = [line for line in printed.splitlines() if line.startswith(f"  {name} ")]
        assert float(line.split()[1]) == pytest.approx(value, abs=0.005)
        assert len(line.split()[1].split(".")[1]) <= 4
    for family in ("t5", "bert", "vit"):
        assert "None" not in run("info", family).stdout
        assert "keys" in json.loads(run("info", family, "--json").stdout)
    assert "None" not in run("info").stdout


WITH_FIGURES = (
    "info", "perplexity", "quantize", "calibrate", "average", "check", "evaluate", "translate", "score", "generate",
    "classify", "fill", "embed", "doctor", "models", "recipes", "preflight",
)  # fmt: skip


@pytest.mark.parametrize("command", WITH_FIGURES)
def test_figures_can_be_had_as_json(command: str) -> None:
    """Catches a command whose figures only people can read."""
    (registered,) = make_app([command]).registered_commands
    assert registered.callback
    assert "as_json" in inspect.signature(registered.callback).parameters


SILENT = {"demo", "info", "report", "recipes", "models", "doctor"}
"""Commands that print results alone."""


@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in SILENT])
def test_notes_can_be_turned_off(command: str) -> None:
    """Catches a command whose notes cannot be kept out of a log."""
    (registered,) = make_app([command]).registered_commands
    assert registered.callback
    assert {"quiet", "verbose"} <= inspect.signature(registered.callback).parameters.keys()


def test_notes_follow_the_options(capsys: pytest.CaptureFixture[str]) -> None:
    """Catches notes in spite of --quiet, and a setting that outlives its command."""
    command = takes_verbosity(lambda: say("a note\x1b"))
    command()
    assert capsys.readouterr().err == "a note\\x1b\n"
    command(quiet=True)
    assert capsys.readouterr().err == ""
    command()
    assert capsys.readouterr().err == "a note\\x1b\n"
    with pytest.raises(ConfigError, match="contradict each other"):
        command(quiet=True, verbose=True)


def test_a_terminal_is_told_what_to_type(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a command that waits silently, and a prompt in the output of a script."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", io.StringIO())
    prompt_on_terminal("type")
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys, "stdin", Terminal())
    prompt_on_terminal("type")
    assert capsys.readouterr() == ("", "type\n")


def test_a_prompt_is_only_for_terminals(tiny_run: Path) -> None:
    """Catches a prompt among the notes of a pipe."""
    result = run("translate", tiny_run, stdin="one\n")
    assert "Ctrl-D" not in result.stderr
    assert result.stdout.count("\n") == 1


CONTRADICTIONS = {
    "translate {model} x --format moses --json": "--format moses and --json contradict each other",
    "translate {model} x --json --format text": "--format text and --json contradict each other",
    "score {model} x y --format text --json": "--format text and --json contradict each other",
    "generate {model} x --format text --json": "--format text and --json contradict each other",
    "classify {model} x --format text --json": "--format text and --json contradict each other",
    "fill {model} [MASK] --format text --json": "--format text and --json contradict each other",
    "check {text} {text} --format html --json": "--format html and --json contradict each other",
    "embed {model} x --top 3": "--top has no effect without --nearest",
    "embed {model} x --json --output {new}.npy": "is to be an array, but --json asks for JSON",
    "embed {model} x --nearest y --output {new}": "leave out --output",
    "inspect {model} x --port 8000 --output {new}": "--port is for the served page, --output writes a file",
    "perplexity {model} {text} --input {text}": "texts as arguments and --input are mutually exclusive",
}


@pytest.mark.parametrize("line", CONTRADICTIONS)
def test_options_that_contradict_each_other_are_refused(line: str, tmp_path: Path) -> None:
    """Catches an option that silently overrides another, or a model that is loaded first; the model does not exist."""
    names = {"model": "no-model", "text": write_lines(tmp_path / "text", ["one"]), "new": tmp_path / "new"}
    result = run(*line.format(**names).split())
    assert (result.returncode, result.stdout) == (2, "")
    assert CONTRADICTIONS[line] in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_format_goes_with_its_json(tmp_path: Path) -> None:
    """Catches a refusal of options that say the same."""
    text = write_lines(tmp_path / "text", ["one two"] * 3)
    reports = [run("check", text, text, *options).stdout for options in (["--json"], ["--json", "--format", "json"])]
    assert reports[0] == reports[1]
    assert json.loads(reports[0])


MISSING = (
    "translate {model} --input *{no}", "translate {model} x --prefix *{no}", "translate {model} x --glossary *{no}",
    "translate {model} x --ban *{no}", "translate {model} x --shortlist *{no}", "translate {model} --input *{folder}",
    "evaluate {model} --source *{no} --reference {text}", "evaluate {model} --source {text} --reference *{no}",
    "score {model} --source {text} --target *{no}", "generate {model} --input *{no}", "classify {model} --input *{no}",
    "classify {model} --evaluate *{no}", "embed {model} --input *{no}", "embed {model} --evaluate *{no}",
    "perplexity {model} *{no}", "quantize {model} --source *{no} --reference {text} --output {new}",
    "shortlist {model} --source {text} --target *{no} --output {new}",
    "calibrate {model} --source {text} --reference *{no}",
)  # fmt: skip
UNWRITABLE = (
    "translate {model} x --output *{nowhere}", "translate {model} x --output *{folder}",
    "translate {model} x --alignment *{nowhere}", "score {model} x y --output *{nowhere}",
    "evaluate {model} --source {text} --reference {text} --report *{nowhere}", "generate {model} x --output *{nowhere}",
    "classify {model} x --output *{nowhere}", "embed {model} x --output *{nowhere}",
    "inspect {model} x --output *{nowhere}", "shortlist {model} --source {text} --target {text} --output *{nowhere}",
    "export {model} --output *{used}", "export {model} --output *{text}", "import {model} --output *{used}",
    "average {model} {model} --output *{used}", "quantize {model} --source {text} --reference {text} --output *{used}",
)  # fmt: skip


@pytest.mark.parametrize("line", [*MISSING, *UNWRITABLE])
def test_files_are_checked_before_a_model_is_loaded(line: str, tmp_path: Path) -> None:
    """Catches a wrong path that is reported after a model has been loaded, or after all of the work.

    A star marks the wrong path. The model does not exist, so a command that looks at it first reports that instead.
    """
    (tmp_path / "used").mkdir()
    text = write_lines(tmp_path / "text", ["one"])
    write_lines(tmp_path / "used" / "file", ["x"])
    names = {
        "model": "no-model", "no": "no-file", "folder": tmp_path, "text": text, "used": tmp_path / "used",
        "new": tmp_path / "new", "nowhere": tmp_path / "none" / "file",
    }  # fmt: skip
    result = run(*(word.removeprefix("*").format(**names) for word in line.split()), cwd=tmp_path)
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1)
    (wrong,) = (word[1:].format(**names) for word in line.split() if word.startswith("*"))
    assert result.stderr.startswith(f"error: {wrong}")
    assert not (tmp_path / "new").exists()
