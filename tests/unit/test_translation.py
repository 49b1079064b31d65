"""Text to text: order, numbers of lines, long and empty lines."""

from pathlib import Path
from typing import Any

import pytest
import torch

from transformer.bundle import Bundle
from transformer.decoding import Beam, Hypothesis
from transformer.errors import BundleError, DataError
from transformer.loading import load, make_translator
from transformer.models.transformer.config import TransformerConfig
from transformer.translation import EXTRA_TOKENS, Translator


class Echo(Translator):
    """A translator whose search gives the source back, so that what happens around the search can be seen."""

    def _search(self, sources: list[list[int]]) -> list[Hypothesis]:
        self.searched = [*getattr(self, "searched", []), *sources]
        return [Hypothesis(tokens[:-1], -1.0, finished=len(tokens) != 4) for tokens in sources]


@pytest.fixture
def echo(tiny_run: Path) -> Echo:
    translator = load(tiny_run)
    return Echo(translator.model, translator.tokenizers, max_source_tokens=12, batch_tokens=40)


ODD = ["", "one two", "   ", "three", "a\x00b", "nine\u2028x", "zero " * 30, "[EOS] </s>", "🙂", "one. two. three"]


def test_n_lines_in_n_lines_out_in_order(echo: Echo) -> None:
    """Catches lines lost, moved by sorting, or invented for empty input."""
    translations = echo.translations(ODD)
    assert [" ".join(t.text.split()) for t in translations] == [" ".join(line.split()) for line in ODD]
    assert translations[0].text == translations[2].text == ""
    assert echo.translate([]) == []
    with pytest.warns(UserWarning, match="line 7: longer than 12 tokens"):
        assert echo.translate(ODD[:7]) == [t.text for t in translations[:7]]
    with pytest.raises(DataError, match="lines is one text, and would be translated letter by letter"):
        echo.translate("one two")


def test_long_lines_are_split_and_flagged_never_cut(echo: Echo) -> None:
    """Catches text that is dropped at the model's limit."""
    clean, cut = echo.translations(["zero one two. three four. five six seven. eight", "one " * 40])
    assert clean.text == "zero one two. three four. five six seven. eight"
    assert clean.flags == ()
    assert cut.text.split() == ["one"] * 40
    assert cut.flags == ("longer than 12 tokens without a sentence end; cut within it",)
    assert max(map(len, echo.searched)) <= 12
    assert all(tokens[-1] == 2 for tokens in echo.searched)


def test_an_unfinished_translation_is_flagged(echo: Echo) -> None:
    """Catches a translation that was cut at the limit and looks whole."""
    texts = [text for text in ("one", "two", "x", "y 1", "a b c") if len(echo.tokenizers.source.encode(text)) == 3]
    assert texts
    assert echo.translations(texts[:1])[0].flags == ("the translation did not end and was cut at the limit",)


def test_line_ends_in_a_translation_become_spaces(echo: Echo) -> None:
    """Catches a model that writes a line feed and shifts every later line."""
    assert echo.translate(["a\rb"]) == ["a b"]


def test_batches_do_not_change_translations(tiny_run: Path) -> None:
    """Catches padding or order that leaks into the result: alone, together, reversed; scores within 1e-4 a token."""
    translator = load(tiny_run)
    lines = ["one two three", "nine", "four four four four four", "", "seven zero"]
    together = translator.translations(lines)
    reversed_ = translator.translations(lines[::-1])[::-1]
    alone = [translator.translations([line])[0] for line in lines]
    for other in (reversed_, alone):
        assert [t.text for t in other] == [t.text for t in together]
        for ours, theirs in zip(together, other, strict=True):
            assert ours.score == pytest.approx(theirs.score, abs=1e-4 * (len(ours.text) + 1))


def test_a_beam_finds_what_scores_higher(tiny_run: Path) -> None:
    """Catches a beam that is not handed on, or hypotheses mixed up between the lines of a batch."""
    lines = ["one two three", "seven", "", "nine eight seven six five", "zero zero"]
    greedy, wide = load(tiny_run).translations(lines), load(tiny_run, beam=Beam(6, lambda length: 1.0))
    found = wide.translations(lines)
    alone = [wide.translations([line])[0] for line in lines]
    assert [translation.text for translation in found] == [translation.text for translation in alone]
    assert all(ours.score >= theirs.score - 1e-4 for ours, theirs in zip(found, greedy, strict=True))
    assert any(ours.score > theirs.score + 1e-4 for ours, theirs in zip(found, greedy, strict=True))


def test_limit_is_input_plus_fifty_within_the_positions(tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a limit that ignores the source's length, or exceeds the target positions."""
    limits: list[int] = []

    def no_search(*arguments: Any) -> list[Hypothesis]:
        limit: torch.Tensor = arguments[3]
        limits.extend(limit.tolist())
        return [Hypothesis([], 0.0, finished=True) for _ in limit]

    monkeypatch.setattr("transformer.translation.greedy", no_search)
    translator = load(tiny_run)
    translator.translate(["one"])
    tokens = len(translator.tokenizers.source.encode("one")) + 1
    assert limits == [tokens + EXTRA_TOKENS]
    translator.model.tgt_pos.seq_len = 20
    translator.translate(["one"])
    assert limits[1] == 20


def test_progress_is_told(echo: Echo) -> None:
    """Catches a progress bar that never reaches its end."""
    done: list[int] = []
    echo.translations(["one", "two", ""], done.append)
    assert sum(done) == 2


def test_only_models_that_translate_become_translators(echo: Echo) -> None:
    """Catches an attribute error deep inside a search."""
    tokenizers = echo.tokenizers
    bundle = Bundle(TransformerConfig(d_model=8, h=2), torch.nn.Linear(2, 2), tokenizers)
    with pytest.raises(BundleError, match="a transformer model does not translate; give an encoder-decoder"):
        make_translator(bundle)
