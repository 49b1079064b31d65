import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from inspected import FAMILIES, names, recorded
from opened import NEEDS_BROWSER, go, open_page
from samples import fast_first
from transformer.inspection.gradient_norms import compared_norms
from transformer.inspection.page import render
from transformer.inspection.page_data import PageData, page_data
from transformer.inspection.passes import Example, Pass

pytestmark = NEEDS_BROWSER

CELLS = """async (places) => {
  const all = [];
  for (const [kind, step, input, index] of places) {
    const cell = kind === "forward" ? await inspector.cellForward(step, index)
      : await inspector.cellBackward(step, input, index);
    all.push(String(cell.value));
  }
  return all;
}"""


class OtherKinds(nn.Module):
    """Computes with the kinds of operations that the paper's model lacks, and with broadcasting."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(9, 6)
        self.out = nn.Linear(6, 9)

    def forward(self, ids: Tensor) -> Tensor:
        """Returns logits of two positions for each token."""
        x = self.table(ids)
        gate = F.silu(x) * torch.tanh(x[:, :, :1])
        x = F.gelu(x) - F.gelu(gate, approximate="tanh")
        x = x / (2.0 + x.sum(dim=-1, keepdim=True).mean() * x.mean(dim=0))
        weights = (x @ x.transpose(1, 2)).unflatten(1, (2, 2))
        weights = weights.masked_fill(torch.tensor([False, True, False, False]), float("-inf")).softmax(dim=-1)
        x = torch.cat([(weights @ x[:1, :4].reshape(1, 1, 4, 6)).flatten(1, 2), 3.0 * x], dim=1)
        return self.out(x)


def recorded_other_kinds() -> Pass:
    torch.manual_seed(6)
    other = Example(
        compute=lambda model, inputs: model(inputs["text"])[0], inputs={"text": torch.tensor([[3, 1, 3, 8]])},
        axes={"text": ("B", "T")}, tokens={}, labels=torch.tensor([0, 2, 5, 8, 1, 1, 4, 7]), names=names,
    )  # fmt: skip
    return Pass.record(replace(recorded("transformer").bundle, model=OtherKinds()), other)


@pytest.fixture(scope="module")
def data() -> PageData:
    one = recorded("transformer")
    return page_data(one, compared_norms(one))


@pytest.fixture
def opened(browser: Any, data: PageData, tmp_path: Path) -> Iterator[Any]:
    """Yields the page of the translation, as a file; anything that a browser complains of fails the test."""
    yield from open_page(browser, render(data), tmp_path)


def random_places(data: PageData, count: int) -> tuple[list[list[Any]], list[float], set[str]]:
    """Returns places of numbers forward and backward, as many of each kind of step, what they are, and the kinds."""
    generator = random.Random(11)
    candidates: dict[tuple[str, str], list[tuple[int, int, int]]] = defaultdict(list)
    for step in data.facts["steps"]:
        candidates["forward", step["kind"]].append((step["id"], -1, step["output"]["tensor"]))
        for place, operand in enumerate(step["inputs"]):
            if operand["gradient"] is not None:
                candidates["backward", step["kind"]].append((step["id"], place, operand["gradient"]))
    places: list[list[Any]] = []
    values: list[float] = []
    for direction in ("forward", "backward"):
        kinds = sorted(key for key in candidates if key[0] == direction)
        for number in range(count):
            step, place, tensor = generator.choice(candidates[kinds[number % len(kinds)]])
            index = [generator.randrange(size) for size in data.tensors[tensor].shape]
            places.append([direction, step, place, index])
            values.append(float(data.tensors[tensor][tuple(index)]))
    return places, values, {kind for _, kind in candidates}


@pytest.mark.parametrize("name", [*fast_first(FAMILIES, 1), "other kinds"])
def test_the_page_computes_random_numbers_again(browser: Any, tmp_path: Path, name: str) -> None:
    """Catches arithmetic that is not that of the model, forward or backward, of a family or with broadcasting."""
    data = page_data(recorded_other_kinds() if name == "other kinds" else recorded(name))
    places, values, kinds = random_places(data, 200)
    if name == "other kinds":
        assert kinds >= {"gelu", "silu", "tanh", "sum", "mean", "subtract", "divide", "multiply", "rearrange", "matmul"}
    for page in open_page(browser, render(data), tmp_path):
        for text, value, place in zip(page.evaluate(CELLS, places), values, places, strict=True):
            number = float(text.replace("Infinity", "inf"))
            assert number == value or abs(number - value) <= 1e-5 * (1 + abs(value)), (place, number, value)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_every_step_of_a_family_can_be_shown(browser: Any, tmp_path: Path, name: str) -> None:
    """Catches a kind of step of a family that the page cannot show."""
    data = page_data(recorded(name))
    chosen = {(step["kind"], step["title"]): step["id"] for step in data.facts["steps"]}
    for page in open_page(browser, render(data), tmp_path):
        for tab in ("forward", "backward"):
            for number in chosen.values():
                go(page, f"{tab}/{number}")
        for tab in ("attention", "positions", "parameters"):
            go(page, tab)


def test_gradients_of_parameters_are_those_of_autograd(opened: Any, data: PageData) -> None:
    """Catches a sum over the wrong axis."""
    one = recorded("transformer")
    sums: dict[str, Tensor] = {}
    for step in data.facts["steps"]:
        for operand in step["inputs"]:
            if name := operand["parameter"]:
                place = [step["id"], operand["role"]]
                numbers = opened.evaluate("async place => [...await inspector.parameterGradient(...place)]", place)
                sums[name] = sums.get(name, torch.zeros(())) + torch.tensor(numbers).view(operand["shape"])
    for name, parameter in one.model.named_parameters():
        torch.testing.assert_close(sums[name].double(), one.gradients[id(parameter)], rtol=1e-4, atol=1e-6)


def test_arithmetic_is_written_out_and_its_inputs_are_marked(opened: Any, data: PageData) -> None:
    """Catches a click that shows another number than that of the cell."""
    step = next(step for step in data.facts["steps"] if step["title"] == "Scores")
    go(opened, f"forward/{step['id']}")
    frame = opened.locator(".heat-frame").first
    frame.focus()
    for key in ("Home", "PageUp", "ArrowDown", "ArrowRight", "Enter"):
        frame.press(key)
    value = float(data.tensors[step["output"]["tensor"]][0, 0, 1, 1])
    opened.wait_for_function("() => document.querySelector('.chosen .at').textContent.startsWith('[head 1')")
    shown = opened.locator(".chosen b").inner_text().replace("−", "-")
    assert float(shown) == pytest.approx(value, rel=1e-3)
    assert opened.locator(".terms tbody tr").count() == 4
    assert opened.locator(".sum .number").inner_text() == opened.locator(".chosen b").inner_text()


def test_a_head_can_be_chosen(opened: Any, data: PageData) -> None:
    """Catches maps of which one stays at the first head."""
    step = next(step for step in data.facts["steps"] if step["title"] == "Scores")
    go(opened, f"forward/{step['id']}")
    opened.get_by_role("group", name="Head").get_by_role("button", name="3").click()
    opened.wait_for_function("() => document.querySelector('.chosen .at').textContent.startsWith('[head 3')")


def test_the_path_is_walked_by_keyboard_in_both_directions(opened: Any, data: PageData) -> None:
    """Catches arrow keys that go the wrong way, lose the focus, or leave the path."""
    last = len(data.facts["steps"]) - 1
    opened.keyboard.press("ArrowRight")
    opened.wait_for_selector("body[data-shown='#forward/1']")
    opened.keyboard.press("ArrowLeft")
    opened.wait_for_selector("body[data-shown='#forward/0']")
    opened.get_by_role("tab", name="Forward Propagation").focus()
    opened.keyboard.press("ArrowRight")
    go(opened, f"backward/{last}")
    assert opened.get_by_role("heading", level=2).inner_text().endswith("Loss")
    opened.get_by_role("button", name="Next step").press("Enter")
    opened.wait_for_selector(f"body[data-shown='#backward/{last - 1}']")
    assert opened.evaluate("document.activeElement.getAttribute('aria-label')") == "Next step"


def test_paths_that_meet_add_up(opened: Any, data: PageData) -> None:
    """Catches a residual connection of which one path is left out."""
    step = next(step for step in data.facts["steps"] if len(step["readers"]) == 3)
    index = [0, 1, 2]
    cell = opened.evaluate("([id, index]) => inspector.cellPaths(id, index)", [step["id"], index])
    assert len(cell["terms"]) == 3
    expected = float(data.tensors[step["output"]["gradient"]][tuple(index)])
    assert cell["value"] == pytest.approx(expected, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_the_window(browser: Any, data: PageData, tmp_path: Path, scheme: str) -> None:
    """Catches a table or map that makes the whole page scroll sideways."""
    last = len(data.facts["steps"]) - 1
    for page in open_page(browser, render(data), tmp_path, color_scheme=scheme):
        for width in (390, 1280):
            page.set_viewport_size({"width": width, "height": 844})
            for address in ("forward/0", f"forward/{last}", "backward/4", "attention", "positions", "parameters"):
                go(page, address)
                assert page.evaluate("document.documentElement.scrollWidth") <= width, (address, width)


def test_tokens_cannot_become_markup(browser: Any, data: PageData, tmp_path: Path) -> None:
    """Catches a token that ends the script or runs one."""
    hostile = "</script><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"
    facts = data.facts | {"labels": [hostile] * len(data.facts["labels"])}
    for page in open_page(browser, render(PageData(facts, data.tensors)), tmp_path):
        assert hostile in page.locator("#sentence").inner_text()
        go(page, f"forward/{len(facts['steps']) - 1}")
        assert page.title() != "taken"
        assert page.locator("img").count() == 0


def test_what_is_not_embedded_is_named(browser: Any, data: PageData, tmp_path: Path) -> None:
    """Catches a page that breaks, or shows zeros, where a tensor does not fit into it."""
    for page in open_page(browser, render(data, limit=2000), tmp_path):
        for address in ("forward/0", "backward/0", "forward/4", "attention"):
            go(page, address)
            assert "Not in this file" in page.locator("#main").inner_text()


def test_a_served_page_asks_for_tensors_with_its_token(browser: Any, data: PageData) -> None:
    """Catches numbers that are asked for without the token, or that are decoded in another order."""
    served = replace(data, facts=data.facts | {"pass": "first"})
    html, asked = render(served, token="secret", limit=0), []

    def answer(route: Any) -> None:
        path = route.request.url.removeprefix("http://127.0.0.1:1/")
        if not path:
            route.fulfill(body=html, content_type="text/html")
            return
        asked.append(path)
        number = int(path.removeprefix("tensor/first/").removesuffix("?token=secret"))
        route.fulfill(body=data.numbers(number).tobytes(), content_type="application/octet-stream")

    context = browser.new_context()
    context.route("**/*", answer)
    page = context.new_page()
    page.goto("http://127.0.0.1:1/")
    page.wait_for_selector("body[data-shown]")
    step = data.facts["steps"][4]
    value = page.evaluate("id => inspector.cellForward(id, [0, 1, 2])", 4)["value"]
    context.close()
    assert value == pytest.approx(float(data.tensors[step["output"]["tensor"]][0, 1, 2]), rel=1e-4)
    assert f"tensor/first/{step['inputs'][0]['tensor']}?token=secret" in asked


def test_changes_open_another_pass_at_the_same_step(browser: Any, data: PageData) -> None:
    """Catches controls that send nothing, and a page that goes on to show the pass before."""
    facts: dict[str, Any] = {**data.facts, "pass": "first", "text": "a b", "target": None}
    asked: list[Any] = []

    def answer(route: Any) -> None:
        path = route.request.url.removeprefix("http://127.0.0.1:1/")
        if path.startswith("pass?token=secret"):
            asked.append(route.request.post_data_json)
            route.fulfill(json=facts | {"pass": "second"})
        elif path.startswith("tensor"):
            route.fulfill(body=data.numbers(int(path.split("/")[2].split("?")[0])).tobytes())
        else:
            shown = facts | ({"loss": facts["loss"] | {"value": 7.5}} if "pass=second" in path else {})
            page = render(replace(data, facts=shown), token="secret", limit=0)
            route.fulfill(body=page, content_type="text/html")

    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.route("**/*", answer)
    page = context.new_page()
    page.goto("http://127.0.0.1:1/#forward/3")
    page.get_by_text("What if").click()
    page.get_by_role("checkbox", name=facts["tokens"]["S"][1], exact=True).first.check()
    page.get_by_label("Temperature").fill("2")
    page.get_by_role("button", name="Compute").click()
    page.wait_for_url("**/?token=secret&pass=second#forward/3")
    page.wait_for_selector("body[data-shown='#forward/3']")
    assert "7.5" in page.locator("#sentence").inner_text()
    context.close()
    assert [(one["mask_source"], one["temperature"], one["text"]) for one in asked] == [([1], 2, "a b")]
