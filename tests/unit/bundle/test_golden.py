"""Models that earlier versions saved: each format has one, which must load and translate forever."""

import json
from pathlib import Path

import pytest

from samples import ROOT
from transformer.bundle import FORMAT
from transformer.pipelines.auto import load

GOLDEN = ROOT / "tests" / "golden"
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
NUMBERS = ("123", "9", "0774", "55", "28", "6", "3141", "5926")


@pytest.mark.parametrize("folder", sorted(GOLDEN.iterdir()), ids=lambda folder: folder.name)
def test_a_model_of_every_format_still_translates(folder: Path) -> None:
    """Catches a change of the layout, of a parameter's name, of the tokenizer or of the mathematics.

    The model was trained to write number words as digits, so what it must say is known without it.
    """
    assert json.loads((folder / "manifest.json").read_text())["format"] == int(folder.name.removeprefix("format-"))
    sources = [" ".join(WORDS[int(digit)] for digit in number) for number in NUMBERS]
    assert [translation.text for translation in load(folder).translations(sources)] == [" ".join(n) for n in NUMBERS]


def test_the_format_that_is_written_has_its_model() -> None:
    """Catches a new format whose models the next version may no longer read."""
    assert (GOLDEN / f"format-{FORMAT}").is_dir()
