from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from inspected import recorded
from opened import NEEDS_BROWSER, go, open_page
from transformer.inspection.page import render
from transformer.inspection.page_data import PageData, page_data

pytestmark = NEEDS_BROWSER


@pytest.fixture(scope="module")
def data() -> PageData:
    return page_data(recorded("transformer"))


def test_long_formulas_can_be_read_on_a_phone(browser: Any, data: PageData, tmp_path: Path) -> None:
    """Catches a formula that is cut off without a sign, or that the keyboard cannot scroll."""
    norm = next(step["id"] for step in data.facts["steps"] if step["kind"] == "layer_norm")
    for page in open_page(browser, render(data), tmp_path, width=200):
        go(page, f"backward/{norm}")
        page.wait_for_selector(".formula.cut")
        boxes = page.locator(".formula").evaluate_all(
            "all => all.map((box) => [box.scrollWidth > box.clientWidth + 1, box.tabIndex === 0])"
        )
        assert [wide for wide, _ in boxes] == [focusable for _, focusable in boxes]


def test_maps_over_the_vocabulary_scroll_together(browser: Any, data: PageData, tmp_path: Path) -> None:
    """Catches a gradient of some tokens beside the logits of others, and tokens that only have numbers."""
    names = {"target": [f"token-{number}" for number in range(29)]}
    named, last = replace(data, facts=data.facts | {"vocabularies": names}), data.facts["steps"][-1]["id"]
    for page in open_page(browser, render(named), tmp_path, width=390):
        go(page, f"backward/{last}")
        assert "token-" in page.locator(".chosen .at").inner_text()
        frames = "[...document.querySelectorAll('.heat-frame')].slice(0, 2)"
        page.evaluate(f"{frames}[0].scrollLeft = 60")
        page.wait_for_function(f"() => {frames}.every((frame) => Math.abs(frame.scrollLeft - 60) < 2)")


def test_a_step_is_kept_from_tab_to_tab(browser: Any, data: PageData, tmp_path: Path) -> None:
    """Catches a visit of another tab that forgets the step."""
    for page in open_page(browser, render(data), tmp_path):
        go(page, "forward/9")
        go(page, "attention")
        page.get_by_role("tab", name="Backward Propagation").click()
        page.wait_for_selector("body[data-shown='#backward/9']")
