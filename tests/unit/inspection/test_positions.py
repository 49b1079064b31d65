from pathlib import Path
from typing import Any

import pytest

from inspected import recorded
from opened import NEEDS_BROWSER, go, open_page
from transformer.inspection.page import render
from transformer.inspection.page_data import page_data

pytestmark = NEEDS_BROWSER


@pytest.mark.parametrize("name", ["bert", "vit"])
def test_learned_positions_are_shown(browser: Any, tmp_path: Path, name: str) -> None:
    """Catches models whose positions are learned and that are said to have none, and numbers of another table."""
    data = page_data(recorded(name))
    parameters = dict(recorded(name).model.named_parameters())
    (table,) = (value[:100] for key, value in parameters.items() if key.endswith("positions.embedding.weight"))
    number = data.facts["positions"]["tensor"]
    for page in open_page(browser, render(data), tmp_path):
        go(page, "positions")
        text = page.locator("#main").inner_text()
        assert "learned" in text
        assert "sines" not in text
        assert page.locator("#main svg").count() == 2
        shown = page.evaluate("number => inspector.tensor(number).then((values) => [...values])", number)
        assert shown == pytest.approx(table.flatten().tolist(), rel=1e-6)
        assert ("class token" in text) == (name == "vit")


@pytest.mark.parametrize(("name", "module"), [("t5", "bias"), ("llama", "rotation")])
def test_positions_within_the_attention_are_linked(browser: Any, tmp_path: Path, name: str, module: str) -> None:
    """Catches a page that does not say how a model without a table knows the order."""
    data = page_data(recorded(name))
    for page in open_page(browser, render(data), tmp_path):
        go(page, "positions")
        address = page.locator("#main a").get_attribute("href")
        assert module in data.facts["steps"][int(address.split("/")[1])]["module"]


def test_names_of_heads_and_shapes_fit_a_phone(browser: Any, tmp_path: Path) -> None:
    """Catches the letter h_kv instead of a name, and a shape of pixels that is cut off."""
    llama, vit = (page_data(recorded(name)) for name in ("llama", "vit"))
    step = next(step for step in llama.facts["steps"] if step["output"]["axes"][1:2] == ["h_kv"])
    for page in open_page(browser, render(llama), tmp_path):
        go(page, f"forward/{step['id']}")
        assert page.get_by_role("group", name="Head of keys and values").is_visible()
        assert "h_kv" not in page.locator(".leads").inner_text()
    for page in open_page(browser, render(vit), tmp_path, width=300):
        go(page, "forward/0")
        box = page.locator(".symbols").first
        assert box.evaluate("table => table.scrollWidth <= table.parentElement.clientWidth")
