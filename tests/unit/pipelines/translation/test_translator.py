"""Translator: order and number of lines, long and empty lines."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from samples import digit_pairs
from substitution import substitute
from transformer.blocks import causal_mask
from transformer.bundle import Bundle
from transformer.decoding import Hypothesis, Request, Sampling, Search
from transformer.errors import BundleError, ConfigError, DataError
from transformer.models.transformer.config import TransformerConfig
from transformer.pipelines.auto import load, make_translator
from transformer.pipelines.translation.results import Segment, longest_first
from transformer.pipelines.translation.translator import EXTRA_TOKENS, Translator


class Echo(Translator):
    """A translator whose search returns the source, which exposes everything around the search."""

    def _search(self, segments: Sequence[Segment], search: Search) -> Iterator[tuple[int, list[Hypothesis]]]:
        sources = [segments[index].tokens for index in longest_first(segments)]
        self.searched = [*getattr(self, "searched", []), *sources]
        for rank, tokens in enumerate(sources):
            yield rank, [Hypothesis(tokens[:-1], -1.0, finished=len(tokens) != 4, ranking_score=-1.0)]


@pytest.fixture
def echo(tiny_run: Path) -> Echo:
    translator = load(tiny_run)
    echo = Echo(translator.model, translator.tokenizers, max_source_tokens=12)
    echo.batch_tokens = 40
    return echo


ODD = ["", "one two", "   ", "three", "a\x00b", "nine\u2028x", "zero " * 30, "[EOS] </s>", "🙂", "one. two. three"]


def test_n_lines_in_n_lines_out_in_order(echo: Echo) -> None:
    """Catches lines lost, moved by sorting, or invented for empty input."""
    translations = echo.translations(ODD)
    assert [" ".join(t.text.split()) for t in translations] == [" ".join(line.split()) for line in ODD]
    assert translations[0].text == translations[2].text == ""
    assert echo.translate([]) == []
    with pytest.warns(UserWarning, match="line 7: longer than 12 tokens"):
        assert echo.translate(ODD[:7]) == [t.text for t in translations[:7]]
    with pytest.raises(DataError, match="lines is a single text and would be translated letter by letter"):
        echo.translate("one two")


def test_long_lines_are_split_and_flagged_never_cut(echo: Echo) -> None:
    """Catches text that is dropped at the model's limit."""
    clean, cut = echo.translations(["zero one two. three four. five six seven. eight", "one " * 40])
    assert clean.text == "zero one two. three four. five six seven. eight"
    assert clean.flags == ()
    assert cut.text.split() == ["one"] * 40
    assert cut.flags == ("longer than 12 tokens without a sentence end; cut within a sentence",)
    assert max(map(len, echo.searched)) <= 12
    assert all(tokens[-1] == 2 for tokens in echo.searched)


def test_an_unfinished_translation_is_flagged(echo: Echo) -> None:
    """Catches a translation that was cut at the limit and looks complete."""
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


def test_limit_is_input_plus_fifty_within_the_positions(tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a limit that ignores the source's length, or exceeds the target positions."""
    limits: list[int] = []

    def no_search(_: Any, requests: Iterator[Request], *__: Any, **___: Any) -> Iterator[tuple[int, list[Hypothesis]]]:
        for index, request in enumerate(requests):
            limits.append(request.limit)
            yield index, [Hypothesis([], 0.0, finished=True, ranking_score=0.0)]

    substitute(monkeypatch, "translator.search_each", no_search)
    translator = load(tiny_run)
    translator.translate(["one"])
    tokens = len(translator.tokenizers.source.encode("one")) + 1
    assert limits == [tokens + EXTRA_TOKENS]
    translator.max_target_tokens = 20
    translator.translate(["one"])
    assert limits[1] == 20
    load(tiny_run, search=Search(max_tokens=7)).translate(["one"])
    assert limits[2] == 8, "seven tokens and EOS"
    load(tiny_run, search=Search(min_tokens=30)).translate(["one"])
    assert limits[3] == 31 + EXTRA_TOKENS
    load(tiny_run, search=Search(min_tokens=95)).translate(["one"])
    assert limits[4] == 96, "all positions of the model"
    with pytest.raises(ConfigError, match="min_tokens=96 exceeds 95; choose fewer"):
        load(tiny_run, search=Search(min_tokens=96))
    with pytest.raises(ConfigError, match="max_tokens=3 is below the minimum of 5; choose more"):
        Search(min_tokens=5, max_tokens=3)


@pytest.mark.parametrize("precision", ["float32", "bf16", "int8"])
def test_deterministic_is_the_same_to_the_last_bit(tiny_run: Path, precision: str) -> None:
    """Catches scores that depend on other lines, on their order, on a line with a prefix, or on threads."""
    lines = ["one two three", "seven", "four five nine one two", "one two three", "nine"]
    translator = load(tiny_run, search=Search(3, coverage=0.1), precision=precision, workers=1, deterministic=True)
    alone = [translator.translations([line])[0].alternatives for line in lines]
    threads = torch.get_num_threads()
    torch.set_num_threads(3 - threads)
    try:
        assert [translation.alternatives for translation in translator.translations(lines)] == alone
        back = translator.translations([*lines[::-1], "two"], prefixes=[""] * 5 + ["8 8"])
        assert [translation.alternatives for translation in back[:5]] == alone[::-1]
        assert torch.get_num_threads() == 3 - threads
    finally:
        torch.set_num_threads(threads)


def test_progress_is_reported(echo: Echo) -> None:
    """Catches a progress bar that never reaches its end, or goes beyond it where a line is split."""
    done: list[int] = []
    echo.translations(["one", "zero " * 30, "two", ""], done.append)
    assert done == [1, 1, 1, 1]


def test_only_models_that_translate_become_translators(echo: Echo) -> None:
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
    with pytest.raises(DataError, match="3 lines, but 1 prefixes; give one prefix per line"):
        translator.translations(lines, prefixes=["9"])


def test_a_line_draws_the_same_in_any_chunk(tiny_run: Path) -> None:
    """Catches samples that depend on how a text is divided into chunks."""
    lines = ["one two three", "seven", "four five", "one two three"]
    translator = load(tiny_run, search=Search(sampling=Sampling(temperature=2.0)))
    together = [translation.text for translation in translator.translations(lines)]
    apart = [translator.translations([line], first_line=i)[0].text for i, line in enumerate(lines)]
    assert together == apart
    assert together[0] != together[3], "the same line at another index uses other random numbers"


def test_far_too_long_translations_are_flagged(tiny_run: Path) -> None:
    """Catches a paragraph invented for a short line, without a loop and with an EOS."""
    lines = ["one", "two seven"]
    sampler = load(tiny_run, search=Search(4, sampling=Sampling(temperature=20.0, seed=1), min_tokens=0))
    for line in lines * 10:
        (translation,) = sampler.translations([line])
        source, (best, *_) = len(translation.sources[0]), translation.alternatives
        if best.finished:
            is_flagged = "the translation is far longer than its source" in translation.flags
            assert is_flagged == (len(best.tokens[0]) > 4 * source + 5)
    (requested,) = load(tiny_run, search=Search(min_tokens=30, no_repeat_ngram=2)).translations(["one"])
    assert not any("far longer" in flag for flag in requested.flags), (
        "a translation of the requested length is not too long"
    )


def test_a_loop_is_searched_again(tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a loop that is returned without a flag, and a retry that is missing or worse than the loop."""
    searches: list[tuple[Search, int]] = []

    def looping(
        _: Any, requests: Iterator[Request], search: Search, **__: Any
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        batch = list(requests)
        searches.append((search, len(batch)))
        for index, request in enumerate(batch):
            is_retry = search.no_repeat_ngram and len(request.source) > 3
            loops = not is_retry and len(request.source) > 2
            yield index, [Hypothesis([7] * 8 if loops else [5, 6], -1.0, finished=True, ranking_score=-1.0)]

    substitute(monkeypatch, "translator.search_each", looping)
    translator = load(tiny_run)
    sizes = [len(translator.tokenizers.source.encode(line)) + 1 for line in ("one", "one two", "one two three")]
    assert sizes == [2, 3, 4], "this test needs lines of different lengths"
    translations = translator.translations(["one", "one two", "one two three"])
    assert [bool(translation.flags) for translation in translations] == [False, True, True]
    assert translations[2].flags[0].endswith("searched again without repeated 3-grams")
    assert translations[1].flags == ("the translation repeats itself",)
    assert [(search.no_repeat_ngram, n) for search, n in searches] == [(0, 3), (3, 2)]
    unguarded = load(tiny_run, search=Search(retry_degenerate=False)).translations(["one two three"])
    assert unguarded[0].alternatives[0].pieces == translations[1].alternatives[0].pieces


def test_translations_cut_on_request_are_searched_once(tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a guard that mistakes the limit of `max_tokens` for a degenerate search, and searches twice."""
    counts: list[int] = []

    def cut(_: Any, requests: Iterator[Request], *__: Any, **___: Any) -> Iterator[tuple[int, list[Hypothesis]]]:
        counts.append(len(list(requests)))
        yield from (
            (index, [Hypothesis([5, 6], -1.0, finished=False, ranking_score=-1.0)]) for index in range(counts[-1])
        )

    substitute(monkeypatch, "translator.search_each", cut)
    for search, searched in ((Search(max_tokens=2), [2, 0]), (Search(), [2, 2])):
        counts.clear()
        translations = load(tiny_run, search=search).translations(["one", "one two"])
        assert counts == searched
        assert all("cut at the limit" in flag for translation in translations for flag in translation.flags)


@pytest.mark.parametrize("search", [Search(max_tokens=3), Search(4, max_tokens=3, n_best=4)])
def test_cut_translations_have_max_tokens(tiny_run: Path, search: Search) -> None:
    """Catches an extra token without EOS, a score that counts it, and an EOS after the last token that is missed."""
    lines = [source for source, _ in digit_pairs(30)]
    translator = load(tiny_run, search=search, precision="float32")
    finished: set[tuple[int, bool]] = set()
    for line in lines:
        (translation,) = translator.translations([line])
        for alternative in translation.alternatives:
            (tokens,) = alternative.tokens
            finished.add((len(tokens), alternative.finished))
            assert len(tokens) == 3 if not alternative.finished else len(tokens) <= 3
            special_tokens = translator.special_tokens
            steps = [*tokens, special_tokens.eos] if alternative.finished else tokens
            tgt = torch.tensor([[special_tokens.bos, *steps[:-1]]])
            with torch.no_grad():
                logits = translator.model(torch.tensor([translation.sources[0]]), tgt, None, causal_mask(tgt.size(1)))
            log_p = logits[0].log_softmax(-1)[range(len(steps)), list(steps)]
            assert alternative.score == pytest.approx(log_p.sum().item(), abs=1e-3)
    assert {(3, True), (3, False)} <= finished, "some translations must end right after the last token"
