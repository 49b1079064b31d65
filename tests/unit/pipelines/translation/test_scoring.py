"""Scores of translations, and ensembles: compared with the plain model, one pair at a time."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from transformer.blocks import causal_mask, padding_mask
from transformer.bundle import load_bundle, save_bundle
from transformer.decoding import Ensemble, Request, Search, search_all
from transformer.errors import BundleError, ConfigError
from transformer.pipelines.auto import load
from transformer.pipelines.translation.scoring import score_pairs
from transformer.text.lines import MAX_LINE_CHARACTERS
from transformer.tokenizers.config import TokenizerConfig
from transformer.tokenizers.pair import TokenizerPair
from transformer.transformer import Transformer, build_transformer

PAIRS = [("one two", "two one"), ("seven", ""), ("", "nine"), ("four five six seven eight", "six"), ("two", "two two")]


def test_scores_are_those_of_one_pair_alone(tiny_run: Path) -> None:
    """Catches padding that is scored, a missing EOS, results out of order, and tokens of another row."""
    translator = load(tiny_run)
    tokenizers, model = translator.tokenizers, translator.model
    for (source, target), actual in zip(PAIRS, score_pairs(translator, PAIRS), strict=True):
        src = torch.tensor([[*tokenizers.source.encode(source), 2]])
        target_tokens = tokenizers.target.encode(target)
        tgt = torch.tensor([[1, *target_tokens]])
        log_p = model(src, tgt, None, causal_mask(tgt.size(1)))[0].log_softmax(-1)
        expected = [log_p[i, token].item() for i, token in enumerate([*target_tokens, 2])]
        assert actual.token_scores == pytest.approx(expected, abs=1e-4)
        assert actual.score == pytest.approx(sum(expected), abs=1e-3)
        assert actual.per_token == pytest.approx(sum(expected) / len(expected), abs=1e-4)
        assert actual.pieces[-1] == "[EOS]"


def test_the_score_of_a_search_is_the_score_of_its_translation(tiny_run: Path) -> None:
    """Catches a search that reports its ranking score instead of the model's log-probability."""
    lines = ["one two three", "seven", "nine eight"]
    translator = load(tiny_run, search=Search(4, repetition_penalty=1.4), precision="float32")
    for line, translation in zip(lines, translator.translations(lines), strict=True):
        (scored,) = score_pairs(translator, [(line, translation.text)])
        if tuple(scored.pieces[:-1]) == translation.alternatives[0].pieces and translation.alternatives[0].finished:
            assert translation.score == pytest.approx(scored.score, abs=1e-3)
            break
    else:
        pytest.fail("no translation reads back as the tokens it was written with")


def test_outer_space_does_not_count(tiny_run: Path) -> None:
    """Catches a translation that scores far worse because its line is indented, as the source is."""
    translator = load(tiny_run)
    plain, spaced = score_pairs(translator, [("one two", "two"), (" \t one two\u200b", "\u3000two \r")])
    assert spaced == plain


def test_a_huge_line_scores_nan_before_it_is_encoded(tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a line that takes hundreds of times its size in memory only to be found too long."""
    translator = load(tiny_run)
    longest, encode_batch = 0, type(translator.tokenizers.source).encode_batch

    def counted(self: Any, texts: list[str]) -> list[list[int]]:
        nonlocal longest
        longest = max(longest, *map(len, texts))
        return encode_batch(self, texts)

    monkeypatch.setattr(type(translator.tokenizers.source), "encode_batch", counted)
    huge = "one " * MAX_LINE_CHARACTERS
    scores = score_pairs(translator, [("one", "one"), (huge, "one"), ("one", huge), ("one", "one")])
    assert [math.isnan(score.score) for score in scores] == [False, True, True, False]
    assert scores[1].flags == ("the source has more than 262,144 characters",)
    assert scores[2].flags == ("the translation has more than 262,144 characters",)
    assert longest == 3


def test_what_is_too_long_scores_nan_and_is_named(tiny_run: Path) -> None:
    """Catches an index error for all lines because of one, and a score of a truncated line."""
    translator = load(tiny_run)
    long = "one " * translator.model.tgt_pos.seq_len
    first, second = score_pairs(translator, [("one", long), ("one", "one")])
    assert math.isnan(first.score)
    assert "the translation has" in first.flags[0]
    assert not second.flags
    assert second.score < 0


def models() -> list[Transformer]:
    built = []
    for seed in (1, 2, 3):
        torch.manual_seed(seed)
        built.append(build_transformer(11, 11, 12, 40, d_model=16, N=1, h=2, d_ff=20, dropout=0.0).eval())
    return built


class Averaged(torch.nn.Module):
    """All models in one, without a cache: the reference for an ensemble."""

    def __init__(self, average: str) -> None:
        super().__init__()
        self.models, self.average = torch.nn.ModuleList(models()), average

    def log_p(self, source: Tensor, tgt: Tensor) -> Tensor:
        """Returns the log-probabilities of the next token."""
        mask = padding_mask(source)
        p = torch.stack([m(source, tgt, mask, causal_mask(tgt.size(1)))[0, -1].softmax(-1) for m in self.models])
        mean = p.prod(0) ** (1 / len(p)) if self.average == "log_probability" else p.mean(0)
        return (mean / mean.sum()).log()


@pytest.mark.parametrize("average", ["log_probability", "probability"])
def test_an_ensemble_is_the_mean_of_its_distributions(average: str) -> None:
    """Catches the wrong mean, states mixed up between models, and rows that are added to one model only."""
    requests = [Request([4 + i % 5, 6, 2], 6 + i) for i in range(8)]
    ensemble = Ensemble(models(), average)  # pyright: ignore[reportArgumentType]
    plain = Averaged(average)
    for request, hypotheses in zip(
        requests, search_all(ensemble, requests, Search(3), batch_tokens=30, refill_below=0.9), strict=True
    ):
        (best,) = hypotheses
        steps = [*best.tokens, 2] if best.finished else best.tokens
        source, score = torch.tensor([request.source]), 0.0
        with torch.no_grad():
            for i, token in enumerate(steps):
                score += plain.log_p(source, torch.tensor([[1, *steps[:i]]]))[token].item()
        assert best.score == pytest.approx(score, abs=1e-4)


def test_what_is_no_ensemble_is_refused() -> None:
    """Catches vocabularies that do not match, and a mean of nothing."""
    with pytest.raises(ConfigError, match="an ensemble has no model"):
        Ensemble([])
    with pytest.raises(ConfigError, match="average='sum' is unknown"):
        Ensemble(models(), "sum")  # pyright: ignore[reportArgumentType]
    other = build_transformer(12, 12, 12, 40, d_model=16, N=1, h=2, d_ff=20)
    with pytest.raises(ConfigError, match=r"vocabularies of \[11, 12\] tokens do not average"):
        search_all(Ensemble([models()[0], other.eval()]), [Request([4, 2], 3)], Search())


def another(run: Path, folder: Path, **changes: Any) -> Path:
    """Saves the bundle of a run with other parameters, or with parts replaced; returns its folder."""
    bundle = load_bundle(run)
    for parameter in {id(shared): shared for shared in bundle.model.parameters()}.values():
        torch.nn.init.normal_(parameter.data, mean=0.0, std=0.4)
    save_bundle(folder, replace(bundle, folder=None, **changes))
    return folder


def other_source(run: Path) -> dict[str, Any]:
    """Returns tokenizers that differ from those of a run in the source tokenizer alone."""
    settings = TokenizerConfig(vocab_size=270)
    source = TokenizerPair.train(lambda: ["one three two nine"] * 9, lambda: ["one"] * 9, settings).source
    return {"text": TokenizerPair(source, load_bundle(run).tokenizers.target)}


SOURCES: dict[str, Callable[[Path], dict[str, Any]]] = {"one": lambda _: {}, "two": other_source}


@pytest.mark.parametrize("tokenizers", SOURCES)
@pytest.mark.parametrize("average", ["log_probability", "probability"])
def test_bundles_translate_together(tiny_run: Path, tmp_path: Path, average: str, tokenizers: str) -> None:
    """Catches an ensemble that is ignored, an average other than requested, and tokens of another tokenizer."""
    lines, other = ["one two three", "seven", "nine nine"], tmp_path / "other"
    another(tiny_run, other, **SOURCES[tokenizers](tiny_run))
    together = load(tiny_run, search=Search(2, min_tokens=4, average=average), ensemble=[other], precision="float32")  # pyright: ignore[reportArgumentType]
    translators = [load(tiny_run, precision="float32"), load(other, precision="float32")]
    n_checked = 0
    for line, translation in zip(lines, together.translations(lines), strict=True):
        tokens = [*translation.alternatives[0].tokens[0], 2]
        if not translation.alternatives[0].finished:
            tokens.pop()
        tgt = torch.tensor([[1, *tokens[: len(tokens) - 1]]])
        log_p = torch.stack([
            translator.model(torch.tensor([[*translator.tokenizers.source.encode(line), 2]]), tgt, None,
                         causal_mask(len(tokens)))[0].log_softmax(-1)
            for translator in translators
        ])  # fmt: skip
        p = log_p.mean(0).softmax(-1) if average == "log_probability" else log_p.exp().mean(0)
        expected = sum(p[position, token].log().item() for position, token in enumerate(tokens))
        assert translation.score == pytest.approx(expected, abs=1e-3)
        n_checked += len(tokens)
    assert n_checked > 5


def test_bundles_of_other_tokenizers_do_not_join(tiny_run: Path, tmp_path: Path) -> None:
    """Catches tokens of one model read as another's, and averaged attention to tokens of two tokenizers."""
    settings = TokenizerConfig(vocab_size=300)
    tokenizers = TokenizerPair.train(lambda: ["a b c d"] * 9, lambda: ["e f g h"] * 9, settings)
    other = another(tiny_run, tmp_path / "other", text=tokenizers)
    with pytest.raises(BundleError, match="have different target tokenizers; train the models with the same one"):
        load(tiny_run, ensemble=[other])
    other = another(tiny_run, tmp_path / "source", **other_source(tiny_run))
    with pytest.raises(ConfigError, match="coverage needs models with the same source tokenizer"):
        load(tiny_run, ensemble=[other], search=Search(2, coverage=0.2))


def test_a_source_that_is_long_for_one_model_is_split_for_all(tiny_run: Path, tmp_path: Path) -> None:
    """Catches more tokens than a model has positions, where another one needs fewer for the same words."""
    other = another(tiny_run, tmp_path / "other", **other_source(tiny_run))
    together = load(tiny_run, ensemble=[other], precision="float32")
    sizes = [[len(tokenizer.encode(word)) for word in ("one", "seven")] for tokenizer in together.segmenter.sources]
    assert sizes[1][1] > sizes[0][1], "this test needs tokenizers that differ"
    max_positions = min(model.src_pos.seq_len for model in together.models)
    line = "seven " * next(
        n for n in range(1, 999) if len(together.segmenter.sources[1].encode("seven " * n)) >= max_positions
    )
    assert len(together.tokenizers.source.encode(line)) < max_positions
    (scored,) = score_pairs(together, [(line, "one")])
    assert math.isnan(scored.score), "a source that exceeds the positions of one model has no score"
    (translation,) = together.translations([" ".join(["seven."] * 30)])
    assert len(translation.sources) > 1
    for tokens in translation.sources:
        text = together.tokenizers.source.decode(tokens)
        assert len(together.segmenter.sources[1].encode(text)) < together.max_source_tokens


@pytest.mark.parametrize("tokenizers", SOURCES)
@pytest.mark.parametrize("average", ["log_probability", "probability"])
def test_an_ensemble_scores_with_the_mean_of_its_distributions(
    tiny_run: Path, tmp_path: Path, average: Any, tokenizers: str
) -> None:
    """Catches scores of the first model alone, and a mean that is not normalized again."""
    other = another(tiny_run, tmp_path / "other", **SOURCES[tokenizers](tiny_run))
    other_tokenizer = load(other).tokenizers.source
    together = load(tiny_run, search=Search(average=average), ensemble=[other], precision="float32")
    for (source, target), actual in zip(PAIRS, score_pairs(together, PAIRS), strict=True):
        sources = [
            torch.tensor([[*tokenizer.encode(source), 2]])
            for tokenizer in (together.tokenizers.source, other_tokenizer)
        ]
        target_tokens = together.tokenizers.target.encode(target)
        tgt = torch.tensor([[1, *target_tokens]])
        p = torch.stack([
            model(src, tgt, None, causal_mask(tgt.size(1)))[0].softmax(-1)
            for model, src in zip(together.models, sources, strict=True)
        ])  # fmt: skip
        mean = p.prod(0).sqrt() if average == "log_probability" else p.mean(0)
        expected = (mean / mean.sum(dim=-1, keepdim=True)).log()[range(len(target_tokens) + 1), [*target_tokens, 2]]
        assert actual.token_scores == pytest.approx(expected.tolist(), abs=1e-4)
