"""The norm of a residual sum in training, against the formula in float64."""

import pytest
import torch
from torch import Tensor, nn

from transformer.blocks import LayerNormalization, ResidualConnection
from transformer.kernels import why_not
from transformer.kernels.elementwise import drop_out
from transformer.kernels.normalization import add_dropped_norm, add_dropped_norm_gradients, whole_draws
from transformer.training.products import CompiledProducts

pytestmark = pytest.mark.skipif(why_not() is not None, reason=f"no compiled kernels: {why_not()}")
LEVELS, SEED, EPS = 20_000, -7, 1e-3


def expected(x: Tensor, y: Tensor, alpha: Tensor, beta: Tensor, kept: Tensor) -> Tensor:
    """In float64, of what is kept of y."""
    sums = x + y * kept
    centred = sums - sums.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + EPS).sqrt() * alpha + beta


@pytest.mark.parametrize("dropped", [0, LEVELS])
@pytest.mark.parametrize("y_type", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1, 128), (3, 5, 256), (70, 128), (600, 512)])
def test_norm_of_a_sum_and_its_gradients(shape: tuple[int, ...], y_type: torch.dtype, dropped: int) -> None:
    """Catches a mean that is not taken off, other elements dropped on the way back, and rows that alpha's sum lacks."""
    x, y, alpha, beta = (
        torch.randn(shape) + 3,
        torch.randn(shape).to(y_type),
        torch.randn(shape[-1]),
        torch.randn(shape[-1]),
    )
    kept = drop_out(torch.ones(shape), dropped, SEED, dtype=torch.float32).double()
    assert (kept == 0).any() == (dropped > 0)
    wide = [each.double().requires_grad_() for each in (x, y, alpha, beta)]
    out, *made_of = add_dropped_norm(x, y, alpha, beta, EPS, dropped, SEED)
    wanted = expected(*wide, kept)
    torch.testing.assert_close(out.double(), wanted, atol=1e-5, rtol=1e-5)
    d_out = torch.randn(shape)
    wanted.backward(d_out.double())
    found = add_dropped_norm_gradients(d_out, *made_of, alpha, y_type, dropped, SEED)
    for name, gradient, of in zip(["x", "y", "alpha", "beta"], found, wide, strict=True):
        assert of.grad is not None
        rounded = name == "y" and y_type == torch.bfloat16
        scale = max(1.0, of.grad.abs().max().item())
        torch.testing.assert_close(gradient.double(), of.grad, atol=1e-5 * scale, rtol=2**-8 if rounded else 1e-5)


def test_sums_do_not_depend_on_threads() -> None:
    """Catches gradients of alpha and beta that are summed by whichever thread is there."""
    x, y, alpha, d_out = torch.randn(700, 256), torch.randn(700, 256), torch.randn(256), torch.randn(700, 256)
    found: list[tuple[Tensor, ...]] = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            out, *made_of = add_dropped_norm(x, y, alpha, alpha, EPS, LEVELS, SEED)
            found.append((out, *add_dropped_norm_gradients(d_out, *made_of, alpha, y.dtype, LEVELS, SEED)))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.parametrize("width", [128, 100])
@pytest.mark.parametrize("is_frozen", [False, True])
def test_a_residual_connection_is_the_same_within_and_without(width: int, *, is_frozen: bool) -> None:
    """Catches a norm other than the connection's, an epsilon left out, one that wants no gradient, and two passes."""
    assert whole_draws(width) == (width == 128)
    block = ResidualConnection(width, 0.0, order="post")
    assert isinstance(block.norm, LayerNormalization)
    nn.init.normal_(block.norm.alpha)
    nn.init.normal_(block.norm.beta)
    block.norm.eps = 0.1
    block.norm.requires_grad_(not is_frozen)
    map_of = nn.Linear(width, width)
    results: list[list[Tensor]] = []
    for is_within in (False, True):
        x = torch.randn(4, 7, width, generator=torch.Generator().manual_seed(1)).requires_grad_()
        wanted = [x, map_of.weight, *([] if is_frozen else [block.norm.alpha, block.norm.beta])]
        if is_within:
            with CompiledProducts():
                out = block(x, map_of)
            assert out.grad_fn is not None
            assert ("NormalizedSum" in out.grad_fn.name()) == whole_draws(width)
        else:
            out = block(x, map_of)
        results.append([out, *torch.autograd.grad(out.square().sum(), wanted)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, atol=2e-4, rtol=2e-4)
