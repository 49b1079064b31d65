"""Objectives of models of running text: next tokens, masked tokens, spans."""

import pytest
import torch
import torch.nn.functional as F

from transformer.data.batch import WindowBatch
from transformer.models import family
from transformer.models.bert.model import Bert
from transformer.training.objectives.language_modelling import (
    LanguageModelObjective,
    MaskedLanguageModelObjective,
    SpanCorruption,
    SpanCorruptionObjective,
    corrupt_spans,
    mask_tokens,
)

B, T, VOCABULARY = 3, 29, 61


def draw(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def windows(rows: int = B, length: int = T) -> torch.Tensor:
    return torch.randint(4, VOCABULARY, (rows, length))


def test_the_language_model_loss_is_that_of_the_next_token() -> None:
    """Catches a label that is off by one, and a token that is counted twice."""
    model = family("gpt").build(
        family("gpt").config(vocab_size=VOCABULARY, d_model=16, N=2, h=2, seq_len=40, dropout=0)
    )
    tokens = windows()
    result = LanguageModelObjective(model, 0.0)(WindowBatch(tokens, B * (T - 1)))
    expected = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten(), reduction="sum")
    torch.testing.assert_close(result.loss_sum, expected)
    assert result.count == B * (T - 1)


def test_as_many_tokens_are_masked_as_asked_for_and_never_the_frame() -> None:
    """Catches a masked [CLS], a wrong number of masked tokens, and shares other than 80, 10 and 10 %."""
    tokens, n = windows(400), 5
    tokens[:, 0], tokens[:, -2:] = 1, 2
    masked, positions = mask_tokens(tokens, n, 3, (4, VOCABULARY), (1, 2), draw())
    assert positions.shape == (400, n)
    assert all(len(set(row)) == n for row in positions.tolist())
    assert int(positions.min()) == 1
    assert int(positions.max()) == T - 3
    others = torch.ones_like(tokens, dtype=torch.bool).scatter(1, positions, False)
    assert torch.equal(masked[others], tokens[others])
    replacements, originals = masked.gather(1, positions), tokens.gather(1, positions)
    assert (replacements == 3).float().mean().item() == pytest.approx(0.8, abs=0.03)
    assert (replacements == originals).float().mean().item() == pytest.approx(0.1 + 0.1 / (VOCABULARY - 4), abs=0.03)


def test_the_masked_loss_is_of_the_masked_tokens_alone() -> None:
    """Catches a loss over all positions, and evaluation with random masks that differ from call to call."""
    config = family("bert").config(
        vocab_size=VOCABULARY, d_model=16, N=2, h=2, d_ff=24, seq_len=40, masked=True, pooler=False
    )
    model = family("bert").build(config).eval()
    assert isinstance(model, Bert)
    assert model.masked_head is not None
    objective = MaskedLanguageModelObjective(model, 3, (4, VOCABULARY), (1, 1)).eval()
    batch = WindowBatch(windows(), B * 4)
    result = objective(batch)
    masked, positions = mask_tokens(batch.tokens, 4, 3, (4, VOCABULARY), (1, 1), draw(20_171))
    logits = model.masked_head(model.encode(masked))
    expected = sum(
        F.cross_entropy(logits[row, position], batch.tokens[row, position])
        for row, row_positions in enumerate(positions.tolist())
        for position in row_positions
    )
    torch.testing.assert_close(result.loss_sum, expected)
    torch.testing.assert_close(objective(batch).loss_sum, result.loss_sum)
    objective.train()
    torch.manual_seed(1)
    first = objective(batch).loss_sum
    torch.manual_seed(1)
    assert torch.equal(objective(batch).loss_sum, first)
    assert not torch.equal(objective(batch).loss_sum, first)


@pytest.mark.parametrize(
    "spans", [SpanCorruption(), SpanCorruption(0.5), SpanCorruption(0.9, 1.0), SpanCorruption(0.3, 40.0)]
)
@pytest.mark.parametrize("window", [2, 3, 10, 29, 64, 200])
def test_spans_and_what_is_left_give_the_text_again(window: int, spans: SpanCorruption) -> None:
    """Catches a token that is lost or doubled, adjacent spans, and wrong lengths."""
    tokens = windows(20, window)
    n_taken, n_spans = spans.sizes(window)
    sentinels = tuple(range(100, 100 + n_spans))
    src, labels = corrupt_spans(tokens, spans, sentinels, 2, draw())
    assert (src.size(1), labels.size(1)) == spans.lengths(window)
    assert labels.size(1) == n_taken + n_spans + 1
    for row, source, target in zip(tokens.tolist(), src.tolist(), labels.tolist(), strict=True):
        assert source.pop() == target.pop() == 2
        span_tokens: dict[int, list[int]] = {}
        for token in target:
            if token >= 100:
                span_tokens[token] = []
            else:
                span_tokens[max(span_tokens)].append(token)
        assert list(span_tokens) == list(sentinels)
        assert all(span_tokens.values())
        assert [part for token in source for part in span_tokens.get(token, [token])] == row


def test_spans_differ_from_draw_to_draw() -> None:
    """Catches spans that are always the same: the model would learn where to look."""
    tokens = windows(1, 64)
    sentinels = tuple(range(100, 110))
    sources = [corrupt_spans(tokens, SpanCorruption(), sentinels, 2, draw(seed))[0] for seed in range(8)]
    assert len({tuple(source[0].tolist()) for source in sources}) == 8


def test_the_span_loss_is_that_of_teacher_forcing() -> None:
    """Catches a decoder that is shown the token it should write."""
    config = family("t5").config(vocab_size=120, d_model=16, N=2, h=2, d_ff=24, dropout=0)
    model = family("t5").build(config).eval()
    sentinels = tuple(range(100, 110))
    objective = SpanCorruptionObjective(model, sentinels, 1, 2, 0.0).eval()
    batch = WindowBatch(windows(), B * SpanCorruption().lengths(T)[1])
    src, labels = corrupt_spans(batch.tokens, SpanCorruption(), sentinels, 2, draw(20_171))
    tgt = torch.cat([torch.ones(B, 1, dtype=torch.long), labels[:, :-1]], dim=1)
    from transformer.blocks import causal_mask

    logits = model(src, tgt, None, causal_mask(tgt.size(1)))
    expected = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
    torch.testing.assert_close(objective(batch).loss_sum, expected)
