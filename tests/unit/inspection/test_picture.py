from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inspected import recorded
from opened import NEEDS_BROWSER, go, open_page
from transformer.inspection.page import render
from transformer.inspection.page_data import PageData, page_data

pytestmark = NEEDS_BROWSER

COLOURS = """places => {
  const canvas = document.querySelector(".side canvas.picture"), side = canvas.width / 6;
  const image = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return places.map(([row, column]) => {
    const place = 4 * (Math.round((row + 0.5) * side) * image.width + Math.round((column + 0.5) * side));
    return [...image.data.subarray(place, place + 4)];
  });
}"""


@pytest.fixture(scope="module")
def data() -> PageData:
    return page_data(recorded("vit"))


@pytest.fixture
def opened(browser: Any, data: PageData, tmp_path: Path) -> Iterator[Any]:
    yield from open_page(browser, render(data), tmp_path)


def test_the_picture_is_that_of_the_pixels(opened: Any) -> None:
    """Catches a picture that is turned, or shown as the model reads it, with the mean taken off."""
    pixels = recorded("vit").example.inputs["image"].detach()
    places = [[0, 0], [0, 5], [4, 1], [5, 5]]
    for (row, column), colour in zip(places, opened.evaluate(COLOURS, places), strict=True):
        level = min(255, max(0, round(255 * (float(pixels[0, 0, row, column]) * 0.5 + 0.25))))
        assert colour == pytest.approx([level] * 3 + [255], abs=1)


def test_a_token_marks_its_patch(opened: Any) -> None:
    """Catches patches that are off by one, because the class token comes first, or numbered by columns."""
    marked = "document.querySelector('.side canvas.picture').picture.marked"
    opened.locator("#sentence .chip", has_text="2,1").hover()
    assert opened.evaluate(marked) == [3]
    opened.mouse.move(0, 0)
    assert opened.evaluate(marked) == []
    box = opened.locator(".side canvas.picture").bounding_box()
    opened.mouse.move(box["x"] + 0.75 * box["width"], box["y"] + 0.25 * box["height"])
    assert opened.locator(".pictured:visible small").inner_text() == "patch 1,2"
    assert opened.evaluate("document.querySelector('.side canvas.picture').picture.place(3)") == [0, 3, 3, 3]


def test_attention_is_drawn_from_any_token_over_the_picture(opened: Any, data: PageData) -> None:
    """Catches weights of another row, layer or head, and a last layer that computes the class token alone."""
    weights = [data.tensors[entry["tensor"]] for entry in data.facts["attention"]]
    go(opened, "attention")

    def weight(patch: str) -> float:
        return float(opened.locator(".large-picture .status").inner_text().removeprefix(f"patch {patch}: "))

    frame = opened.locator(".frame")
    opened.get_by_role("button", name="Attention from the class token, layer 2, head 3").click()
    frame.focus()
    for _ in range(2):
        frame.press("ArrowRight")
    assert weight("1,2") == pytest.approx(float(weights[1][0, 2, 0, 2]), rel=1e-3)
    frame.press("Enter")
    opened.get_by_role("button", name="Attention from patch 1,2, layer 1, head 2").click()
    frame.press("ArrowDown")
    assert weight("2,2") == pytest.approx(float(weights[0][0, 1, 2, 4]), rel=1e-3)
    assert "Computed for the class token alone" in opened.locator(".over").inner_text()
