"""Translator: order and number of lines, long and empty lines."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from samples import digit_pairs
from substitution import substitute
from transformer.bundle import Bundle
from transformer.decoding import GREEDY, Hypothesis, Request, Sampling, Search
from transformer.errors import BundleError, ConfigError, DataError
from transformer.models.transformer.config import TransformerConfig
from transformer.pipelines.auto import load, make_translator
from transformer.pipelines.translation.config import BATCH_TOKENS
from transformer.pipelines.translation.search import SegmentSearcher
from transformer.pipelines.translation.segment import Segmenter
from transformer.pipelines.translation.terminology import Terminology
from transformer.pipelines.translation.translator import Translator


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[int]]:
    """The sources that were searched for; each is its own translation, which exposes everything around the search."""
    sources: list[Sequence[int]] = []

    def echo(_: Any, requests: Iterator[Request], *__: Any, **___: Any) -> Iterator[tuple[int, list[Hypothesis]]]:
        for index, request in enumerate(requests):
            sources.append(request.source)
            finished = len(request.source) != 4
            yield index, [Hypothesis(request.source[:-1], -1.0, finished=finished, ranking_score=-1.0)]

    substitute(monkeypatch, "search.search_each", echo)
    return sources


@pytest.fixture
def echo(tiny_run: Path, searched: list[Sequence[int]]) -> Translator:
    translator = load(tiny_run)
    return Translator(translator.model, translator.tokenizers, max_source_tokens=12, batch_tokens=40)


ODD = [
    "",
    "one two",
    "   ",
    "three",
    "abcd\x00efg",
    "nine\u2028xyz",
    "zero " * 30,
    "[EOS] </s>",
    "🙂",
    "one. two. three",
]


def test_n_lines_in_n_lines_out_in_order(echo: Translator) -> None:
    """Catches lines lost, moved by sorting, or invented for empty input."""
    translations = echo.translations(ODD)
    expected = [line.replace("\x00", "") for line in ODD]  # the tokenizer removes controls
    assert [" ".join(t.text.split()) for t in translations] == [" ".join(line.split()) for line in expected]
    assert (translations[0].text, translations[2].text) == ("", "   ")
    assert echo.translate([]) == []
    with pytest.warns(UserWarning, match="line 7: longer than 12 tokens"):
        assert echo.translate(ODD[:7]) == [t.text for t in translations[:7]]
    assert echo.translate("one two") == echo("one two") == "one two"
    with pytest.raises(DataError, match="lines is a single text and would be read letter by letter"):
        echo.translations("one two")


def test_long_lines_are_split_and_flagged_never_cut(echo: Translator, searched: list[Sequence[int]]) -> None:
    """Catches text that is dropped at the model's limit."""
    clean, cut = echo.translations(["zero one two. three four. five six seven. eight", "one " * 40])
    assert clean.text == "zero one two. three four. five six seven. eight"
    assert clean.flags == ()
    assert cut.text.split() == ["one"] * 40
    assert cut.flags == ("longer than 12 tokens without a sentence end; cut within a sentence",)
    assert max(map(len, searched)) <= 12
    assert all(tokens[-1] == 2 for tokens in searched)


def test_an_unfinished_translation_is_flagged(echo: Translator) -> None:
    """Catches a translation that was cut at the limit and looks complete."""
    texts = [text for text in ("one", "two", "x", "y 1", "a b c") if len(echo.tokenizers.source.encode(text)) == 3]
    assert texts
    assert echo.translations(texts[:1])[0].flags == ("the translation did not end and was cut at the limit",)


def test_line_ends_in_a_translation_become_spaces(echo: Translator) -> None:
    """Catches a model that writes a line feed and shifts every later line."""
    assert echo.translate(["a\rb"]) == ["a b"]


def test_batches_do_not_change_translations(tiny_run: Path) -> None:
    """Catches padding or order that leaks into the result: alone, together, reversed; scores within 1e-4 a token."""
    translator = load(tiny_run)
    lines = ["one two three", "nine", "four four four four four", "", "seven zero"]
    together = translator.translations(lines)
    reversed_ = translator.translations(lines[::-1])[::-1]
    alone = [translator.translations([line])[0] for line in lines]
    for translations in (reversed_, alone):
        assert [t.text for t in translations] == [t.text for t in together]
        for actual, expected in zip(translations, together, strict=True):
            assert actual.score == pytest.approx(expected.score, abs=1e-4 * (len(expected.text) + 1))


def test_a_beam_finds_what_scores_higher(tiny_run: Path) -> None:
    """Catches a beam that is not passed on, or hypotheses mixed up between the lines of a batch."""
    lines = [source for source, _ in digit_pairs(20, seed=5)]
    greedy, wide = load(tiny_run).translations(lines), load(tiny_run, search=Search(6, lambda length: 1.0))
    translations = wide.translations(lines)
    alone = [wide.translations([line])[0] for line in lines]
    assert [translation.text for translation in translations] == [translation.text for translation in alone]
    gains = [beam.score - single.score for beam, single in zip(translations, greedy, strict=True)]
    assert sum(gains) > 1e-2
    assert sum(gain < -1e-4 for gain in gains) <= 1


def test_progress_is_reported(echo: Translator) -> None:
    """Catches a progress bar that never reaches its end, or goes beyond it where a line is split."""
    done: list[int] = []
    echo.translations(["one", "zero " * 30, "two", ""], done.append)
    assert done == [1, 1, 1, 1]


def test_only_models_that_translate_become_translators(echo: Translator) -> None:
    """Catches an attribute error deep inside a search."""
    tokenizers = echo.tokenizers
    bundle = Bundle(TransformerConfig(d_model=8, h=2), torch.nn.Linear(2, 2), tokenizers)
    with pytest.raises(BundleError, match="a transformer model does not translate; give an encoder-decoder"):
        make_translator(bundle)


def test_best_translations_with_scores_and_tokens(tiny_run: Path) -> None:
    """Catches alternatives out of order, scores of another alternative, and pieces that do not spell the text."""
    lines = ["one two three", "", "seven nine"]
    translator = load(tiny_run, search=Search(4, n_best=3))
    for line, translation in zip(lines, translator.translations(lines), strict=True):
        assert translation.text == translation.alternatives[0].text
        assert len(translation.alternatives) == (3 if line else 1)
        values = [alternative.value for alternative in translation.alternatives]
        assert values == sorted(values, reverse=True)
        for alternative in translation.alternatives:
            assert "".join(alternative.pieces).replace("▁", " ").strip() == alternative.text.strip()
            length = len(alternative.pieces) + alternative.finished
            assert alternative.value == pytest.approx(alternative.score / ((5 + length) / 6) ** 0.6 if line else 0.0)


def test_prefixes_are_kept_line_by_line(tiny_run: Path) -> None:
    """Catches prefixes of other lines, and missing prefixes."""
    translator = load(tiny_run)
    lines, prefixes = ["one two", "three", "four"], ["9 9", "", "8"]
    texts = [translation.text for translation in translator.translations(lines, prefixes=prefixes)]
    assert [text[: len(prefix)] for text, prefix in zip(texts, prefixes, strict=True)] == prefixes
    assert texts[1] == translator.translate(["three"])[0]
    with pytest.raises(DataError, match="3 lines, but prefixes for 1; give one prefix per line"):
        translator.translations(lines, prefixes=["9"])


def test_a_line_draws_the_same_in_any_chunk(tiny_run: Path) -> None:
    """Catches samples that depend on how a text is divided into chunks."""
    lines = ["one two three", "seven", "four five", "one two three"]
    translator = load(tiny_run, search=Search(sampling=Sampling(temperature=2.0)))
    together = [translation.text for translation in translator.translations(lines)]
    apart = [translator.translations([line], first_line=i)[0].text for i, line in enumerate(lines)]
    assert together == apart
    assert together[0] != together[3], "the same line at another index uses other random numbers"


def test_options_of_a_call_hold_for_it_alone(tiny_run: Path) -> None:
    """Catches a call that changes the translator, loses a setting, or bans what the default terminology bans."""
    banning = load(tiny_run, search=Search(3), terminology=Terminology(banned=["1"]), workers=1)
    search = Search(2, min_tokens=3)
    changed = banning.begin(["one"], search=search, terminology=Terminology()).options
    assert (changed.search.banned, changed.search.beam, changed.batch_tokens) == ((), 2, 2 * BATCH_TOKENS)
    assert changed.description == banning.description
    assert banning.begin(["one"], search=GREEDY).options.batch_tokens == BATCH_TOKENS
    assert banning.begin(["one"], search=Search(banned=[[7, 8]])).options.search.banned[0] == (7, 8)  # pyright: ignore
    assert banning.begin(["one"], search=GREEDY).options.search.banned == banning.search.banned != ()
    lines = [source for source, _ in digit_pairs(9)]
    expected = load(tiny_run, search=search, workers=1).translations(lines)
    translations = banning.translations(lines, search=search, terminology=Terminology())
    assert [translation.alternatives for translation in translations] == [
        translation.alternatives for translation in expected
    ]
    everywhere = load(tiny_run, max_source_tokens=10**6)
    assert banning.max_source_tokens < everywhere.max_source_tokens == everywhere.model.src_pos.seq_len


def test_options_cannot_be_set_from_outside(echo: Translator, searched: list[Sequence[int]]) -> None:
    """Catches an option that is set without effect, and a task that can no longer be set as the documentation said."""
    for name in ("workers", "deterministic", "search", "terminology", "batch_tokens", "max_source_tokens"):
        with pytest.raises(AttributeError):
            setattr(echo, name, getattr(echo, name))
    with pytest.warns(DeprecationWarning, match="setting Translator.task is deprecated"):
        echo.task = "one "
    assert echo.task == echo.segmenter.config.task == "one "
    (translation,) = echo.translations(["two. three. four. five. six. seven. eight"])
    lead = echo.tokenizers.source.encode("one")
    assert len(searched) > 1
    assert all(list(source[: len(lead)]) == lead for source in searched)
    assert len(translation.sources) == len(searched)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 0}, "workers=0 is below 1; choose 1"),
        ({"workers": "2"}, "workers='2' has the type str; give int"),
        ({"deterministic": "no"}, "deterministic='no' has the type str; give bool"),
        ({"batch_tokens": -1}, "batch_tokens=-1 is below 0; give a positive number, or 0 for the default"),
        ({"max_target_tokens": -3}, "max_target_tokens=-3 is below 0"),
        ({"search": Search(min_tokens=20), "max_target_tokens": 20}, "min_tokens=20 exceeds 19; choose fewer"),
        ({"task": "a: ", "terminology": Terminology(protected=["tags"])}, "which a task shifts; leave one out"),
        ({"task": "a: ", "terminology": Terminology(glossary=[("a", "b")])}, "which a task shifts; leave one out"),
    ],
)
def test_invalid_options_are_refused_before_the_model_is_read(options: dict[str, Any], message: str) -> None:
    """Catches an invalid option or combination that is only noticed, or ignored, after the model has been read."""
    with pytest.raises(ConfigError, match=message):
        load("no such folder", **options)


def test_an_unknown_option_is_refused(tiny_run: Path) -> None:
    """Catches a misspelt option that has no effect."""
    with pytest.raises(TypeError, match="unexpected keyword argument 'deterministc'"):
        load(tiny_run, deterministc=True)


def test_a_lost_line_is_an_error(echo: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a segmenter that loses a line, by which all further lines would have the translations of others."""
    segment = Segmenter.segment
    monkeypatch.setattr(Segmenter, "segment", lambda self, lines, *rest: segment(self, lines, *rest)[1:])
    with pytest.raises(RuntimeError, match="3 lines became 2 whole translations"):
        echo.translations(["one", "two", "three"])


def test_a_lost_segment_is_an_error(echo: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a searcher that loses a segment, by which the last line would be empty."""
    finish = SegmentSearcher.finish
    monkeypatch.setattr(SegmentSearcher, "finish", lambda self, *rest: finish(self, *rest)[:-1])
    with pytest.raises(RuntimeError, match="3 lines became 2 whole translations"):
        echo.translations(["one", "two", "three"])
