"""Dropout of the blocks, and that without the kernels, which draws 16 bits per element."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from substitution import substitute
from transformer.blocks.dropout import Dropout, drop_out
from transformer.training.cpu_ops.dropout import cpu_dropout

N = 200_003
Drop = Callable[[Tensor, float], Tensor]


@pytest.fixture(autouse=True)
def no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    substitute(monkeypatch, "gemm.library", lambda: None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.7])
@pytest.mark.parametrize("drop", [drop_out, cpu_dropout])
def test_drops_the_share_it_should_and_keeps_the_mean(drop: Drop, p: float, dtype: torch.dtype) -> None:
    """Catches a wrong threshold, a wrong factor, and random bits that are always the same."""
    y = drop(torch.ones(N, dtype=dtype), p)
    for lane in range(4):  # four elements share a 64-bit number
        dropped = (y[lane::4] == 0).float().mean().item()
        assert dropped == pytest.approx(p, abs=5 * (p * (1 - p) * 4 / N) ** 0.5)
    scaled = y[y != 0].float()
    assert scaled.min() == scaled.max() == pytest.approx(1 / (1 - p), rel=1e-2 if dtype == torch.bfloat16 else 1e-4)


def test_neighbours_are_independent() -> None:
    """Catches elements that are decided by the same bits."""
    dropped = (cpu_dropout(torch.ones(N), 0.3) == 0).float()
    for distance in (1, 2, 3, 4, 5, 8):
        together = (dropped[distance:] * dropped[:-distance]).mean().item()
        assert together == pytest.approx(0.09, abs=5 * (0.09 * 0.91 / N) ** 0.5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("drop", "p"), [(drop_out, 0.4), (cpu_dropout, round(0.4 * 65536) / 65536)])
def test_gradient_passes_where_the_value_did(drop: Drop, p: float, dtype: torch.dtype) -> None:
    """Catches a new mask in the backward pass, also of a tensor that is not contiguous."""
    x = torch.randn(7, 11, 13).to(dtype).transpose(0, 2).requires_grad_()
    y = drop(x, p)
    y.backward(torch.full_like(y, 2.0))
    torch.testing.assert_close(x.grad, torch.where(y == 0, 0.0, 2 / (1 - p)).to(dtype))
    torch.testing.assert_close(y, (x * x.grad / 2).to(dtype), rtol=1e-2 if dtype == torch.bfloat16 else 1e-6, atol=0)


def test_is_drawn_from_torchs_generator() -> None:
    """Catches random numbers that do not depend on the seed, which exact resumption needs."""
    draws = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        draws.append(cpu_dropout(torch.ones(101), 0.5))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_no_probability_drops_everything_but_one() -> None:
    """Catches a division by zero where p rounds to 1."""
    assert cpu_dropout(torch.ones(11), 1 - 1e-9).isfinite().all()


def test_other_types_fall_back_to_torch() -> None:
    """Catches float64 whose bits are read as another type."""
    torch.manual_seed(1)
    y = cpu_dropout(torch.ones(1001, dtype=torch.float64), 0.5)
    assert set(y.tolist()) == {0.0, 2.0}


def test_does_nothing_outside_training_or_at_zero() -> None:
    """Catches dropout that stays enabled, and copies when nothing is dropped."""
    x = torch.ones(5)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0).train()(x) is x
    assert repr(Dropout(0.5)) == "Dropout(p=0.5)"
