"""The report of `check` as a page."""

from pathlib import Path
from typing import Any

from opened import NEEDS_BROWSER
from samples import write_lines
from transformer.data.quality.examination import examine
from transformer.reporting.corpus_page import html_report
from unit.data.quality.invented_languages import invented

pytestmark = NEEDS_BROWSER


def test_report_fits_a_narrow_screen(browser: Any, tmp_path: Path) -> None:
    """Catches columns of one letter beside each other, which make a page of ten times the height."""
    source, target = invented(100)
    write_lines(tmp_path / "a.src", source)
    write_lines(tmp_path / "a.tgt", [*target[1:], target[0]])
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.set_content(html_report(examine(tmp_path / "a.src", tmp_path / "a.tgt")))
    narrowest = "Math.min(...[...document.querySelectorAll('.finding td:last-child')].map((cell) => cell.clientWidth))"
    assert page.evaluate(narrowest) > 200
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.close()
