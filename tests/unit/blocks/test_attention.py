"""Attention, compared with a loop over Eq. 1 in float64."""

import importlib
import math

import pytest
import torch
from torch import Tensor

from transformer.blocks import MultiHeadAttention, attention, attention_weights
from transformer.errors import ConfigError

attention_module = importlib.import_module("transformer.blocks.attention")
B, H, T, S, E = 3, 2, 5, 7, 11


def loop_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Computes Eq. 1 element by element in float64; a row without unmasked keys gives zeros."""
    output = torch.zeros(*query.shape[:3], value.size(-1), dtype=torch.float64)
    weights = torch.zeros(*query.shape[:3], key.size(2), dtype=torch.float64)
    for b in range(query.size(0)):
        for h in range(query.size(1)):
            for t in range(query.size(2)):
                open_keys = [s for s in range(key.size(2)) if mask[b, h, t, s]]
                scores = [
                    sum(query[b, h, t, e].item() * key[b, h, s, e].item() for e in range(query.size(-1)))
                    / math.sqrt(query.size(-1))
                    for s in open_keys
                ]
                total = sum(math.exp(score) for score in scores)
                for s, score in zip(open_keys, scores, strict=True):
                    weights[b, h, t, s] = math.exp(score) / total
                    output[b, h, t] += weights[b, h, t, s] * value[b, h, s].double()
    return output, weights


@pytest.fixture(autouse=True, params=[0, 256], ids=["fused", "plain"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs every test with the fused kernel and with the plain formula."""
    monkeypatch.setattr(attention_module, "MAX_UNFUSED_LENGTH", request.param)


@pytest.fixture
def heads() -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(B, H, T, E), torch.randn(B, H, S, E), torch.randn(B, H, S, E)


def random_mask() -> Tensor:
    mask = torch.rand(B, 1, T, S) > 0.4
    mask[..., 0] = True
    return mask


def test_attention_is_equation_1(heads: tuple[Tensor, Tensor, Tensor]) -> None:
    """Catches a missing 1/sqrt(d_k), a softmax over the wrong axis, and an inverted mask."""
    mask = random_mask()
    expected, weights = loop_attention(*heads, mask.expand(B, H, T, S))
    torch.testing.assert_close(attention(*heads, mask).double(), expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(attention_weights(*heads[:2], mask).double(), weights, atol=1e-6, rtol=0)


def test_integer_masks_mean_the_same(heads: tuple[Tensor, Tensor, Tensor]) -> None:
    """Catches 0/1 masks that are added to the scores."""
    mask = random_mask()
    assert torch.equal(attention(*heads, mask), attention(*heads, mask.long()))
    assert torch.equal(attention_weights(*heads[:2], mask), attention_weights(*heads[:2], mask.int()))


@pytest.mark.parametrize("training", [False, True])
def test_fully_masked_rows_are_zero_with_finite_gradients(training: bool) -> None:
    """Catches NaN from a softmax over nothing, forward and backward, and the uniform rows of a -1e9 mask."""
    query, key, value = (torch.randn(B, H, n, E, requires_grad=True) for n in (T, S, S))
    mask = random_mask()
    mask[1, :, 2] = False
    output = attention(query, key, value, mask, dropout=0.2 if training else 0.0)
    assert torch.equal(output[1, :, 2], torch.zeros(H, E))
    output.sum().backward()
    assert all(x.grad is not None and x.grad.isfinite().all() for x in (query, key, value))
    assert torch.equal(attention_weights(query, key, mask)[1, :, 2], torch.zeros(H, S))


def test_weights_of_bfloat16_inputs_are_computed_in_float32() -> None:
    """Catches scaled scores, a softmax or weights in bfloat16, whose rounding errors are a thousand times as large."""
    query, key = (torch.randn(B, H, n, E).bfloat16() * 2 for n in (T, 101))
    mask = torch.rand(B, 1, T, 101) > 0.4
    scores = (query @ key.transpose(2, 3)).double() / math.sqrt(E)  # the product of two bfloat16 matrices is rounded
    expected = scores.masked_fill(~mask, -math.inf).softmax(dim=-1)
    weights = attention_weights(query, key, mask)
    assert weights.dtype == torch.float32
    torch.testing.assert_close(weights.double(), expected, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(B, H, T), atol=1e-6, rtol=0)


def test_multi_head_is_concatenated_heads() -> None:
    """Catches heads split along the wrong axis, swapped projections, and a missing bias."""
    d_model = H * E
    block = MultiHeadAttention(d_model, H)
    for parameter in block.parameters():
        torch.nn.init.normal_(parameter)
    query, key, value = torch.randn(B, T, d_model), torch.randn(B, S, d_model), torch.randn(B, S, d_model)
    mask = random_mask()

    def project(x: Tensor, linear: torch.nn.Linear) -> Tensor:
        return x.double() @ linear.weight.double().T + linear.bias.double()

    q, k, v = project(query, block.W_q), project(key, block.W_k), project(value, block.W_v)
    per_head = [
        loop_attention(*(x[:, None, :, h * E : (h + 1) * E] for x in (q, k, v)), mask)[0][:, 0] for h in range(H)
    ]
    expected = project(torch.cat(per_head, dim=-1), block.W_o)
    torch.testing.assert_close(block(query, key, value, mask).double(), expected, atol=1e-4, rtol=1e-5)


def test_weights_for_inspection_are_those_used() -> None:
    """Catches weights for inspection that differ from those of the forward pass."""
    block = MultiHeadAttention(H * E, H)
    x, mask = torch.randn(B, T, H * E), torch.ones(B, 1, T, T).tril().bool()
    weights = block.attention_weights(x, x, mask)
    values = block.W_v(x).view(B, T, H, E).transpose(1, 2)
    by_hand = block.W_o((weights @ values).transpose(1, 2).reshape(B, T, H * E))
    torch.testing.assert_close(block(x, x, x, mask), by_hand)


def test_dropout_acts_on_the_weights_in_training_only() -> None:
    """Catches dropout in evaluation, and dropout of the output, which would not drop a whole key."""
    block = MultiHeadAttention(2, 1, dropout=0.5)
    x = torch.randn(400, 1, 2)
    assert torch.equal(block.eval()(x, x, x), block(x, x, x))
    with_dropout = block.train()(x, x, x)
    dropped = (with_dropout - block.W_o.bias).abs().amax(dim=-1)[:, 0] < 1e-7
    assert 0.35 < dropped.float().mean() < 0.65


@pytest.mark.parametrize("h", [7, 0, 3])
def test_heads_must_divide_the_width(h: int) -> None:
    """Catches a silent floor division of the head width."""
    with pytest.raises(ConfigError, match=rf"h={h} does not divide d_model=512; choose a divisor, e.g. 8"):
        MultiHeadAttention(512, h)
