"""Greedy search against the plainest possible loop."""

import pytest
import torch
from torch import Tensor

from transformer.blocks import causal_mask, padding_mask
from transformer.decoding import Hypothesis, greedy
from transformer.decoding.greedy import best_token
from transformer.transformer import Transformer, build_transformer

VOCABULARY = 19


def sharp_model(seed: int) -> Transformer:
    """A random model whose best tokens are far from ties, and that ends now and then."""
    torch.manual_seed(seed)
    model = build_transformer(VOCABULARY, VOCABULARY, 12, 40, d_model=16, N=2, h=2, d_ff=20, dropout=0.0)
    with torch.no_grad():
        model.projection_layer.proj.weight.mul_(6)
        model.projection_layer.proj.bias[2] = 1.5
    return model.eval()


@torch.no_grad()
def plain_greedy(model: Transformer, src: Tensor, limit: int) -> Hypothesis:
    """One sentence, no cache, no batch: the whole target is decoded again for every token."""
    tokens, score = [1], 0.0
    for _ in range(limit):
        log_p = model(src[None], torch.tensor([tokens]), None, causal_mask(len(tokens)))[0, -1].log_softmax(-1)
        best = max((token for token in range(VOCABULARY) if token not in (0, 1, 3)), key=lambda token: log_p[token])
        score += log_p[best].item()
        if best == 2:
            return Hypothesis(tokens[1:], score, finished=True)
        tokens.append(best)
    return Hypothesis(tokens[1:], score, finished=False)


@pytest.mark.parametrize("seed", range(6))
def test_greedy_is_the_plain_loop(seed: int) -> None:
    """Catches a cache mixed up when rows leave, padding that is attended to, scores without EOS, wrong limits."""
    model = sharp_model(seed)
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 9, (11,), generator=generator)
    src = torch.zeros(11, 9, dtype=torch.long)
    for row, length in enumerate(lengths.tolist()):
        src[row, : length + 1] = torch.cat(
            [torch.randint(4, VOCABULARY, (length,), generator=generator), torch.tensor([2])]
        )
    limits = lengths + 8
    found = greedy(model, src, padding_mask(src), limits)
    for row, hypothesis in enumerate(found):
        expected = plain_greedy(model, src[row, : lengths[row] + 1], int(limits[row]))
        assert hypothesis.tokens == expected.tokens
        assert hypothesis.finished == expected.finished
        assert hypothesis.score == pytest.approx(expected.score, abs=1e-4)
    assert len({hypothesis.finished for hypothesis in found}) > 0


def test_both_ends_occur_in_these_models() -> None:
    """Guards the test above: it must meet sentences that end and sentences that are cut."""
    src = torch.tensor([[5, 6, 2]])
    ends = {plain_greedy(sharp_model(seed), src[0], 11).finished for seed in range(6)}
    assert ends == {True, False}


def test_control_tokens_are_never_written_and_scores_are_the_models() -> None:
    """Catches a renormalized score after a ban, and padding as output."""
    logits = torch.tensor([[9.0, 8.0, 1.0, 7.0, 2.0, 0.0]])
    tokens, log_p = best_token(logits)
    assert tokens.tolist() == [4]
    torch.testing.assert_close(log_p, logits.log_softmax(-1)[:, 4])
