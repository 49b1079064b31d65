"""What the page of the inspector says about a pass: names of rows, likely tokens, and what its numbers are."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from inspected import example, recorded, tiny
from opened import NEEDS_BROWSER, go, open_page
from transformer.inspection import page as pages
from transformer.inspection.page import render
from transformer.inspection.page_data import PageData, page_data
from transformer.inspection.passes import Pass

pytestmark = NEEDS_BROWSER


@pytest.fixture(scope="module")
def data() -> PageData:
    return page_data(recorded("transformer"))


@pytest.fixture
def opened(browser: Any, data: PageData, tmp_path: Path) -> Iterator[Any]:
    yield from open_page(browser, render(data), tmp_path)


def step_of(data: PageData, block: str, title: str) -> int:
    return next(step["id"] for step in data.facts["steps"] if (step["block"], step["title"]) == (block, title))


def wide() -> PageData:
    """Returns a pass of a model with other numbers of layers, whose weights are those of int8 with scales."""
    bundle = tiny("transformer", d_model=24, d_ff=32, encoder_layers=3, decoder_layers=1)
    bundle.model.float()
    with torch.no_grad():
        for parameter in bundle.model.parameters():
            if parameter.dim() == 2:
                scales = parameter.abs().amax(dim=1, keepdim=True) / 127
                parameter.copy_((parameter / scales).round() * scales)
    return page_data(Pass.record(bundle, example(bundle)))


def test_weights_in_int8_are_read_exactly_and_rounding_is_named(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches scales of other rows, and a file of rounded numbers that passes for the model's own."""
    data = wide()
    tensors = range(len(data.tensors))
    read = "async ids => Promise.all(ids.map(async id => [...await inspector.tensor(id)].map(String)))"
    for opened in open_page(browser, render(data), tmp_path):
        for index, shown in zip(tensors, opened.evaluate(read, [*tensors]), strict=True):
            assert [float(text.replace("Infinity", "inf")) for text in shown] == data.numbers(index).tolist()
        assert "as computed, in float32" in opened.locator("#sentence").inner_text()
        assert "3 + 1 layers" in opened.locator("#model").inner_text()
        go(opened, "parameters")
        assert "3 encoder layers and 1 decoder layer." in opened.locator("#main").inner_text()
    exact = pages.pack_tensors(data.facts, data.numbers, 1 << 30)
    for opened in open_page(browser, render(data, limit=len(exact.text) * 3 // 4), tmp_path):
        assert "rounded to eight bits" in opened.locator("#sentence").inner_text()
        go(opened, f"forward/{step_of(data, 'Multi-head self-attention', 'Scores')}")
        assert "are rounded" in opened.locator(".arithmetic").inner_text()


def test_rows_of_a_decoder_say_what_they_read_and_write(opened: Any, data: PageData) -> None:
    """Catches rows that bear the token of the position before or after, in one picture and not in the other."""
    expected = f"reads {data.facts['tokens']['T'][1]}, writes {data.facts['labels'][1]}"
    for block in ("Masked multi-head self-attention", "Multi-head cross-attention"):
        go(opened, f"forward/{step_of(data, block, 'Softmax')}")
        frame = opened.locator(".heat-frame").first
        frame.focus()
        for key in ("Home", "PageUp", "ArrowDown"):
            frame.press(key)
        assert expected in opened.locator(".status").first.inner_text()
    go(opened, "attention")
    for kind, is_decoder in (("cross-attention", True), ("Decoder self-attention", True), ("Encoder self-", False)):
        opened.locator(f".thumb[aria-label^='{kind}']").first.click()
        frame = opened.locator(".detail .heat-frame")
        frame.focus()
        frame.press("ArrowDown")
        shown = opened.locator(".detail .status").inner_text()
        assert (f"{expected}: attends to" in shown) is is_decoder, shown


def test_arrow_keys_walk_the_path_after_a_click_on_a_tab(opened: Any, data: PageData) -> None:
    """Catches keys that go to the next tab where a pointer has chosen one."""
    opened.get_by_role("tab", name="Backward Propagation").click()
    opened.wait_for_selector("body[data-shown^='#backward']")
    opened.get_by_role("tab", name="Forward Propagation").click()
    opened.wait_for_selector("body[data-shown^='#forward']")
    place = int(opened.evaluate("location.hash.split('/')[1]"))
    opened.keyboard.press("ArrowLeft" if place else "ArrowRight")
    opened.wait_for_selector(f"body[data-shown='#forward/{place - 1 if place else 1}']")
    opened.get_by_role("tab", name="Forward Propagation").focus()
    opened.keyboard.press("ArrowRight")
    opened.wait_for_selector("body[data-shown^='#backward']")


def test_the_chart_of_norms_has_a_line_for_each_stack(opened: Any, data: PageData) -> None:
    """Catches a line from the decoder's input to the encoder's output, between which no gradient flows."""
    go(opened, f"backward/{len(data.facts['steps']) - 1}")
    opened.wait_for_selector("polyline.norms")
    lines = opened.eval_on_selector_all("polyline.norms", "lines => lines.map(line => line.points.numberOfItems)")
    sections = [step["section"] for step in data.facts["steps"] if step["output"]["gradient_norm"] is not None]
    in_encoder = sum(section.startswith("Encoder") for section in sections)
    assert sorted(lines) == sorted([in_encoder, len(sections) - in_encoder])


def test_softmax_over_the_vocabulary_lists_likely_tokens(opened: Any, data: PageData) -> None:
    """Catches the first tokens of the vocabulary instead, and colours that only the largest probability has."""
    step = step_of(data, "Softmax", "Softmax of the logits")
    go(opened, f"forward/{step}")
    opened.wait_for_selector(".terms tbody tr")
    listed = opened.locator(".terms tbody th").all_inner_texts()
    best = [one["token"] for one in max(data.facts["probabilities"], key=lambda likely: likely[0]["p"])]
    assert listed[:2] == best[:2]
    assert "logarithmic" in opened.locator(".scale").first.inner_text()


def test_a_map_that_scrolls_says_so(browser: Any, data: PageData, tmp_path: Path) -> None:
    """Catches a map of which nothing tells that there is more."""
    step = step_of(data, "Softmax", "Softmax of the logits")
    named = replace(data, facts=data.facts | {"vocabularies": {"target": [f"t{n}" for n in range(29)]}})
    for opened in open_page(browser, render(named), tmp_path, width=390):
        go(opened, f"forward/{step}")
        opened.locator(".extent", has_text="of 29").first.wait_for()
        go(opened, f"forward/{step_of(data, 'Multi-head self-attention', 'Scores')}")
        assert opened.locator(".extent").first.inner_text() == ""
