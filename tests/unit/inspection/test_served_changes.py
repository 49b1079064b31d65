import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from opened import NEEDS_BROWSER, go
from transformer.blocks import DecoderLayer, causal_mask, padding_mask
from transformer.bundle import Bundle, load_bundle
from transformer.inspection.server import Inspector, InspectorServer
from transformer.transformer import Transformer

pytestmark = NEEDS_BROWSER

MUTED = "decoder.layers.0.cross_attention_block"
WEIGHTS = """async (module) => {
  const entry = inspector.facts.attention.find((one) => one.module === module);
  const values = [...await inspector.tensor(entry.tensor)], heads = inspector.facts.tensors[entry.tensor].shape[1];
  const size = values.length / heads;
  return Array.from({ length: heads }, (_, head) => values.slice(head * size, (head + 1) * size));
}"""


@pytest.fixture
def bundle(tiny_run: Path) -> Bundle:
    """Returns a model whose every head has a large effect, whatever training made of it."""
    loaded = load_bundle(tiny_run)
    with torch.no_grad():
        for layer in cast("Transformer", loaded.model).decoder.layers:
            cast("DecoderLayer", layer).cross_attention_block.W_o.weight *= 16
    return loaded


@pytest.fixture
def opened(browser: Any, bundle: Bundle) -> Iterator[Any]:
    """Yields the served page of one pass, with the controls for changes unfolded."""
    with InspectorServer(Inspector(bundle, "one two three", "3 2 1")) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        page = context.new_page()
        page.goto(server.address)
        page.get_by_text("What if").click()
        yield page
        context.close()
        server.shutdown()


def logits_and_labels(bundle: Bundle, masked: int | None = None, muted: int | None = None) -> tuple[Tensor, Tensor]:
    """Returns what the model itself computes, with zero columns of W^O for a muted head."""
    assert bundle.tokenizers is not None
    source, target = bundle.tokenizers.source, bundle.tokenizers.target
    ids = torch.tensor([[*source.encode("one two three"), source.special_tokens.eos]])
    labels = torch.tensor([*target.encode("3 2 1"), target.special_tokens.eos])
    shifted = torch.tensor([[target.special_tokens.bos, *labels[:-1].tolist()]])
    mask = padding_mask(ids, -1)
    if masked is not None:
        mask[..., masked] = False
    model = bundle.model.eval()
    weight = model.get_submodule(MUTED).get_parameter("W_o.weight").data
    whole, d_k = weight.clone(), weight.size(1) // model.get_submodule(MUTED).h  # pyright: ignore[reportOperatorIssue, reportUnknownVariableType]
    if muted is not None:
        weight[:, muted * d_k : (muted + 1) * d_k] = 0.0
    with torch.no_grad():
        logits = model(ids, shifted, mask, causal_mask(len(labels)))[0]
    weight.copy_(whole)
    return logits, labels


def loss_of(bundle: Bundle, logits: Tensor, labels: Tensor) -> float:
    smoothing = bundle.provenance["recipe"]["training"]["label_smoothing"]
    return float(F.cross_entropy(logits, labels, label_smoothing=smoothing))


def compute(page: Any) -> None:
    before = page.url
    page.get_by_role("button", name="Compute").click()
    page.wait_for_url(lambda url: url != before and "pass=" in url)
    page.wait_for_selector("body[data-shown]")


def shown_loss(page: Any) -> float:
    return float(page.locator("#sentence b").inner_text())


def test_a_muted_head_changes_the_loss(opened: Any, bundle: Bundle) -> None:
    """Catches a control that mutes another head, layer or attention, or none."""
    plain = loss_of(bundle, *logits_and_labels(bundle))
    assert shown_loss(opened) == pytest.approx(plain, rel=1e-3)
    heads = opened.locator(".heads", has_text="Cross-attention, layer 1")
    heads.get_by_label("head 2").check()
    compute(opened)
    expected = loss_of(bundle, *logits_and_labels(bundle, muted=1))
    assert expected != pytest.approx(plain, rel=3e-3)
    assert shown_loss(opened) == pytest.approx(expected, rel=1e-3)
    shown = opened.locator(".changed").inner_text()
    assert "muted: cross-attention, layer 1, head 2. Loss" in shown
    assert float(shown.rpartition(" ")[2]) == pytest.approx(plain, rel=1e-3)
    weights = opened.evaluate(WEIGHTS, MUTED)
    assert max(weights[1]) == 0 < max(weights[0])
    go(opened, "attention")
    opened.get_by_role("button", name="cross-attention, layer 1, head 2").click()
    assert "This head is muted" in opened.locator(".detail").inner_text()


def test_a_masked_source_token_changes_the_loss(opened: Any, bundle: Bundle) -> None:
    """Catches a control that masks another token, or masks it in the encoder alone."""
    opened.locator("input[name=mask-1]").check()
    compute(opened)
    expected = loss_of(bundle, *logits_and_labels(bundle, masked=1))
    assert expected != pytest.approx(loss_of(bundle, *logits_and_labels(bundle)), rel=3e-3)
    assert shown_loss(opened) == pytest.approx(expected, rel=1e-3)


def test_temperature_is_part_of_the_pass(opened: Any, bundle: Bundle) -> None:
    """Catches a temperature that multiplies, or that the loss, its gradient or the path of steps leave out."""
    opened.get_by_label("Temperature").fill("4")
    compute(opened)
    logits, labels = logits_and_labels(bundle)
    assert shown_loss(opened) == pytest.approx(loss_of(bundle, logits / 4, labels), rel=1e-3)
    steps = opened.evaluate("inspector.facts.steps.map(({ title }) => title)")
    assert steps[-3:] == ["Divide by the temperature", "Softmax of the logits", "Loss"]
    logits.requires_grad_(True)
    smoothing = bundle.provenance["recipe"]["training"]["label_smoothing"]
    F.cross_entropy(logits / 4, labels, label_smoothing=smoothing).backward()
    value = opened.evaluate("id => inspector.cellBackward(id, 0, [1, 5])", len(steps) - 3)["value"]
    assert logits.grad is not None
    assert value == pytest.approx(float(logits.grad[1, 5]), rel=1e-3)
    logits = logits.detach()
    expected = (logits / 4).softmax(dim=-1).max(dim=-1).values.tolist()
    shown = opened.evaluate("inspector.facts.probabilities.map(([best]) => best.p)")
    assert shown == pytest.approx(expected, rel=1e-4)


def test_a_server_that_has_ended_is_named(opened: Any, bundle: Bundle) -> None:
    """Catches a page that does nothing, or an uncaught error, once the server has gone."""
    opened.route("**/tensor/**", lambda route: route.abort())
    opened.route("**/pass?*", lambda route: route.abort())
    opened.evaluate("location.hash = 'forward/9'")
    opened.locator("#main [role=alert]", has_text="The server does not answer").wait_for()
    opened.get_by_role("button", name="Compute").click()
    opened.locator("form [role=alert]", has_text="The server does not answer").wait_for()
