"""Models and runs that earlier versions saved: each format has one, which must load and go on forever."""

import json
import shutil
from pathlib import Path

import pytest

from samples import ROOT
from transformer.bundle import FORMAT
from transformer.pipelines.auto import load
from transformer.run.recipe import load_recipe
from transformer.run.train import train

GOLDEN = ROOT / "tests" / "golden"
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
NUMBERS = ("123", "9", "0774", "55", "28", "6", "3141", "5926")
LOSSES = {5: 3.0927562, 6: 3.0024374, 7: 2.9554161, 8: 2.9927636}
"""Losses of the steps after the checkpoint, as the version that saved it computed them without a break."""


@pytest.mark.parametrize("folder", sorted(GOLDEN.glob("format-*")), ids=lambda folder: folder.name)
def test_a_model_of_every_format_still_translates(folder: Path) -> None:
    """Catches a change of the layout, of a parameter's name, of the tokenizer or of the mathematics.

    The model was trained to write number words as digits, so what it must say is known without it.
    """
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["format"] == int(folder.name.split("-")[1])
    assert manifest["precision"] == ("int8" if folder.name.endswith("int8") else "float32")
    sources = [" ".join(WORDS[int(digit)] for digit in number) for number in NUMBERS]
    assert [translation.text for translation in load(folder).translations(sources)] == [" ".join(n) for n in NUMBERS]


@pytest.mark.parametrize("precision", ["float32", "bf16", "int8"])
def test_an_int8_model_is_read_in_every_precision(precision: str) -> None:
    """Catches scales that are lost on the way to another precision."""
    translator = load(GOLDEN / f"format-{FORMAT}-int8", precision=precision)
    assert translator.translate(["one two three", "nine"]) == ["1 2 3", "9"]


def test_the_format_that_is_written_has_its_model() -> None:
    """Catches a new format whose models the next version may no longer read."""
    for name in (f"format-{FORMAT}", f"format-{FORMAT}-int8", f"run-{FORMAT}"):
        assert (GOLDEN / name).is_dir()


@pytest.mark.slow
@pytest.mark.parametrize("folder", sorted(GOLDEN.glob("run-*")), ids=lambda folder: folder.name)
def test_a_run_of_every_format_goes_on(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a checkpoint whose weights, running mean, Adam state, position or schedule is read differently."""
    shutil.copytree(folder, tmp_path / "old")
    monkeypatch.chdir(tmp_path / "old")  # the recipe names its texts relatively
    result = train(load_recipe(Path("run/recipe.toml"), ["training.max_steps=8"]), "run", quiet=True)
    assert result.progress.step == 8
    rows = [json.loads(line) for line in Path("run/metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    losses = {row["step"]: row["loss"] for row in rows if row["kind"] == "train" and row["step"] > 4}
    assert losses == pytest.approx(LOSSES, rel=1e-4)
