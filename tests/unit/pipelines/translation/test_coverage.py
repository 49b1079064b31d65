"""The coverage penalty: compared with its formula, over the attention of one sentence at a time."""

import math
from pathlib import Path

import pytest
import torch

from transformer.blocks import causal_mask
from transformer.decoding import Search
from transformer.pipelines.auto import load
from transformer.pipelines.translation.coverage import coverage_penalties, coverage_penalty
from transformer.transformer import Transformer, build_transformer


def test_the_penalty_by_hand() -> None:
    """Catches a sum over the wrong axis, and attention above 1 that compensates for too little elsewhere."""
    weights = torch.tensor([[0.7, 0.2, 0.1], [0.6, 0.4, 0.0]])
    assert coverage_penalty(weights) == pytest.approx(math.log(0.6) + math.log(0.1))


def plain_attention(model: Transformer, source: list[int], written: list[int]) -> torch.Tensor:
    """The cross-attention of the first of two layers, mean over heads, from its formula: softmax(Q K^T / sqrt(d_k))."""
    memory = model.encode(torch.tensor([source]))
    layer = model.decoder.layers[0]
    x = model.tgt_pos(model.tgt_embed(torch.tensor([written])))
    self_attention_residual = layer.residual_connections[0]
    x = self_attention_residual(x, lambda y: layer.self_attention_block(y, y, y, causal_mask(len(written))))
    query = layer.residual_connections[1].norm(x)
    block = layer.cross_attention_block
    q, k = (
        w(y).unflatten(2, (block.h, block.d_k)).transpose(1, 2) for w, y in ((block.W_q, query), (block.W_k, memory))
    )
    return (q @ k.transpose(2, 3) / math.sqrt(block.d_k)).softmax(dim=-1).mean(dim=1)[0]


@torch.no_grad()
def test_penalties_of_a_batch_are_those_of_each_pair_alone() -> None:
    """Catches padding that counts as covered or not, another layer's attention, and reordered results."""
    torch.manual_seed(3)
    models = [build_transformer(20, 20, 12, 12, d_model=16, N=2, h=2, d_ff=20, dropout=0.0).eval() for _ in range(2)]
    pairs = [([5, 6, 7, 2], [1, 8]), ([9, 2], [1, 4, 5, 6, 7]), ([4, 4, 5, 6, 7, 2], [1])]
    for ensemble in (models[:1], models):
        penalties = coverage_penalties(ensemble, pairs, 14, torch.device("cpu"))
        for (source, written), penalty in zip(pairs, penalties, strict=True):
            weights = torch.stack([plain_attention(model, source, written) for model in ensemble]).mean(dim=0)
            expected = sum(math.log(min(1.0, column)) for column in weights.sum(dim=0).tolist())
            assert penalty == pytest.approx(expected, abs=1e-4)


def test_translations_are_ranked_with_it(tiny_run: Path) -> None:
    """Catches a penalty that is computed and ignored, or that outweighs a truncated translation."""
    line = ["one two three four"]
    without_coverage = load(tiny_run, search=Search(6, n_best=6), precision="float32")
    search = Search(6, n_best=6, coverage=5.0)
    translator = load(tiny_run, search=search, precision="float32")
    (plain,), (covered,) = (either.translations(line) for either in (without_coverage, translator))
    source = covered.sources[0]
    for alternative in covered.alternatives:
        tokens = alternative.tokens[0]
        length = len(tokens) + alternative.finished
        (penalty,) = coverage_penalties(translator.models, [(source, [1, *tokens][:length])], 4096, torch.device("cpu"))
        expected = alternative.score / search.length_penalty(length) + 5 * penalty
        assert alternative.value == pytest.approx(expected, abs=1e-4)
    keys = [(alternative.finished, alternative.value) for alternative in covered.alternatives]
    assert keys == sorted(keys, reverse=True)
    assert {alternative.tokens for alternative in covered.alternatives} == {
        alternative.tokens for alternative in plain.alternatives
    }
