import re
from pathlib import Path
from typing import Any

import pytest

from inspected import recorded
from opened import NEEDS_BROWSER, go, open_page
from transformer.inspection import page_data as page_module
from transformer.inspection.page import render
from transformer.inspection.page_data import PageData, page_data

pytestmark = NEEDS_BROWSER

CELL = """async ([step, input, index]) => {
  const cell = input < 0 ? await inspector.cellForward(step, index) : await inspector.cellBackward(step, input, index);
  return cell.absent ? null : cell.value;
}"""


@pytest.fixture
def data(monkeypatch: pytest.MonkeyPatch) -> PageData:
    """Returns a pass of which all tables of tokens count as large, and two tokens as the most probable ones."""
    monkeypatch.setattr(page_module, "LARGE_TABLE", 10)
    monkeypatch.setattr(page_module, "TOP", 2)
    return page_data(recorded("transformer"))


def step_of(data: PageData, title: str) -> dict[str, Any]:
    return next(step for step in data.facts["steps"] if step["title"] == title)


def test_a_file_has_the_rows_of_its_tokens(browser: Any, data: PageData, tmp_path: Path) -> None:
    """Catches whole tables in a file, rows of other tokens, and wrong numbers for those that are not there."""
    lookup, projection = step_of(data, "Look up embeddings"), step_of(data, "Project to the vocabulary")
    table, matrix = (next(part for part in step["inputs"] if part["role"] == "w") for step in (lookup, projection))
    source = recorded("transformer").example.inputs["source"][0]
    assert data.facts["tensors"][table["tensor"]]["rows"] == sorted(set(source.tolist()))
    rows = data.facts["tensors"][matrix["tensor"]]["rows"]
    assert {*data.facts["label_ids"]} <= {*rows} < {*range(29)}
    absent = next(row for row in range(29) if row not in rows)
    logits, gradient = (data.tensors[projection["output"][key]] for key in ("tensor", "gradient"))
    for opened in open_page(browser, render(data), tmp_path):
        for place, token in enumerate(source.tolist()):
            expected = float(data.tensors[table["tensor"]][token, 5])
            assert opened.evaluate(CELL, [lookup["id"], -1, [0, place, 5]]) == pytest.approx(expected, rel=1e-6)
        for row in rows:
            expected = float(logits[0, 1, row])
            assert opened.evaluate(CELL, [projection["id"], -1, [0, 1, row]]) == pytest.approx(expected, rel=1e-4)
        assert opened.evaluate(CELL, [projection["id"], -1, [0, 1, absent]]) is None
        assert opened.evaluate(CELL, [projection["id"], 0, [0, 1, 2]]) is None
        numbers = opened.evaluate("async id => [...await inspector.parameterGradient(id, 'w')]", projection["id"])
        x = data.tensors[projection["inputs"][0]["tensor"]]
        expected = (gradient[0].T @ x[0])[rows].flatten().tolist()
        assert numbers == pytest.approx(expected, rel=1e-4, abs=1e-6)
        for tab in ("forward", "backward"):
            for step in (lookup, projection):
                go(opened, f"{tab}/{step['id']}")
        opened.wait_for_selector("text=Computed from all tokens of the vocabulary")


def test_a_served_page_asks_for_other_rows_and_columns(browser: Any, data: PageData) -> None:
    """Catches a page that loads a whole table for one number, or takes a row for a column."""
    projection = step_of(data, "Project to the vocabulary")
    served = PageData(data.facts | {"pass": "first"}, data.tensors)
    absent = next(
        row for row in range(29) if row not in data.facts["tensors"][projection["inputs"][1]["tensor"]]["rows"]
    )
    asked: list[tuple[str, str]] = []

    def answer(route: Any) -> None:
        tensor_url = re.search(r"tensor/first/(\d+)\?token=secret(?:&(row|column)=(\d+))?$", route.request.url)
        if tensor_url is None:
            route.fulfill(body=render(served, token="secret"), content_type="text/html")
            return
        index, kind, place = tensor_url.groups()
        if kind:
            asked.append((kind, place))
        numbers = (
            data.slice(int(index), ("row", "column").index(kind), int(place)) if kind else data.numbers(int(index))
        )
        route.fulfill(body=numbers.tobytes(), content_type="application/octet-stream")

    context = browser.new_context()
    context.route("**/*", answer)
    opened = context.new_page()
    opened.goto("http://127.0.0.1:1/")
    opened.wait_for_selector("body[data-shown]")
    logit = opened.evaluate(CELL, [projection["id"], -1, [0, 1, absent]])
    gradient = opened.evaluate(CELL, [projection["id"], 0, [0, 1, 2]])
    context.close()
    assert logit == pytest.approx(float(data.tensors[projection["output"]["tensor"]][0, 1, absent]), rel=1e-4)
    expected = float(data.tensors[projection["inputs"][0]["gradient"]][0, 1, 2])
    assert gradient == pytest.approx(expected, rel=1e-4, abs=1e-7)
    assert asked == [("row", str(absent)), ("column", "2")]
