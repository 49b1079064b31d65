"""The norm of a residual sum in training, against the formula in float64."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from transformer.blocks import (
    EncoderLayer,
    FeedForwardBlock,
    LayerNormalization,
    MultiHeadAttention,
    ResidualConnection,
    RMSNormalization,
)
from transformer.kernels import unavailable_reason
from transformer.kernels.elementwise import drop_out
from transformer.kernels.normalization import dropout_add_norm, dropout_add_norm_backward, supports_dropout_width
from transformer.training.activation_checkpointing import checkpoint_layers
from transformer.training.cpu_ops import dispatch as products
from transformer.training.cpu_ops.dispatch import CpuKernelMode
from transformer.training.cpu_ops.linear import BF16_COPY

pytestmark = pytest.mark.skipif(unavailable_reason() is not None, reason=f"no compiled kernels: {unavailable_reason()}")
LEVELS, SEED, EPS = 20_000, -7, 1e-3


def expected(x: Tensor, y: Tensor, alpha: Tensor, beta: Tensor, scaled_mask: Tensor) -> Tensor:
    """Returns the norm of x plus the elements of y that dropout keeps, from the formula."""
    sums = x + y * scaled_mask
    centred = sums - sums.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + EPS).sqrt() * alpha + beta


@pytest.mark.parametrize("dropped", [0, LEVELS])
@pytest.mark.parametrize("y_type", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1, 128), (3, 5, 256), (70, 128), (600, 512)])
def test_norm_of_a_sum_and_its_gradients(shape: tuple[int, ...], y_type: torch.dtype, dropped: int) -> None:
    """Catches a mean not subtracted, another mask in the backward pass, and rows missing in alpha's gradient."""
    x, y = torch.randn(shape) + 3, torch.randn(shape).to(y_type)
    alpha, beta = torch.randn(2, shape[-1])
    scaled_mask = drop_out(torch.ones(shape), dropped, SEED, dtype=torch.float32).double()
    assert (scaled_mask == 0).any() == (dropped > 0)
    references = [tensor.double().requires_grad_() for tensor in (x, y, alpha, beta)]
    rounded = torch.empty(shape, dtype=torch.bfloat16)
    out, *saved = dropout_add_norm(x, y, alpha, beta, EPS, dropped, SEED, rounded)
    assert torch.equal(rounded, out.to(rounded.dtype))
    expected_out = expected(*references, scaled_mask)
    torch.testing.assert_close(out.double(), expected_out, atol=1e-5, rtol=1e-5)
    d_out = torch.randn(shape)
    expected_out.backward(d_out.double())
    actual = dropout_add_norm_backward(d_out, *saved, alpha, y_type, dropped, SEED)
    for name, gradient, reference in zip(["x", "y", "alpha", "beta"], actual, references, strict=True):
        assert reference.grad is not None
        rounded = name == "y" and y_type == torch.bfloat16
        scale = max(1.0, reference.grad.abs().max().item())
        torch.testing.assert_close(
            gradient.double(), reference.grad, atol=1e-5 * scale, rtol=2**-8 if rounded else 1e-5
        )


def test_sums_do_not_depend_on_threads() -> None:
    """Catches gradients of alpha and beta whose order of summation depends on threads."""
    x, y, alpha, d_out = torch.randn(700, 256), torch.randn(700, 256), torch.randn(256), torch.randn(700, 256)
    actual: list[tuple[Tensor, ...]] = []
    n_threads = torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            out, *saved = dropout_add_norm(x, y, alpha, alpha, EPS, LEVELS, SEED)
            actual.append((out, *dropout_add_norm_backward(d_out, *saved, alpha, y.dtype, LEVELS, SEED)))
    finally:
        torch.set_num_threads(n_threads)
    assert all(torch.equal(one, other) for one, other in zip(*actual, strict=True))


@pytest.mark.parametrize("width", [128, 100])
@pytest.mark.parametrize("is_frozen", [False, True])
def test_a_residual_connection_is_the_same_within_and_without(width: int, *, is_frozen: bool) -> None:
    """Catches another norm than the connection's, a missing epsilon, a gradient of a frozen norm, and two passes."""
    assert supports_dropout_width(width) == (width == 128)
    block = ResidualConnection(width, 0.0, order="post")
    assert isinstance(block.norm, LayerNormalization)
    nn.init.normal_(block.norm.alpha)
    nn.init.normal_(block.norm.beta)
    block.norm.eps = 0.1
    block.norm.requires_grad_(not is_frozen)
    linear = nn.Linear(width, width)
    results: list[list[Tensor]] = []
    for is_within in (False, True):
        x = torch.randn(4, 7, width, generator=torch.Generator().manual_seed(1)).requires_grad_()
        inputs = [x, linear.weight, *([] if is_frozen else [block.norm.alpha, block.norm.beta])]
        if is_within:
            with CpuKernelMode():
                out = block(x, linear)
            assert out.grad_fn is not None
            assert ("_AddNorm" in out.grad_fn.name()) == supports_dropout_width(width)
        else:
            out = block(x, linear)
        results.append([out, *torch.autograd.grad(out.square().sum(), inputs)])
    for expected_value, actual in zip(*results, strict=True):
        torch.testing.assert_close(expected_value, actual, atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("first", [None, 3])
@pytest.mark.parametrize("is_training", [False, True])
@pytest.mark.parametrize("is_rounded", [False, True])
@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_one_pass_is_what_two_are(
    first: int | None, monkeypatch: pytest.MonkeyPatch, *, is_training: bool, is_rounded: bool, is_checkpointed: bool
) -> None:
    """Catches another mask in the backward pass or recomputation, dropout in evaluation, and wrong strides."""
    torch.manual_seed(3)
    block, linear = ResidualConnection(128, 0.3, order="post").train(is_training), nn.Linear(128, 128)
    x = torch.randn(4, 7, 128, requires_grad=True)

    def forward(x: Tensor) -> Tensor:
        with CpuKernelMode():
            return block(x[:, :first], linear)

    results: list[list[Tensor]] = []
    for is_one_pass in (False, True):
        if not is_one_pass:
            monkeypatch.setattr(products.normalization, "supports_dropout_width", lambda width: False)
        torch.manual_seed(4)
        with torch.autocast("cpu", torch.bfloat16, enabled=is_rounded):
            out = checkpoint(forward, x, use_reentrant=False) if is_checkpointed else forward(x)
            assert isinstance(out, Tensor)
            loss = out.sum() + out.square().sum()
            gradients = torch.autograd.grad(loss, [x, linear.weight, block.norm.alpha, block.norm.beta])  # pyright: ignore[reportArgumentType]
        results.append([out, *gradients])
        monkeypatch.undo()
    for two_pass_value, one_pass_value in zip(*results, strict=True):
        torch.testing.assert_close(
            two_pass_value, one_pass_value, atol=1e-2 if is_rounded else 1e-4, rtol=1e-2 if is_rounded else 1e-4
        )


@pytest.mark.parametrize("is_rounded", [False, True])
def test_what_is_added_to_is_also_mapped(*, is_rounded: bool) -> None:
    """Catches a gradient counted twice or lost where a linear layer adds to it, also in a second backward pass."""
    torch.manual_seed(3)
    first, second = (ResidualConnection(128, 0.0, order="post") for _ in range(2))
    linear = nn.Linear(128, 128)
    x = torch.randn(4, 7, 128, requires_grad=True)
    hooked_gradients: list[Tensor] = []
    x.register_hook(hooked_gradients.append)
    results: list[tuple[Tensor, ...]] = []
    for is_within in (True, True, False):
        with torch.autocast("cpu", torch.bfloat16, enabled=is_rounded):
            if is_within:
                with CpuKernelMode():
                    out = second(first(x, linear), linear) + linear(x)
            else:
                out = second(first(x, linear), linear) + linear(x)
        loss = out.float().square().sum()
        once = torch.autograd.grad(loss, [x, linear.weight, linear.bias], retain_graph=True)
        again = torch.autograd.grad(loss, [x, linear.weight, linear.bias])
        assert all(map(torch.equal, once, again))
        assert torch.equal(hooked_gradients[-1], once[0])
        results.append(once)
    assert all(map(torch.equal, results[0], results[1]))
    for actual, expected_value in zip(results[0], results[2], strict=True):
        assert (actual - expected_value).norm() <= (2e-2 if is_rounded else 1e-5) * expected_value.norm()


def test_a_result_without_gradient_leaves_the_others_theirs() -> None:
    """Catches a backward pass that stops at a layer whose output is unused or whose input is detached."""
    block, linear, unused = ResidualConnection(128, 0.0, order="post"), nn.Linear(128, 128), nn.Linear(128, 128)
    x = torch.randn(2, 3, 128, requires_grad=True)
    with CpuKernelMode():
        out = block(x, lambda whole: (unused(whole), linear(whole.detach()))[1])
    actual, unused_gradient = torch.autograd.grad(out.square().sum(), [x, unused.weight], allow_unused=True)
    assert unused_gradient is None
    reference = torch.autograd.grad(block(x, lambda whole: linear(whole.detach())).square().sum(), [x])[0]
    torch.testing.assert_close(actual, reference, atol=1e-4, rtol=1e-4)


def test_a_rounded_result_is_forgotten_once_it_changes() -> None:
    """Catches a linear layer that reads a norm's output as it was before a change in place."""
    block, linear = ResidualConnection(128, 0.0, order="post"), nn.Linear(128, 128)
    with torch.autocast("cpu", torch.bfloat16), CpuKernelMode():
        out = block(torch.randn(2, 3, 128, requires_grad=True), torch.sin)
        before = linear(out)
        after = linear(out.mul_(0))
    assert before.any()
    assert torch.equal(after, linear.bias.bfloat16().expand_as(after))


def test_inputs_that_are_kept_alone_have_no_rounded_copy() -> None:
    """Catches 50 % more memory with activation checkpointing."""
    layers = nn.ModuleList(
        EncoderLayer(128, MultiHeadAttention(128, 4), FeedForwardBlock(128, 64, 0.0), 0.0, order="post")
        for _ in range(2)
    )
    checkpoint_layers(layers)
    x, actual = torch.randn(2, 3, 128, requires_grad=True), list[Tensor]()
    with torch.autocast("cpu", torch.bfloat16):
        for layer in layers:
            x = layer(x, None)
            actual.append(x)
    assert [hasattr(output, BF16_COPY) for output in actual] == [False, True]


class Doubled(LayerNormalization):
    """A norm with another formula."""

    def forward(self, x: Tensor) -> Tensor:
        """Returns twice the norm."""
        return 2 * super().forward(x)


def hooked(width: int) -> LayerNormalization:
    """Returns a norm with a forward hook that changes its output."""
    norm = LayerNormalization(width)
    norm.register_forward_hook(lambda module, inputs, output: 3 * output)
    return norm


def strided(width: int) -> LayerNormalization:
    """Returns a norm whose gains are not contiguous."""
    norm = LayerNormalization(width)
    norm.alpha = nn.Parameter(torch.randn(width, 2)[:, 0])
    return norm


@pytest.mark.parametrize("norm", [Doubled, hooked, strided, RMSNormalization])
def test_other_norms_are_left_to_torch(norm: Callable[[int], nn.Module]) -> None:
    """Catches a norm whose formula, hooks or strides are ignored."""
    block, x = ResidualConnection(128, 0.0, order="post", norm=norm), torch.randn(2, 3, 128)
    with CpuKernelMode():
        actual = block(x, torch.sin)
    torch.testing.assert_close(actual, block.norm(x + x.sin()))


def test_a_norm_of_another_width_is_an_error() -> None:
    """Catches gains that are read or written out of bounds."""
    block = ResidualConnection(256, 0.0, order="post", norm=lambda width: LayerNormalization(width // 2))
    with CpuKernelMode(), pytest.raises(RuntimeError, match="normalized_shape"):
        block(torch.randn(2, 3, 256), torch.sin)


def test_rows_with_nan_and_none_at_all() -> None:
    """Catches NaN that is lost, or that spreads to other rows."""
    x = torch.randn(3, 128)
    x[1, 5] = torch.nan
    out, *_ = dropout_add_norm(x, torch.randn(3, 128), torch.ones(128), torch.zeros(128), EPS, LEVELS, SEED)
    assert out[1].isnan().all()
    assert out[[0, 2]].isfinite().all()
    out, *saved = dropout_add_norm(x[:0], x[:0], torch.ones(128), torch.zeros(128), EPS, LEVELS, SEED)
    *_, d_alpha, d_beta = dropout_add_norm_backward(out, *saved, torch.ones(128), x.dtype, LEVELS, SEED)
    assert not d_alpha.any()
    assert not d_beta.any()
