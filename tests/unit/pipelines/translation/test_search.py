"""Search for segments: limits, independence of the batch, second searches."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from samples import digit_pairs
from substitution import substitute
from transformer.blocks import causal_mask
from transformer.decoding import GraphedSearcher, Hypothesis, Request, Sampling, Search
from transformer.errors import ConfigError
from transformer.pipelines.auto import load
from transformer.pipelines.translation.search import SegmentSearcher
from transformer.pipelines.translation.segment import EXTRA_TOKENS


def test_limit_is_input_plus_fifty_within_the_positions(tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a limit that ignores the source's length, or exceeds the target positions."""
    limits: list[int] = []

    def no_search(_: Any, requests: Iterator[Request], *__: Any, **___: Any) -> Iterator[tuple[int, list[Hypothesis]]]:
        for index, request in enumerate(requests):
            limits.append(request.limit)
            yield index, [Hypothesis([], 0.0, finished=True, ranking_score=0.0)]

    substitute(monkeypatch, "search.search_each", no_search)
    translator = load(tiny_run, search=Search(retry_degenerate=False))
    translator.translate(["one"])
    tokens = len(translator.tokenizers.source.encode("one")) + 1
    assert limits == [tokens + EXTRA_TOKENS]
    load(tiny_run, max_target_tokens=20, search=Search(retry_degenerate=False)).translate(["one"])
    assert limits[1] == 20
    load(tiny_run, search=Search(max_tokens=7, retry_degenerate=False)).translate(["one"])
    assert limits[2] == 8, "seven tokens and EOS"
    load(tiny_run, search=Search(min_tokens=30, retry_degenerate=False)).translate(["one"])
    assert limits[3] == 31 + EXTRA_TOKENS
    load(tiny_run, search=Search(min_tokens=95, retry_degenerate=False)).translate(["one"])
    assert limits[4] == 96, "all positions of the model"
    with pytest.raises(ConfigError, match="min_tokens=96 exceeds 95; choose fewer"):
        load(tiny_run, search=Search(min_tokens=96, retry_degenerate=False))
    with pytest.raises(ConfigError, match="max_tokens=3 is below the minimum of 5; choose more"):
        Search(min_tokens=5, max_tokens=3)


@pytest.mark.parametrize("precision", ["float32", "bf16", "int8"])
def test_deterministic_is_the_same_to_the_last_bit(tiny_run: Path, precision: str) -> None:
    """Catches scores that depend on other lines, on their order, on a line with a prefix, or on threads."""
    lines = ["one two three", "seven", "four five nine one two", "one two three", "nine"]
    translator = load(tiny_run, search=Search(3, coverage=0.1), precision=precision, workers=1, deterministic=True)
    alone = [translator.translations([line])[0].alternatives for line in lines]
    torch.set_num_threads(2)
    assert [translation.alternatives for translation in translator.translations(lines)] == alone
    back = translator.translations([*lines[::-1], "two"], prefixes=[""] * 5 + ["8 8"])
    assert [translation.alternatives for translation in back[:5]] == alone[::-1]
    assert torch.get_num_threads() == 2


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

    substitute(monkeypatch, "search.search_each", looping)
    translator = load(tiny_run)
    sizes = [len(translator.tokenizers.source.encode(line)) + 1 for line in ("one", "one two", "one two three")]
    assert sizes == [2, 3, 4], "this test needs lines of different lengths"
    translations = translator.translations(["one", "one two", "one two three"])
    assert [bool(translation.flags) for translation in translations] == [False, True, True]
    assert translations[2].flags[0].endswith("searched again without repeated 3-grams")
    assert translations[1].flags == ("the translation repeats itself",)
    assert [(search.no_repeat_ngram, n) for search, n in searches] == [(None, 3), (3, 2)]
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

    substitute(monkeypatch, "search.search_each", cut)
    for search, searched in ((Search(max_tokens=2), [2]), (Search(), [2, 2])):
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


def test_a_gpu_keeps_its_graphs_for_the_next_text(tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches graphs that are captured anew for every text, or kept after `close`, and results in another order."""
    devices: list[torch.device] = []

    def on_cpu(model: Any, search: Search, device: torch.device, *arguments: Any) -> GraphedSearcher:
        devices.append(device)
        return GraphedSearcher(model, search, torch.device("cpu"), *arguments)

    substitute(monkeypatch, "search.GraphedSearcher", on_cpu)
    translator = load(tiny_run, search=Search(3, retry_degenerate=False), precision="float32", workers=1)
    lines = [source for source, _ in digit_pairs(12)]
    expected = translator.translate(lines)
    assert not devices
    gpu, searcher = torch.device("cuda"), translator.searcher
    translator.searcher = SegmentSearcher(searcher.shared, gpu, translator.tokenizers.target.decode)
    assert [translator.translate(lines), translator.translate(lines)] == [expected, expected]
    assert devices == [gpu]
    translator.close()
    assert translator.translate(lines) == expected
    assert devices == [gpu, gpu]
