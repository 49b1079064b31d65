"""Shortlists: training by IBM model 1, and searches that equal those with all other tokens forbidden."""

from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from samples import fast_first
from shapes import unchecked_shapes
from transformer.bundle import load_bundle
from transformer.decoding import Ensemble, Request, Sampling, Search, Shortlist, ShortlistModel, search_all
from transformer.decoding.shortlist_training import (
    ITERATIONS,
    coverage,
    learn_shortlist,
    load_shortlist,
    save_shortlist,
    subsample_evenly,
)
from transformer.errors import ConfigError, DataError
from transformer.inference.cpu import pack
from transformer.kernels import PRECISIONS, PackedLinear, Precision, Weight
from transformer.pipelines.auto import load
from transformer.tokenizers.config import TokenizerConfig
from transformer.tokenizers.pair import TokenizerPair
from transformer.transformer import Transformer, build_transformer

PAIRS = [
    ([4, 5, 6], [10, 11, 12]), ([4, 7], [10, 13]), ([5, 5], [11, 11, 14]), ([6, 4, 7], [12, 13, 10]), ([8], [14]),
    ([7, 8], [13, 14]), ([9, 4], [10]),
] * 3  # fmt: skip


def ibm_model_1() -> dict[int, dict[int, float]]:
    """IBM model 1 as in Brown et al., with dictionaries; EOS is the empty word."""
    t: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(lambda: 1.0))
    for _ in range(ITERATIONS):
        counts: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
        for source, target in PAIRS:
            for f in target:
                total = sum(t[e][f] for e in [*source, 2])
                for e in [*source, 2]:
                    counts[e][f] += t[e][f] / total
        t = {e: {f: n / sum(row.values()) for f, n in row.items()} for e, row in counts.items()}
    return t


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_best_tokens_are_those_of_ibm_model_1(n: int) -> None:
    """Catches counts of another pair of tokens, a share over the wrong side, and chunks that are not added up."""
    actual = learn_shortlist(PAIRS, (12, 20), best=n, frequent=2)
    for source, row in ibm_model_1().items():
        best = sorted(row.values(), reverse=True)[:n]
        ours = [row[token] for token in actual.by_token[source].tolist() if token != 2]
        assert sorted(ours, reverse=True) == pytest.approx(best, rel=1e-6)
    assert actual.always.tolist() == [2, 10, 11], "11 and 13 are as frequent; the first counts"
    assert (actual.by_token[3] == 2).all(), "of a token that never occurs, nothing is known"


def test_coverage_counts_tokens() -> None:
    """Catches a share of sentences instead of tokens."""
    listed = Shortlist(torch.tensor([2]), torch.tensor([[2]] * 4 + [[10]] + [[11]] * 7), 20)
    share, size = coverage(listed, [([4], [10, 10, 11]), ([5, 6], [11])])
    assert share == pytest.approx(3 / 4)
    assert size == 2
    with pytest.raises(DataError, match="cannot be learned from an empty corpus"):
        learn_shortlist([], (4, 4))
    with pytest.raises(ConfigError, match="best=0 and frequent=5 are not both above 0"):
        learn_shortlist(PAIRS, (12, 20), best=0, frequent=5)


def model_of(seed: int) -> Transformer:
    torch.manual_seed(seed)
    model = build_transformer(30, 30, 12, 40, d_model=32, N=2, h=2, d_ff=40, dropout=0.0).eval()
    with torch.no_grad():
        model.projection_layer.proj.weight.mul_(3)
        model.projection_layer.proj.bias.normal_()
    return model


def listed() -> Shortlist:
    generator = torch.Generator().manual_seed(5)
    return Shortlist(torch.tensor([2, 9, 17]), torch.randint(4, 30, (30, 4), generator=generator), 30)


class Forbidding:
    """A model over the whole vocabulary, with -inf for the tokens that the source's list lacks."""

    def __init__(self, model: Transformer, shortlist: Shortlist) -> None:
        self.model, self.shortlist = model, shortlist

    def begin(self, src: Tensor, src_mask: Tensor, limit: int) -> Any:
        """One sentence."""
        assert len(src) == 1
        lists = self.shortlist.by_token[src[0]].flatten().tolist()
        self.allowed = sorted({*self.shortlist.always.tolist(), *lists})
        return self.model.begin(src, src_mask, limit)

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        """The model's logits, masked."""
        logits, state = self.model.step(tokens, state)
        masked = torch.full_like(logits, -torch.inf)
        masked[:, self.allowed] = logits[:, self.allowed]
        return masked, state


SEARCHES = {
    "greedy": Search(), "beam": Search(4, n_best=3), "wide": Search(33, n_best=3), "at least": Search(3, min_tokens=5),
    "rules": Search(4, no_repeat_ngram=2, repetition_penalty=1.3, banned=((17,), (9, 9))),
    "sample": Search(3, n_best=3, sampling=Sampling(seed=4, top_k=6)), "groups": Search(4, groups=2, diversity=0.7),
}  # fmt: skip


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("precision", fast_first([None, *PRECISIONS], 1))
def test_a_search_is_that_of_the_vocabulary_with_all_else_forbidden(name: str, precision: Precision | None) -> None:
    """Catches tokens of a neighbour's list, ids mixed up, an end that is left out, and rules on the wrong ids."""
    shortlist, search = listed(), SEARCHES[name]
    model = model_of(3) if precision is None else pack(model_of(3), precision)
    generator = torch.Generator().manual_seed(1)
    lengths = [1, 3, 5, 2, 4, 6, 3]
    asked = [
        Request([*torch.randint(4, 30, (n,), generator=generator).tolist(), 2], 14, number=i)
        for i, n in enumerate(lengths)
    ]
    with unchecked_shapes():
        expected = [search_all(Forbidding(model, shortlist), [request], search)[0] for request in asked]
    shortlisted = ShortlistModel(model, shortlist)
    actual = search_all(shortlisted, asked, search, batch_tokens=search.beam * 12, refill_below=0.9)
    for hypotheses, references in zip(actual, expected, strict=True):
        assert [h.tokens for h in hypotheses] == [h.tokens for h in references]
        assert [h.score for h in hypotheses] == pytest.approx([h.score for h in references], abs=1e-3)


def test_lists_of_dropped_sentences_are_removed() -> None:
    """Catches lists that pile up where sentences enter as others leave, and one that another sentence gets."""
    model, src = ShortlistModel(model_of(3), listed()), torch.tensor([[5, 6, 2], [7, 8, 2], [11, 9, 2]])
    state = model.begin(src, torch.ones(3, 1, 1, 3, dtype=torch.bool), 9).select(torch.tensor([2, 1]))
    other = model.begin(src[:1], torch.ones(1, 1, 1, 3, dtype=torch.bool), 9)
    joined = state.join(other)
    assert len(joined.lists) == 3
    logits, _ = model.step(torch.tensor([1, 1, 1]), joined)
    allowed = listed().mask(src[[2, 1, 0]])
    assert torch.equal(logits > -torch.inf, allowed)
    assert len(joined.select(torch.tensor([1])).join(other).lists) == 2


@pytest.mark.parametrize("packed", [False, True])
def test_lists_of_another_vocabulary_are_refused(packed: bool) -> None:
    """Catches tokens that the model lacks, whose weights a kernel would read from beyond its own."""
    model = pack(model_of(3), "float32") if packed else model_of(3)
    by_token = torch.full((30, 1), 2)
    with pytest.raises(ConfigError, match="a shortlist over 30 tokens contains token 30, but the model has 30 tokens"):
        ShortlistModel(model, Shortlist(torch.tensor([2, 30]), by_token, 30))
    few = ShortlistModel(model, Shortlist(torch.tensor([2, 4, 9]), by_token, 28))  # of a tokenizer with fewer
    (hypotheses,) = search_all(few, [Request([5, 2], 4)], Search(2))
    assert {*hypotheses[0].tokens} <= {2, 4, 9}


def test_a_model_without_a_projection_is_refused() -> None:
    """Catches an error of Python, and a shortlist around an ensemble instead of one for each of its models."""
    with pytest.raises(ConfigError, match="Ensemble has no projection_layer; give each of its models a shortlist"):
        ShortlistModel(Ensemble([model_of(3)]), listed())


def test_an_ensemble_of_shortlisted_models() -> None:
    """Catches members whose lists are averaged as if they were the whole vocabulary."""
    asked = [Request([5, 6, 2], 9), Request([11, 2], 9)]
    shortlist = listed()
    both = [Ensemble([kind(model_of(n), shortlist) for n in (1, 2)]) for kind in (ShortlistModel, Forbidding)]  # pyright: ignore[reportArgumentType]
    for number, request in enumerate(asked):
        (expected,) = search_all(both[1], [request], Search(3))
        assert search_all(both[0], asked, Search(3))[number][0].tokens == expected[0].tokens


@pytest.mark.parametrize("precision", PRECISIONS)
def test_chosen_outputs_of_a_packed_matrix(precision: Precision) -> None:
    """Catches columns of another panel, and scales or biases that stay behind."""
    torch.manual_seed(1)
    weight, bias, x = Weight.from_tensor(torch.randn(200, 37), precision), torch.randn(200), torch.randn(5, 37)
    whole = PackedLinear(weight, bias=bias)
    ids = torch.tensor([3, 199, 64, 63, 3, 128, 0])
    torch.testing.assert_close(whole.select(ids)(x), whole(x)[:, ids])
    many = torch.randperm(200)[:130]
    torch.testing.assert_close(whole.select(many)(x), whole(x)[:, many])


def test_files_are_those_of_their_tokenizers(tmp_path: Path) -> None:
    """Catches a list that is applied to another model's tokens, and a file that is not a list."""
    texts = ["one two three four five", "six seven"] * 20
    first, second = (
        TokenizerPair.train(lambda: texts, lambda: texts, TokenizerConfig(vocab_size=size)) for size in (265, 270)
    )
    size = first.target.vocab_size
    shortlist = learn_shortlist([([300 % size, 5], [7])], (size, size), best=2, frequent=3)
    path = tmp_path / "list.safetensors"
    save_shortlist(path, shortlist, first)
    again = load_shortlist(path, first)
    assert torch.equal(again.by_token, shortlist.by_token)
    assert torch.equal(again.always, shortlist.always)
    with pytest.raises(DataError, match="was made for another model's tokenizers; make one with transformer shortlist"):
        load_shortlist(path, second)
    with pytest.raises(DataError, match="is not a shortlist"):
        load_shortlist(tmp_path / "none", first)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="is not a shortlist"):
        load_shortlist(path, first)
    for always, by_token in ((shortlist.always, shortlist.by_token[:-1]), (torch.tensor([7]), shortlist.by_token)):
        save_shortlist(path, Shortlist(always, by_token, size), first)
        with pytest.raises(DataError, match="contains tokens outside the vocabulary"):
            load_shortlist(path, first)
    path.write_bytes(b"nothing")
    with pytest.raises(DataError, match="is not a shortlist"):
        load_shortlist(path, first)
    save_shortlist(path, Shortlist(torch.tensor([size]), shortlist.by_token, size), first)
    with pytest.raises(DataError, match="contains tokens outside the vocabulary"):
        load_shortlist(path, first)


def test_a_translator_with_a_shortlist(tiny_run: Path, digit_corpus: tuple[Path, Path], tmp_path: Path) -> None:
    """Catches a list that is ignored, and one that silently loses required words."""
    tokenizers = load_bundle(tiny_run).tokenizers
    sides = [path.read_text(encoding="utf-8").splitlines() for path in digit_corpus]
    pairs = list(zip(*(tokenizer.encode_batch(side) for tokenizer, side in zip(
        (tokenizers.source, tokenizers.target), sides, strict=True)), strict=True))  # fmt: skip
    path, sizes = tmp_path / "list.safetensors", (tokenizers.source.vocab_size, tokenizers.target.vocab_size)
    save_shortlist(path, learn_shortlist(pairs, sizes, best=4, frequent=1), tokenizers)
    shortlist = load_shortlist(path, tokenizers)
    translator = load(tiny_run, shortlist=path, search=Search(3))
    for line, translation in zip(sides[0][:40], translator.translations(sides[0][:40]), strict=True):
        (allowed,) = shortlist.mask(torch.tensor([[*tokenizers.source.encode(line), 2]]))
        assert allowed[[*translation.alternatives[0].tokens[0]]].all()
    with pytest.raises(ConfigError, match="prefixes may need words that the shortlist lacks"):
        translator.translations(["one"], prefixes=["two"])


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 1000])
def test_a_long_text_is_subsampled_evenly(n: int) -> None:
    """Catches a beginning that is taken for the whole, and more pairs held than were allowed."""
    sample = subsample_evenly(range(n), 8)
    gaps = {after - before for before, after in pairwise(sample)}
    assert len(sample) <= 8
    assert len(gaps) <= 1
    assert sample == list(range(n)) if n <= 8 else sample[-1] + gaps.pop() >= n
