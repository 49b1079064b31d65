"""Input that is not what a model translates: other languages, documents, missing sentences, one text twice."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from commands import run
from samples import ROOT, write_lines
from transformer.cli.language_check import check_language
from transformer.cli.notes import collect_notes
from transformer.errors import ConfigError
from transformer.pipelines.auto import load

ENGLISH = "The committee has met again this week, and nobody knows what will come of it in the end."
GERMAN = "Der Ausschuss hat in dieser Woche wieder getagt, und niemand weiß, was am Ende dabei herauskommt."


def notes(languages: str, chunks: Sequence[Sequence[str]], capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Returns the notes on the language of chunks of lines, which should be in one of some languages."""
    with collect_notes(verbose=True, quiet=False) as collected, check_language(languages.split(), collected) as check:
        number = 1
        for chunk in chunks:
            check.add(number, chunk)
            number += len(chunk)
    return capsys.readouterr().err.splitlines()


def test_input_in_another_language(capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a file given to the model of the other direction, and one of the right language that is suspected."""
    other = ["the input seems to be in German, but the model translates from English"]
    assert notes("en", [[GERMAN] * 5, [GERMAN] * 20], capsys) == other
    assert notes("de-AT", [[GERMAN] * 20], capsys) == []
    assert notes("en", [[ENGLISH] * 20], capsys) == []
    assert notes("en", [[GERMAN]], capsys) == []  # too short to be sure
    assert notes("", [[GERMAN] * 20], capsys) == []
    assert notes("en de", [[GERMAN] * 20], capsys) == []
    several = ["the input seems to be in German, but the model translates from English or French"]
    assert notes("en fr", [[GERMAN] * 20], capsys) == several


def test_a_long_line_in_another_language(capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a paragraph that the model cannot read, a wrong line number, and short lines that are suspected."""
    lines = [ENGLISH] * 30
    lines[12:14] = [f"{GERMAN} {GERMAN} {GERMAN}", GERMAN]
    expected = ["line 13: seems to be in German, not in English"]
    assert notes("en", [lines[:10], lines[10:]], capsys) == expected


def test_documents_are_refused(tiny_run: Path, tmp_path: Path) -> None:
    """Catches markup that is translated, also from standard input, and a refusal that cannot be overruled."""
    page = write_lines(tmp_path / "page.html", ["<!DOCTYPE html>", "<p>one two</p>"])
    pdf = write_lines(tmp_path / "page.ps", ["%PDF-1.7", "one two"])
    result = run("translate", tiny_run, "--input", pdf)
    assert result.returncode == 2
    assert f"error: {pdf} is a PDF file, not plain text" in result.stderr
    assert "--as text" in result.stderr
    piped = run("translate", tiny_run, stdin=page.read_text(encoding="utf-8"))
    assert (piped.returncode, piped.stdout) == (2, "")
    assert "standard input is an HTML page" in piped.stderr
    insisting = run("translate", tiny_run, "--as", "text", "--input", page)
    assert (insisting.returncode, len(insisting.stdout.splitlines())) == (0, 2)


def test_a_target_language_that_the_model_does_not_write(tmp_path: Path) -> None:
    """Catches a request for another language that is answered in the model's own without a word."""
    model = ROOT / "models/en-de/transformer_model_en_de/bundle"
    message = "target_language='fi' is not what the model writes, which is German only; leave it out"
    with pytest.raises(ConfigError, match=message):
        load(model, target_language="fi")
    translator = load(model, target_language="de-AT", workers=1)
    assert translator.config.target_language == "de-AT"
    with pytest.raises(ConfigError, match=message):
        translator("Hello.", target_language="fi")
    result = run("inspect", model, "Hello.", "--target-language", "fi", "--output", tmp_path / "page.html")
    assert (result.returncode, result.stdout) == (2, "")
    assert message in result.stderr


def test_a_text_cannot_be_its_own_translation(tmp_path: Path) -> None:
    """Catches a training of a model that copies, by a file given twice."""
    text = write_lines(tmp_path / "x.en", ["one two"] * 10)
    result = run("train", text, text)
    assert result.returncode == 2
    assert f"data.source and data.target are both {text}" in result.stderr
