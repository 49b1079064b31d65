"""Makes the drawings of the documentation again and compares them with those in `docs/figures`."""

import importlib
import re
from pathlib import Path

import pytest

from samples import ROOT

FIGURES = ROOT / "docs" / "figures"
SCRIPTS = sorted(
    path.stem for path in (ROOT / "tools" / "figures").glob("*.py") if "DRAWINGS =" in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("script", SCRIPTS)
def test_drawings_are_those_of_their_script(script: str) -> None:
    """Catches a drawing that was changed by hand, and a script that was changed and not run."""
    drawings = importlib.import_module(f"figures.{script}").DRAWINGS
    assert drawings
    for name, draw in drawings.items():
        svg = draw().svg()
        assert svg == (FIGURES / f"{name}.svg").read_text(encoding="utf-8"), f"run python tools/figures {script}"
        assert 'fill="#' not in re.sub(r"<rect[^>]*>", "", svg), f"{name}: lines and letters take the page's colour"


def test_drawings_of_the_model_show_dropout() -> None:
    """Catches a drawing of the architecture that leaves out where numbers are dropped, or the factor of the others."""
    for name in importlib.import_module("figures.architecture").DRAWINGS:
        svg = (FIGURES / f"{name}.svg").read_text(encoding="utf-8")
        assert re.search(r">dropout(?:<|, add)", svg), name
        assert "else × 1 / (1 − p)" in svg, name


@pytest.mark.parametrize("script", ["positions", "residuals"])
def test_plots_are_those_of_their_script(script: str, tmp_path: Path) -> None:
    """Catches a plot that was changed by hand, and a script or a result file that was changed and not drawn again.

    Numbers may differ by a hundredth of a point, since processors round differently.
    """
    save = importlib.import_module("figures.plots").save
    plots = importlib.import_module(f"figures.{script}").PLOTS
    assert plots
    for name, draw in plots.items():
        save(draw(), name, tmp_path)
        made, committed = (split_numbers((folder / f"{name}.svg").read_text("utf-8")) for folder in (tmp_path, FIGURES))
        assert made[0] == committed[0], f"run python tools/figures {script}"
        assert made[1] == pytest.approx(committed[1], abs=0.01), f"run python tools/figures {script}"


def split_numbers(svg: str) -> tuple[str, list[float]]:
    """Returns a drawing without its numbers and pixels, and the numbers of its coordinates."""
    svg = re.sub(r'"data:[^"]*"|[#"]\w*[0-9a-f]{10}\b', "", svg)
    number = re.compile(r"(?<![\w#.])-?\d+\.?\d*(?:e-?\d+)?")
    return number.sub("0", svg), [float(value) for value in number.findall(svg)]


def test_drawings_have_a_text() -> None:
    """Catches a figure that says nothing to those who do not see it, and one that does not exist."""
    for page in sorted((ROOT / "docs").rglob("*.md")):
        if "_build" in page.parts:
            continue
        text = page.read_text(encoding="utf-8")
        for file, options in re.findall(r"^```\{(?:drawing|figure)\} (\S+)\n(.*?)^\s*$", text, re.M | re.S):
            assert re.search(r"^:alt: \S", options, re.M), f"{page.name}: {file} has no :alt:"
            folders = (ROOT / "docs", page.parent)
            assert any((folder / Path(file)).is_file() for folder in folders), f"{page.name}: {file} is missing"
