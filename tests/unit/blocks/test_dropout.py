"""Dropout of the blocks."""

import pytest
import torch

from transformer.blocks import Dropout
from transformer.blocks.dropout import drop_out

N = 200_003


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.7])
def test_drops_the_share_it_should_and_keeps_the_mean(p: float, dtype: torch.dtype) -> None:
    """Catches a wrong threshold, a wrong factor, and random bits that are always the same."""
    y = drop_out(torch.ones(N, dtype=dtype), p)
    dropped = (y == 0).float().mean().item()
    assert dropped == pytest.approx(p, abs=5 * (p * (1 - p) / N) ** 0.5)
    scaled = y[y != 0].float()
    assert scaled.min() == scaled.max() == pytest.approx(1 / (1 - p), rel=1e-2 if dtype == torch.bfloat16 else 1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradient_passes_where_the_value_did(dtype: torch.dtype) -> None:
    """Catches a new mask in the backward pass, also of a tensor that is not contiguous."""
    x = torch.randn(7, 11, 13).to(dtype).transpose(0, 2).requires_grad_()
    y = drop_out(x, 0.4)
    y.backward(torch.full_like(y, 2.0))
    factor = 1 / (1 - 0.4)
    torch.testing.assert_close(x.grad, torch.where(y == 0, 0.0, 2 * factor).to(dtype))
    torch.testing.assert_close(y, (x * x.grad / 2).to(dtype), rtol=1e-2 if dtype == torch.bfloat16 else 1e-6, atol=0)


def test_does_nothing_outside_training_or_at_zero() -> None:
    """Catches dropout that stays enabled, and copies when nothing is dropped."""
    x = torch.ones(5)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0).train()(x) is x
    assert repr(Dropout(0.5)) == "Dropout(p=0.5)"
