"""The feed-forward network and its activations in training, compared with PyTorch in float64."""

import pytest
import torch
import torch.nn.functional as F

from substitution import substitute
from transformer.blocks import FeedForwardBlock
from transformer.blocks.feed_forward import ACTIVATIONS
from transformer.kernels import unavailable_reason
from transformer.kernels.elementwise import gelu
from transformer.training.cpu_ops.dispatch import CpuKernelMode
from transformer.training.cpu_ops.dropout import cpu_dropout

pytestmark = pytest.mark.skipif(unavailable_reason() is not None, reason=f"no compiled kernels: {unavailable_reason()}")
FLOAT32, BF16 = torch.float32, torch.bfloat16


@pytest.mark.parametrize("precision", [FLOAT32, BF16])
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_and_its_slope(approximate: str, precision: torch.dtype) -> None:
    """Catches a wrong term of the derivative, and a last vector that is left out."""
    x, dy = (
        torch.cat([torch.randn(10003) * 3, torch.tensor([0.0, -0.0, 30.0, -30.0])]).to(precision) for _ in range(2)
    )
    exact = x.double().requires_grad_()
    expected = F.gelu(exact, approximate=approximate)
    (slope,) = torch.autograd.grad(expected, exact, dy.double())
    tolerance = 2e-5 if precision == FLOAT32 else 2e-2
    inputs = x.clone().requires_grad_()
    with CpuKernelMode():
        y = F.gelu(inputs, approximate=approximate)
    (actual,) = torch.autograd.grad(y, inputs, dy)
    assert "_Gelu" in str(y.grad_fn)
    torch.testing.assert_close(y.double(), expected, atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(actual.double(), slope, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh", "silu"])
@pytest.mark.parametrize("p", [0.0, 0.25])
@pytest.mark.parametrize("precision", [FLOAT32, BF16])
def test_the_feed_forward_network(precision: torch.dtype, p: float, activation: str) -> None:
    """Catches a derivative of the activation or of dropout that is lost, applied twice, or of another element."""
    block = FeedForwardBlock(37, 70, p, activation=ACTIVATIONS[activation])
    x, dy = torch.randn(3, 11, 37, requires_grad=True), torch.randn(3, 11, 37)
    torch.manual_seed(3)
    # Dropout with the seed of the block below.
    scaled_mask = cpu_dropout(torch.ones(33, 70, dtype=precision), p).double().view(3, 11, 70)
    torch.manual_seed(3)
    with torch.autocast("cpu", BF16, enabled=precision == BF16), CpuKernelMode():
        y = block(x)
    assert ("_FeedForward" if activation != "silu" else "_Linear") in str(y.grad_fn)
    assert y.dtype == precision
    inputs = [x, *block.parameters()]
    exact = [
        tensor.detach().to(precision if tensor.dim() > 1 else FLOAT32).double().requires_grad_() for tensor in inputs
    ]
    inner = ACTIVATIONS[activation](exact[0] @ exact[1].t() + exact[2]) * (scaled_mask if p else 1.0)
    expected = inner @ exact[3].t() + exact[4]
    actual, expected_gradients = (
        torch.autograd.grad(y, inputs, dy.to(y.dtype)),
        torch.autograd.grad(expected, exact, dy.double()),
    )
    tolerance = 1e-5 if precision == FLOAT32 else 1e-2
    for value, exact_value in zip((y, *actual), (expected, *expected_gradients), strict=True):
        assert (value.double() - exact_value).norm() < tolerance * exact_value.norm()
    frozen = [block.linear_1.weight.requires_grad_(False), x.requires_grad_(False)]
    with torch.autocast("cpu", BF16, enabled=precision == BF16), CpuKernelMode():
        block(x).float().sum().backward()
    assert [tensor.grad for tensor in frozen] == [None, None]
    assert block.linear_1.bias.grad is not None


def test_words_for_gelu_are_torchs() -> None:
    """Catches a misspelt value of `approximate` that selects the exact function."""
    with CpuKernelMode(), pytest.raises(RuntimeError, match="approximate"):
        F.gelu(torch.ones(3), approximate="tan")


def test_a_gradient_of_a_gradient_is_refused() -> None:
    """Catches a second derivative that is silently zero."""
    x, weight = torch.randn(3, 4, requires_grad=True), torch.randn(5, 4, requires_grad=True)
    with CpuKernelMode():
        y = F.linear(x, weight)
    (dx,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        dx.sum().backward()


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_slopes_are_for_those_who_go_back(approximate: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a validation that computes and stores derivatives that are not needed."""
    requests: list[bool] = []

    def recorded_gelu(*args: object, needs_derivatives: bool, **options: object) -> object:
        requests.append(needs_derivatives)
        return gelu(*args, needs_derivatives=needs_derivatives, **options)  # pyright: ignore[reportArgumentType]

    for module in ("linear", "dispatch"):
        substitute(monkeypatch, f"{module}.gelu", recorded_gelu)
    x = torch.randn(3, 5, 8, requires_grad=True)
    block = FeedForwardBlock(8, 16, 0.0, activation=ACTIVATIONS["gelu" if approximate == "none" else "gelu_tanh"])
    for is_trained in (True, False):
        with torch.set_grad_enabled(is_trained), CpuKernelMode():
            block(x)
            F.gelu(x, approximate=approximate)
    assert requests == [True, True, False, False]
