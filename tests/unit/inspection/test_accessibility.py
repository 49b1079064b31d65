from pathlib import Path
from typing import Any

import pytest

from inspected import recorded
from opened import NEEDS_BROWSER, go, open_page
from transformer.inspection.gradient_norms import compared_norms
from transformer.inspection.page import render
from transformer.inspection.page_data import PageData, attention_data, page_data

axe_playwright = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python")
pytestmark = NEEDS_BROWSER


@pytest.fixture(scope="module")
def pages() -> dict[str, PageData]:
    translation, picture = recorded("transformer"), recorded("vit")
    text = page_data(translation, compared_norms(translation))
    return {
        "text": text,
        "attention": attention_data(text, "Encoder self-attention"),
        "picture": page_data(picture),
    }


def addresses(data: PageData) -> list[str]:
    """Returns every tab, with a step that has heads, and one with parameters."""
    steps = data.facts["steps"]
    if data.facts["tabs"] == ["attention"]:
        return ["attention/encoder/2/3/1/0"]
    step = {title: next(one["id"] for one in steps if one["title"] == title) for title in ("Scores", "Queries", "Loss")}
    return [
        f"forward/{step['Scores']}", f"forward/{step['Loss']}", f"backward/{step['Scores']}",
        f"backward/{step['Queries']}", "attention", "positions", "parameters",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", ["text", "attention", "picture"])
def test_axe_finds_nothing(
    browser: Any, pages: dict[str, PageData], tmp_path: Path, name: str, width: int, scheme: str
) -> None:
    """Catches controls without names, texts of too little contrast, and whatever else axe-core knows of."""
    axe, violations = axe_playwright.Axe(), {}
    for page in open_page(browser, render(pages[name]), tmp_path, width=width, color_scheme=scheme, bypass_csp=True):
        for address in addresses(pages[name]):
            go(page, address)
            page.wait_for_function("() => !document.querySelector('[aria-busy]')")
            results = axe.run(page, options={"resultTypes": ["violations"]})
            for one in results.response["violations"]:
                violations[address, one["id"], one["impact"]] = [node["html"][:100] for node in one["nodes"]][:3]
            assert page.evaluate("document.documentElement.scrollWidth") <= width, address
    assert violations == {}
