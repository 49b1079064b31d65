"""Figures 3 to 5 of the paper with the models at hand: the counted shares, the sentences shown, and their pages."""

import json
import re
import runpy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from opened import NEEDS_BROWSER, open_page
from samples import ROOT
from transformer.bundle import Bundle
from transformer.inspection.page import render
from transformer.inspection.page_data import attention_data, page_data
from transformer.inspection.passes import record_pass
from transformer.pipelines.auto import read_model

HEADS: dict[str, Any] = runpy.run_path(str(ROOT / "benchmarks" / "translation" / "heads.py"))
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "explanation" / "interpretability.md"
ENCODER = "Encoder self-attention"
STUDIES = {
    "long-distance": ("de-en", "heads-particles-de-en", "particle_shares", ("sieht", "aus")),
    "anaphora": ("en-de", "heads-pronouns-en-de", "pronoun_shares", ("she", "Tom")),
    "heads": ("en-de", "heads-en-de", "neighbour_shares", None),
}
"""By the name of the page: model, results, function that computes the shares, and the words of the outlined cell."""


@cache
def model(name: str) -> Bundle:
    return read_model(ROOT / "models" / name / f"transformer_model_{name.replace('-', '_')}" / "bundle", None)


def typical(results: str) -> dict[str, Any]:
    [path] = RESULTS.glob(f"*/{results}.json")  # on whatever machine they were counted
    return json.loads(path.read_text(encoding="utf-8"))["typical"]


def address(page: str) -> str:
    """Returns the address at which the documentation opens a page."""
    [address] = re.findall(rf"\{{inspector\}} {page}\.html#(\S+)", PAGE.read_text(encoding="utf-8"))
    return address


@pytest.mark.parametrize("page", STUDIES)
def test_the_typical_sentence_has_the_counted_share(page: str) -> None:
    """Catches results of another model or of other rules, and a head in the page that was not the one counted."""
    name, results, shares, words = STUDIES[page]
    facts, bundle = typical(results), model(name)
    computed = HEADS[shares](bundle, facts["sentence"]).shares
    for kind, one in facts["shares"].items():
        assert computed[kind][one["layer"] - 1, one["head"] - 1].item() == pytest.approx(
            one["of the sentence"], abs=2e-3
        )
    first = next(iter(facts["shares"].values()))
    _, _, layer, head, *cell = address(page).split("/")
    assert (int(layer), int(head)) == (first["layer"], first["head"])
    if words:
        pieces = bundle.tokenizers.source.pieces(HEADS["encode"](bundle, facts["sentence"]))
        assert tuple(pieces[int(place)].removeprefix("▁") for place in cell) == words


def test_a_pronoun_attends_to_tom_whatever_its_gender() -> None:
    """Catches weights in the text that the model does not have."""
    facts = typical("heads-pronouns-en-de")
    head = facts["shares"]["names"]
    text = PAGE.read_text(encoding="utf-8")
    for pronoun, pattern in (("she", r"\*she\* gives (0\.\d\d)"), ("he", r"\*he\* in its place gives (0\.\d\d)")):
        [share] = re.findall(pattern, text)
        words, weights = HEADS["word_attention"](model("en-de"), facts["sentence"].replace("she", pronoun))
        shown = weights[head["layer"] - 1, head["head"] - 1, words.index(pronoun), words.index("Tom")].item()
        assert shown == pytest.approx(float(share), abs=6e-3)


def test_rows_of_the_tables_name_the_largest_shares() -> None:
    """Catches a row of another head than the one with the largest share, and shares in the columns of others."""
    heads = [
        {"layer": 1, "head": 1, "names": 0.2, "other name": 0.126, "standard deviation": {}},
        {"layer": 2, "head": 7, "names": 0.75, "other name": 0.1, "standard deviation": {}},
    ]
    assert HEADS["table_rows"]({"heads": heads, "even attention": {"names": 0.5, "other name": 0.25}}) == [
        "| layer, head | names | other name |", "| 2, 7 | **0.75** | 0.10 |", "| 1, 1 | 0.20 | **0.13** |",
        "| the same weight for all | 0.50 | 0.25 |",
    ]  # fmt: skip


def test_words_of_several_tokens_are_read_as_one() -> None:
    """Catches weights that are averaged over the tokens that are attended to, so that rows do not sum to 1."""
    words, weights = HEADS["word_attention"](model("de-en"), "Das Donaudampfschiff legt ab.")
    assert words == ["Das", "Donaudampfschiff", "legt", "ab", ".", "[EOS]"]
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(6, 8, 6))


def test_rules_find_the_sentences_that_the_page_describes() -> None:
    """Catches verbs without a particle, auxiliaries, and pronouns with one candidate."""
    is_separated, has_pronoun = HEADS["is_separated"], HEADS["has_pronoun"]
    particles = HEADS["PARTICLES"]
    assert is_separated("Tom sieht fast wie ein Mädchen aus.", particles)
    assert is_separated("Tom liest fast nie ein Buch.", None)
    for line in (
        "Tom ist fast nie allein aus.",
        "Tom sieht gut aus.",
        "Tom liest fast nie ein Buch.",
        "Er sagt, er kommt an.",
    ):
        assert not is_separated(line, particles)
    assert has_pronoun("Tom refused to give Mary what she wanted.")
    for line in (
        "Tom knew she was there.",
        "He told Tom about Mary.",
        "Tom told Mary he loved her.",
        "Tom gave Mary her hat.",
    ):
        assert not has_pronoun(line)


@NEEDS_BROWSER[0]
@NEEDS_BROWSER[1]
def test_a_page_of_one_kind_of_attention_opens_at_a_head(browser: Any, tmp_path: Path) -> None:
    """Catches an address whose head is ignored, views of steps that the page lacks, and heads in the other theme."""
    sentence = typical("heads-particles-de-en")["sentence"]
    html = render(attention_data(page_data(record_pass(model("de-en"), sentence, "Tom looks.")), ENCODER))
    assert len(html) < 300_000
    for opened in open_page(browser, html, tmp_path, address=address("long-distance")):
        detail = opened.locator(".detail")
        assert "layer 5, head 3" in detail.inner_text()
        assert detail.locator(".status").inner_text() == "▁sieht attends to ▁aus: 0.4189"
        assert opened.locator(".thumb").count() == 48
        assert not opened.locator("#tabs").is_visible()
        colours = "document.querySelector('.thumb canvas').toDataURL()"
        light = opened.evaluate(colours)
        opened.locator("#theme").click()
        assert opened.evaluate(colours) != light
        opened.get_by_role("button", name=f"{ENCODER}, layer 1, head 1").click()
        opened.locator(".detail", has_text="layer 1, head 1").wait_for()
