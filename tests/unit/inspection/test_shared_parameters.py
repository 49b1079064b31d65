from pathlib import Path
from typing import Any

import pytest
import torch.nn.functional as F

from inspected import example, recorded, tiny
from opened import NEEDS_BROWSER, go, open_page
from transformer.inspection.page import render
from transformer.inspection.page_data import page_data
from transformer.inspection.passes import Pass

pytestmark = NEEDS_BROWSER


def test_the_gradient_of_a_shared_matrix_is_the_sum_of_its_paths(browser: Any, tmp_path: Path) -> None:
    """Catches a page that shows the gradient of one use as if it were that of the matrix that three parts share."""
    bundle = tiny("marian")
    data = page_data(Pass.record(bundle, example(bundle)))
    one, model = example(bundle), bundle.model
    F.cross_entropy(one.compute(model, one.inputs), one.labels).backward()
    matrix = next(value for value in model.parameters() if value.shape == (23, 12))
    assert matrix.grad is not None
    steps = [(step["id"], place) for step in data.facts["steps"] for place, part in enumerate(step["inputs"])
             if part["parameter"] and part["shape"] == list(matrix.shape)]  # fmt: skip
    assert len(steps) == 3
    for page in open_page(browser, render(data), tmp_path):
        for number, place in steps:
            sums = page.evaluate(
                "([id, place]) => inspector.sharedGradient(id, place).then((all) => [...all])", [number, place]
            )
            assert sums == pytest.approx(matrix.grad.flatten().tolist(), rel=1e-4, abs=1e-6)
        go(page, f"backward/{steps[0][0]}")
        text = page.locator("#main").inner_text()
        assert "one of 3 paths" in text
        norm = float(text.partition("of norm ")[2].partition(":")[0])
        assert norm == pytest.approx(float(matrix.grad.norm()), rel=1e-2)
        links = page.locator("section", has_text="The whole gradient").locator(".paths a")
        addresses = links.evaluate_all("all => all.map((one) => one.hash)")
        assert addresses == [f"#backward/{step}" for step, _ in steps[1:]]


def test_the_loss_names_the_tokens_to_predict(browser: Any, tmp_path: Path) -> None:
    """Catches the id of the first token to predict under the start token, which the decoder reads in its place."""
    data = page_data(recorded("transformer"))
    last = data.facts["steps"][-1]["id"]
    for page in open_page(browser, render(data), tmp_path):
        go(page, f"forward/{last}")
        names = page.locator(".terms tbody th").all_inner_texts()
        assert names == data.facts["labels"] != data.facts["tokens"]["T"]
