"""The training kernels, compared with the formulas in float64, and their use in training steps."""

import copy
import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from samples import fast_first
from substitution import substitute
from transformer.blocks import EncoderLayer, FeedForwardBlock, MultiHeadAttention, attention, causal_mask
from transformer.blocks.attention import fused_linear
from transformer.blocks.feed_forward import feed_forward
from transformer.kernels import library, unavailable_reason
from transformer.kernels.cross_entropy import to_gradient
from transformer.kernels.elementwise import column_sums, gelu, sum_of_squares
from transformer.kernels.gemm import Epilogue, matmul
from transformer.kernels.library import instruction_set
from transformer.training.backend import Backend
from transformer.training.cpu_ops.dispatch import CpuKernelMode, cpu_attention
from transformer.training.cpu_ops.linear import cpu_fused_linear, cpu_linear
from transformer.training.objectives.cross_entropy import smoothed_cross_entropy

pytestmark = pytest.mark.skipif(unavailable_reason() is not None, reason=f"no compiled kernels: {unavailable_reason()}")
FLOAT32, BF16 = torch.float32, torch.bfloat16
CPU = torch.device("cpu")


def stored(rows: int, columns: int, dtype: torch.dtype, *, is_transposed: bool) -> Tensor:
    """Returns a random matrix with contiguous rows or columns and gaps between them."""
    if is_transposed:
        return stored(columns, rows, dtype, is_transposed=False).t()
    return torch.randn(rows, columns + 3, dtype=torch.float64).to(dtype)[:, :columns]


@pytest.mark.parametrize("precision", [FLOAT32, BF16])
@pytest.mark.parametrize(
    "sizes",
    [
        (1, 1, 1), (7, 5, 3), (50, 33, 70), (197, 1025, 130), (9, 9001, 70), (500, 30, 200), (267, 71, 229),
        (5, 64, 300), (6, 513, 64), (50, 64, 70), (49, 2, 65), (4, 0, 3), (0, 4, 3), (3, 4, 0), (3, 32, 0), (0, 32, 3),
    ],
)  # fmt: skip
def test_matrices_of_every_layout(precision: torch.dtype, sizes: tuple[int, int, int]) -> None:
    """Catches a panel, a part of the inner axis or a last row that is read or written at the wrong address."""
    m, k, n = sizes
    types = [FLOAT32, BF16] if precision == BF16 else [FLOAT32]
    bias = torch.randn(n)
    for turned_a, turned_b, type_a, type_b, type_out in itertools.product((0, 1), (0, 1), types, types, types):
        a, b = stored(m, k, type_a, is_transposed=bool(turned_a)), stored(k, n, type_b, is_transposed=bool(turned_b))
        actual = matmul(a, b, Epilogue(bias), precision=precision, out=torch.empty(m, n, dtype=type_out))
        expected = a.to(precision).double() @ b.to(precision).double() + bias
        tolerance = {"atol": 4e-5 * k**0.5, "rtol": 1e-5} if type_out == FLOAT32 else {"atol": 0.02, "rtol": 0.02}
        torch.testing.assert_close(actual.double(), expected, **tolerance)


@pytest.mark.parametrize("precision", [FLOAT32, BF16])
@pytest.mark.parametrize("columns", [37, 64])
def test_a_product_is_added_and_leaves_the_rest_alone(precision: torch.dtype, columns: int) -> None:
    """Catches a sum that is lost where the inner axis is split, and a store beyond the last row or column."""
    a, b, buffer = torch.randn(34, 9001), torch.randn(9001, columns), torch.full((36, columns + 3), 7.0)
    exact = a.to(precision).double() @ b.to(precision).double()
    for epilogue, added in ((Epilogue(accumulate=True), 7), (Epilogue(), 0)):
        matmul(a, b, epilogue, precision=precision, out=buffer[:34, :columns])
        torch.testing.assert_close(buffer[:34, :columns].double(), exact + added, atol=5e-3, rtol=1e-5)
        assert (buffer[:, columns:] == 7).all()
        assert (buffer[34:] == 7).all()


@pytest.mark.parametrize("precision", [FLOAT32, BF16])
@pytest.mark.parametrize("k", [33, 9001])
def test_products_are_finished_once(precision: torch.dtype, k: int) -> None:
    """Catches an epilogue that is applied before the sum is complete, and a gate of another element."""
    a, b, bias = torch.randn(13, k), torch.randn(k, 70), torch.randn(70)
    relu_output = torch.randn(13, 80).to(precision)[:, 5:75]
    exact = a.to(precision).double() @ b.to(precision).double()
    before = torch.randn(13, 70)
    epilogue = Epilogue(bias, accumulate=True, relu=True, relu_output=relu_output, factor=1.5)
    actual = matmul(a, b, epilogue, precision=precision, out=before.clone())
    expected = 1.5 * (exact + before + bias).clamp(min=0) * (relu_output > 0)
    torch.testing.assert_close(actual.double(), expected, atol=5e-3, rtol=1e-5)
    matmul(a, b, Epilogue(derivatives=relu_output), precision=precision, out=actual)
    torch.testing.assert_close(actual.double(), exact * relu_output, atol=5e-3, rtol=1e-5)
    relu_output[:] = torch.nan  # NaN must not block the gradient as 0 does
    assert matmul(a, b, Epilogue(relu_output=relu_output), precision=precision, out=actual).abs().sum() > 0
    assert matmul(a.fill_(float("nan")), b, Epilogue(relu=True), precision=precision, out=actual).isnan().all()


@pytest.mark.parametrize("precision", [FLOAT32, BF16])
@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize(
    "sizes", [(1, 1, 1), (197, 1025, 130), (33, 9001, 7), (500, 30, 200), (4, 0, 3), (128, 3000, 64)]
)
def test_rows_are_summed_on_the_way(
    sizes: tuple[int, int, int], precision: torch.dtype, *, is_transposed: bool
) -> None:
    """Catches rows, or parts of them, that are summed twice or never, and sums that depend on threads."""
    m, k, n = sizes
    a, b = stored(m, k, precision, is_transposed=is_transposed), torch.randn(k, n)
    exact, initial_sums, initial_out = a.double().sum(1), torch.randn(m), torch.randn(m, n)
    results = list[Tensor]()
    for count in (1, 3):
        torch.set_num_threads(count)
        for accumulate in (False, True):
            sums, out = initial_sums.clone(), initial_out.clone()
            matmul(a, b, Epilogue(accumulate=accumulate, row_sums=sums), precision=precision, out=out)
            expected = a.double() @ b.to(precision).double() + accumulate * initial_out
            torch.testing.assert_close(out.double(), expected, atol=5e-3, rtol=1e-5)
            torch.testing.assert_close(sums.double(), exact + accumulate * initial_sums, atol=2e-3, rtol=1e-5)
            results.append(sums)
    assert all(torch.equal(one, other) for one, other in zip(results[:2], results[2:], strict=True))


@pytest.mark.parametrize("turned", [(0, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("unit", [1.0, 1e-18, 1e-34, 1e18])
def test_float32_is_as_exact_as_its_24_bits(turned: tuple[int, int], unit: float) -> None:
    """Catches bits lost or mixed up where float32 is split into parts, also if the last part is subnormal."""
    k = 300
    a = stored(230, k, FLOAT32, is_transposed=bool(turned[0]))
    b = stored(k, 210, FLOAT32, is_transposed=bool(turned[1]))
    a *= unit
    a[7] *= 10.0 ** torch.linspace(-6, 0, k)
    exact, magnitude = a.double() @ b.double(), a.double().abs() @ b.double().abs()
    actual = matmul(a, b, precision=FLOAT32, out=torch.empty(230, 210))
    assert ((actual - exact).abs() <= 4e-7 * magnitude + k * 2.0**-126).all()


def test_what_is_too_large_stays_known_as_such() -> None:
    """Catches an overflow that becomes a finite number, and numbers near the largest that become infinite."""
    a, b = torch.ones(230, 64), torch.full((64, 210), 0.01)
    a[1, 2], a[2, 3], a[3, 4], a[4, 5] = math.inf, math.nan, 3.4e38, -3.4e38
    actual = matmul(a, b, precision=FLOAT32, out=torch.empty(230, 210))
    assert not actual[1:3].isfinite().any()
    torch.testing.assert_close(actual[3:5], torch.tensor([3.4e36, -3.4e36])[:, None].expand(2, 210))
    assert (matmul(a[3:4].expand(230, 64) * 1.0, b * 1e3, precision=FLOAT32, out=actual) == math.inf).all()


def test_rows_of_odd_length_are_read_where_they_lie() -> None:
    """Catches a read of the element after the end of a row as part of it."""
    buffer = torch.zeros(6, 8, dtype=BF16)
    buffer[:, :7] = torch.randn(6, 7)
    a, b = buffer[:, :7], torch.randn(7, 5)
    actual = matmul(a, b, precision=BF16, out=torch.empty(6, 5), is_padded=True)
    torch.testing.assert_close(actual.double(), a.double() @ b.bfloat16().double(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("precision", [FLOAT32, BF16])
@pytest.mark.parametrize(("m", "k", "n"), [(401, 700, 333), (600, 4096, 700), (130, 3001, 37)])
def test_sums_do_not_depend_on_threads(precision: torch.dtype, m: int, k: int, n: int) -> None:
    """Catches sums formed in another order by several threads, and panels overwritten while they are read.

    The second product has more columns and rows than are packed at a time; threads share the inputs of the third.
    """
    a, b = torch.randn(k, m).t(), torch.randn(k, n)
    results: list[Tensor] = []
    for count in (1, 2, 3, 11):
        torch.set_num_threads(count)
        results.append(matmul(a, b, precision=precision, out=torch.empty(m, n)))
    assert all(torch.equal(result, results[0]) for result in results)
    expected = a.to(precision).double() @ b.to(precision).double()
    torch.testing.assert_close(results[0].double(), expected, atol=3e-3, rtol=1e-5)


@pytest.mark.parametrize(("precision", "out_type"), [(FLOAT32, FLOAT32), (BF16, FLOAT32), (BF16, BF16)])
@pytest.mark.parametrize("columns", fast_first([1061, 1056], 1))
@pytest.mark.parametrize("k", fast_first([1090, 96, 2080], 1))
def test_large_results(precision: torch.dtype, out_type: torch.dtype, columns: int, k: int) -> None:
    """Catches cache lines written without their epilogue, and columns that two threads, or none, compute.

    With AMX, threads share columns of the shortest product and rows of the others, and the rows of the second are
    packed. Results of several threads are written past the caches.
    """
    a, b, bias = torch.randn(205, k).to(precision), torch.randn(k, columns), torch.randn(columns)
    relu_output = torch.randn(205, columns).to(precision)
    exact = a.double() @ b.to(precision).double()
    buffer = torch.full((207, 1088), 7.0, dtype=out_type)  # rows of whole cache lines
    out = buffer[1:206, :columns]
    gated = (exact + bias) * (relu_output > 0)
    cases = [
        (Epilogue(), exact),
        (Epilogue(bias, relu_output=relu_output), gated),
        (Epilogue(derivatives=relu_output), exact * relu_output),
    ]
    if out_type == FLOAT32:
        cases.append((Epilogue(accumulate=True), 2 * exact))
    tolerance = {"atol": 2e-3, "rtol": 1e-5} if out_type == FLOAT32 else {"atol": 0.02, "rtol": 0.02}
    for (epilogue, expected), count in itertools.product(cases, (1, 2, 3)):
        torch.set_num_threads(count)
        out[:] = exact if epilogue.accumulate else torch.nan
        matmul(a, b, epilogue, precision=precision, out=out)
        torch.testing.assert_close(out.double(), expected, **tolerance)
        assert (buffer[[0, 206]] == 7).all()
        assert (buffer[:, columns:] == 7).all()


def test_matrices_that_do_not_fit_are_refused() -> None:
    """Catches reads and writes out of bounds."""
    a, b, out = torch.ones(4, 6), torch.ones(6, 8), torch.empty(4, 8)
    wrong: list[Callable[[], Any]] = [
        lambda: matmul(a, torch.ones(5, 8), precision=FLOAT32, out=out),
        lambda: matmul(a, b, precision=FLOAT32, out=torch.empty(4, 7)),
        lambda: matmul(a, b, Epilogue(torch.ones(7)), precision=FLOAT32, out=out),
        lambda: matmul(a, b, precision=FLOAT32, out=torch.empty(8, 4).t()),
        lambda: matmul(torch.ones(4, 12)[:, ::2], b, precision=FLOAT32, out=out),
        lambda: matmul(a.to(BF16), b, precision=FLOAT32, out=out),
        lambda: matmul(a, b, Epilogue(accumulate=True), precision=BF16, out=out.to(BF16)),
        lambda: matmul(a, b, precision=torch.float16, out=out),
        lambda: matmul(a, b, Epilogue(relu_output=torch.ones(4, 7)), precision=FLOAT32, out=out),
        lambda: matmul(a, b, Epilogue(relu_output=out.to(BF16)), precision=FLOAT32, out=out),
        lambda: matmul(a, b, Epilogue(relu_output=out, derivatives=out), precision=FLOAT32, out=out.clone()),
        lambda: matmul(a, b, Epilogue(torch.ones(1).expand(8)), precision=FLOAT32, out=out),
        lambda: matmul(a, b, Epilogue(row_sums=torch.ones(5)), precision=FLOAT32, out=out),
        lambda: matmul(a, b, Epilogue(row_sums=torch.ones(4, dtype=BF16)), precision=FLOAT32, out=out),
        lambda: to_gradient(torch.zeros(2, 3), torch.zeros(3, dtype=torch.long), 0.0),
    ]
    for call in wrong:
        # jaxtyping, where it is enabled, raises for some of them first
        with pytest.raises((ValueError, TypeError), match=r"cannot|do not match|contiguous|parameter"):
            call()
    logits = torch.zeros(2, 3)
    with pytest.raises(IndexError, match="labels 1 to 3"):
        to_gradient(logits, torch.tensor([1, 3]), 0.0)
    assert not logits.any()


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("precision", [FLOAT32, BF16])
def test_linear_layers(precision: torch.dtype, *, has_bias: bool) -> None:
    """Catches a gradient of the wrong operand, a bias that is lost, and a dtype other than PyTorch's."""
    tensors = [torch.randn(3, 11, 37), torch.randn(29, 37), *([torch.randn(29)] if has_bias else [])]
    inputs, reference_inputs = ([x.clone().requires_grad_() for x in tensors] for _ in range(2))
    exact = [x.double().requires_grad_() for x in tensors]
    with torch.autocast("cpu", BF16, enabled=precision == BF16):
        y, reference = cpu_linear(*inputs), F.linear(*reference_inputs)
    assert "_Linear" in str(y.grad_fn)
    assert (y.dtype, y.shape) == (reference.dtype, reference.shape)
    expected, dy = F.linear(*exact), torch.randn(3, 11, 29)
    actual, expected_gradients = (
        torch.autograd.grad(y, inputs, dy.to(y.dtype)),
        torch.autograd.grad(expected, exact, dy.double()),
    )
    tolerance = 1e-5 if precision == FLOAT32 else 1.5e-2
    for value, exact_value in zip((y, *actual), (expected, *expected_gradients), strict=True):
        assert (value.double() - exact_value).norm() < tolerance * exact_value.norm()
    assert all(gradient.dtype == FLOAT32 for gradient in actual)


def test_one_row_and_one_column() -> None:
    """Catches strides of a single row or column, which are arbitrary, taken for those of the matrix."""
    x, weight = torch.randn(1, 3), torch.randn(1, 3, requires_grad=True)
    cpu_linear(x, weight).sum().backward()
    torch.testing.assert_close(weight.grad, x)


def test_a_batch_without_scored_positions_has_a_gradient_of_zero() -> None:
    """Catches uninitialized memory as the gradient of a projection."""
    weight = torch.randn(11, 5, requires_grad=True)
    nothing = torch.zeros(0, dtype=torch.long)
    smoothed_cross_entropy(torch.zeros(0, 5, requires_grad=True), weight, None, nothing, 0.1)[0].backward()
    assert torch.equal(gradient_of(weight), torch.zeros(11, 5))


@pytest.mark.parametrize(("precision", "x_dtype"), [(FLOAT32, FLOAT32), (BF16, FLOAT32), (BF16, BF16)])
def test_maps_side_by_side(precision: torch.dtype, x_dtype: torch.dtype) -> None:
    """Catches a linear layer that gets another's gradient, and a frozen one that gets any."""
    layers = [nn.Linear(24, 16), nn.Linear(24, 8, bias=False), nn.Linear(24, 40)]
    layers[2].weight.requires_grad_(requires_grad=False)
    x = torch.randn(3, 7, 24).to(x_dtype).requires_grad_()
    with torch.autocast("cpu", BF16, enabled=precision == BF16):
        actual = cpu_fused_linear(x, layers)
    exact_x = x.detach().double().requires_grad_()
    exact_layers = copy.deepcopy(layers)
    expected = [layer.double()(exact_x) for layer in exact_layers]
    gradients = [torch.randn(3, 7, layer.out_features) for layer in layers]
    torch.autograd.backward(actual, [gradient.to(y.dtype) for gradient, y in zip(gradients, actual, strict=True)])
    torch.autograd.backward(expected, [gradient.double() for gradient in gradients])
    tolerance = 1e-5 if precision == FLOAT32 else 2e-2
    parameters = zip(
        *([p for layer in module_list for p in layer.parameters()] for module_list in (layers, exact_layers)),
        strict=True,
    )
    pairs = [*zip(actual, expected, strict=True), (x.grad, exact_x.grad), *((a.grad, b.grad) for a, b in parameters)]
    assert layers[2].weight.grad is None
    for value, reference in pairs:
        assert (value is None) == (reference is None)
        if value is not None:
            assert (value - reference).norm() <= tolerance * reference.norm()


def test_a_frozen_weight_gets_no_gradient_and_its_input_does() -> None:
    """Catches a superfluous product, and a gradient that stops at frozen layers."""
    x, weight = torch.randn(5, 8, requires_grad=True), torch.randn(6, 8)
    cpu_linear(x, weight).sum().backward()
    torch.testing.assert_close(x.grad, weight.sum(0).expand(5, 8))
    assert weight.grad is None


@pytest.mark.parametrize("x_dtype", [torch.float64, torch.float16])
def test_other_types_are_left_to_torch(x_dtype: torch.dtype) -> None:
    """Catches numbers of another width that are read as float32."""
    x, weight = torch.randn(5, 8, dtype=x_dtype), torch.randn(6, 8, dtype=x_dtype)
    assert torch.equal(cpu_linear(x, weight), F.linear(x, weight))
    assert cpu_linear(torch.randn(5, 8), torch.randn(6, 8), torch.randn(6)).dtype == FLOAT32
    with torch.autocast("cpu", torch.float16):
        assert cpu_linear(torch.randn(5, 8), torch.randn(6, 8)).dtype == torch.float16
    with torch.autocast("cpu", BF16):
        half = torch.randn(6, dtype=BF16)  # the kernel reads a bias as float32
        assert torch.equal(cpu_linear(x.float(), weight.float(), half), F.linear(x.float(), weight.float(), half))


SHORT_AND_NEXT = [(1, 1, 16), (16, 16, 32), (17, 15, 32), (31, 32, 64), (32, 17, 48), (33, 32, 16), (5, 5, 80)]
"""Queries, positions and width of heads that the kernel for short heads computes, and of two just beyond its limits."""
MASKS: dict[str, Callable[[int, int], Tensor | None]] = {
    "none": lambda _, __: None,
    "padding": lambda _, s: torch.arange(s) < torch.tensor([s, max(1, s // 2)])[:, None, None, None],
    "causal": lambda t, s: causal_mask(max(t, s))[..., :t, :s],
    "nothing": lambda t, s: torch.rand(2, 1, t, s) < 0.2,
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("precision", [FLOAT32, BF16])
@pytest.mark.parametrize("sizes", [(7, 7, 8), (50, 50, 32), (5, 33, 20), (70, 131, 64), (1, 9, 16), *SHORT_AND_NEXT])
def test_attention_and_its_gradient(precision: torch.dtype, sizes: tuple[int, int, int], mask: str) -> None:
    """Catches a wrong factor of the softmax's gradient, swapped heads or positions, and a mask that is lost."""
    t, s, width = sizes
    tensors = [torch.randn(2, n, 3, width).transpose(1, 2).to(precision) for n in (t, s, s)]
    allowed = MASKS[mask](t, s)
    inputs, exact = [x.requires_grad_() for x in tensors], [x.detach().double().requires_grad_() for x in tensors]
    out, expected = cpu_attention(*inputs, allowed), attention(*exact, allowed)
    assert "_Attention" in str(out.grad_fn)
    d_out = torch.randn(2, 3, t, width).to(precision)
    actual, expected_gradients = (
        torch.autograd.grad(out, inputs, d_out),
        torch.autograd.grad(expected, exact, d_out.double()),
    )
    tolerance = 1e-5 if precision == FLOAT32 else 1.5e-2
    for value, exact_value in zip((out, *actual), (expected, *expected_gradients), strict=True):
        assert (value.double() - exact_value).norm() <= tolerance * exact_value.norm() + 1e-6


@pytest.mark.parametrize("precision", [FLOAT32, BF16])
def test_what_is_masked_or_far_below_weighs_nothing(precision: torch.dtype) -> None:
    """Catches an exponential that does not get below the smallest normal number, which large values reveal."""
    query = torch.ones(1, 1, 1, 16, dtype=precision)
    keys = (
        torch.tensor([0.0, -60.0, 0.0], dtype=precision)[:, None].expand(1, 1, 3, 16).contiguous()
    )  # scores 0, -240, 0
    values = torch.tensor([1.0, 3e38, 3e38], dtype=precision)[:, None].expand(1, 1, 3, 16).contiguous()
    allowed = torch.tensor([True, True, False]).expand(1, 1, 1, 3)
    for tensor in (query, keys, values):
        tensor.requires_grad_()
    out = cpu_attention(query, keys, values, allowed)
    assert "_Attention" in str(out.grad_fn)
    assert (out == 1).all()


@pytest.mark.skipif(
    instruction_set() != "avx512", reason="only the AVX-512 kernels have a separate attention for short heads"
)
@pytest.mark.parametrize("sizes", [(13, 13, 32), (1, 1, 16), (17, 31, 64), (32, 15, 48)])
def test_short_heads_have_the_bits_of_long_ones(sizes: tuple[int, int, int]) -> None:
    """Catches sums in another order, with which training on a sentence would depend on the length of its neighbours.

    Masked positions beyond the 32 of short heads do not change any sum.
    """
    t, s, width = sizes
    query, keys, values = (torch.randn(2, n, 3, width).transpose(1, 2).to(BF16) for n in (t, s, s))
    d_out = torch.randn(2, 3, t, width).to(BF16)
    results: list[tuple[Tensor, ...]] = []
    for padded_length in (s, 34):
        inputs = [query, *(F.pad(tensor, (0, 0, 0, padded_length - s)) for tensor in (keys, values))]
        inputs = [tensor.clone().requires_grad_() for tensor in inputs]
        out = cpu_attention(*inputs, (torch.arange(padded_length) < s)[None, None, None])
        d_query, *gradients = torch.autograd.grad(out, inputs, d_out)
        results.append((out, d_query, *(tensor[:, :, :s] for tensor in gradients)))
    assert all(torch.equal(short, long) for short, long in zip(*results, strict=True))


@pytest.mark.parametrize("precision", [FLOAT32, BF16])
@pytest.mark.parametrize("queries", [7, 9])
@pytest.mark.parametrize("has_bias", [False, True])
def test_gradients_that_lie_side_by_side_are_multiplied_together(
    queries: int, precision: torch.dtype, monkeypatch: pytest.MonkeyPatch, *, has_bias: bool
) -> None:
    """Catches swapped gradients of linear layers with one input, and products that are computed one by one."""
    layers = [nn.Linear(32, 64, bias=has_bias) for _ in range(3)]
    x, memory = torch.randn(3, queries, 32, requires_grad=True), torch.randn(3, 9, 32, requires_grad=True)
    inputs = [x, memory, *(parameter for layer in layers for parameter in layer.parameters())]
    shapes: list[tuple[int, ...]] = []

    def recorded_matmul(a: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        shapes.append(tuple(a.shape))
        return matmul(a, *args, **kwargs)

    def result(is_within: bool) -> Tensor:
        q, k, v = (cpu_fused_linear(x, layers) if is_within else fused_linear(x, layers)) if queries == 7 else (
            *(cpu_fused_linear(x, layers[:1]) if is_within else fused_linear(x, layers[:1])),
            *(cpu_fused_linear(memory, layers[1:]) if is_within else fused_linear(memory, layers[1:])),
        )  # fmt: skip
        q, k, v = (projected.unflatten(2, (4, 16)).transpose(1, 2) for projected in (q, k, v))
        return (cpu_attention if is_within else attention)(q, k, v)

    actual: list[tuple[Tensor | None, ...]] = []
    for is_within in (True, False):
        with torch.autocast("cpu", BF16, enabled=precision == BF16):
            out = result(is_within)
        substitute(monkeypatch, "linear.matmul", recorded_matmul)
        actual.append(torch.autograd.grad(out.float().square().sum(), inputs, allow_unused=True))
        monkeypatch.undo()
    weight_gradient_rows = sorted(rows for rows, inner in shapes if inner in (21, 27) and rows % 64 == 0)
    assert weight_gradient_rows == ([192] if queries == 7 else [64, 128])
    input_gradient_shapes = [(rows, inner) for rows, inner in shapes if inner % 64 == 0]
    assert sorted(input_gradient_shapes) == ([(21, 192)] if queries == 7 else [(27, 64), (27, 128)])
    largest = max(gradient.norm() for gradient in actual[1] if gradient is not None)
    for gradient, reference in zip(*actual, strict=True):
        assert (gradient is None) == (reference is None)
        if gradient is not None and reference is not None:
            assert (gradient - reference).norm() <= (
                1e-4 if precision == FLOAT32 else 3e-2
            ) * reference.norm() + 1e-3 * largest


def test_attention_with_a_bias_is_left_to_torch() -> None:
    """Catches a bias that is ignored, or has no gradient."""
    q = torch.randn(2, 3, 5, 8, requires_grad=True)
    bias = torch.randn(1, 3, 5, 5, requires_grad=True)
    cpu_attention(q, q, q, bias=bias).sum().backward()
    assert bias.grad is not None
    assert "_Attention" not in str(cpu_attention(q, q, q, mask=torch.ones(2, 3, 5, 5, dtype=torch.bool)).grad_fn)


@pytest.mark.parametrize("shape", [(1, 1), (700, 129), (3, 1000)])
def test_sums_of_columns(shape: tuple[int, int]) -> None:
    """Catches columns that are left out, and sums in bfloat16."""
    for x in (torch.randn(shape), torch.randn(shape).to(BF16)):
        torch.testing.assert_close(column_sums(x).double(), x.double().sum(0), atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("n", [0, 1, 70, 4096, 90_001])
def test_sums_of_squares(n: int) -> None:
    """Catches an element left out or read beyond the last, a sum that depends on threads, and NaN that is lost."""
    x = torch.randn(n + 1)[:n]
    actual: set[float] = set()
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        actual.add(sum_of_squares(x))
    assert len(actual) == 1
    assert actual.pop() == pytest.approx(x.double().square().sum().item(), rel=1e-5)
    others = torch.randn(5000, 3), torch.randn(0), torch.randn(3, 7).t()
    exact = sum(tensor.double().square().sum().item() for tensor in (x, *others))
    assert sum_of_squares(x, *others) == pytest.approx(exact, rel=1e-5)
    if n:
        x[-1] = torch.nan
        assert math.isnan(sum_of_squares(x))


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
@pytest.mark.parametrize("size", [2, 64, 1001])
def test_logits_become_their_gradient(size: int, epsilon: float) -> None:
    """Catches a wrong smoothing mass of the label, and a softmax that overflows."""
    logits, labels = torch.randn(9, size) * 30, torch.randint(0, size, (9,))
    exact = logits.double().requires_grad_()
    losses = [
        F.cross_entropy(exact, labels, reduction="none", label_smoothing=smoothing) for smoothing in (epsilon, 0.0)
    ]
    losses[0].sum().backward()
    actual = to_gradient(logits, labels, epsilon)
    torch.testing.assert_close(actual, torch.stack(losses, dim=1).detach(), atol=1e-4, rtol=1e-6)
    torch.testing.assert_close(logits.double(), exact.grad, atol=1e-6, rtol=1e-5)


def test_what_is_no_number_stays_none() -> None:
    """Catches a loss that stays finite although a model diverged: the step would not be refused."""
    x = torch.randn(6, 70)
    x[2, 3] = torch.nan
    for out in (FLOAT32, BF16):
        actual = matmul(x, torch.randn(70, 5), precision=BF16, out=torch.empty(6, 5, dtype=out))
        assert actual.isnan().all(dim=1).tolist() == [False, False, True, False, False, False]
    assert all(gelu(x, tanh_approximation=approximate)[0].isnan().sum() == 1 for approximate in (False, True))
    for q in (x.view(1, 1, 6, 70), x[:, :32].to(BF16).view(1, 1, 6, 32)):
        assert cpu_attention(q, q, q).isnan().any()
    assert to_gradient(x.clone(), torch.arange(6), 0.1)[2].isnan().all()
    assert to_gradient(torch.full((1, 3), torch.inf), torch.zeros(1, dtype=torch.long), 0.1).isnan().all()


class Counted(CpuKernelMode):
    """Records the functions that blocks call."""

    def __init__(self) -> None:
        super().__init__()
        self.functions: list[Any] = []

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Records the function and computes it."""
        self.functions.append(function)
        return super().__torch_function__(function, types, args, kwargs)


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_a_layer_computes_the_same_within_the_context(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a context that replaces no function, and blocks that do not work with the replacements."""
    block = FeedForwardBlock(32, 64, 0.0, activation=F.gelu)
    layer = EncoderLayer(32, MultiHeadAttention(32, 4), block, 0.0)
    x = torch.randn(3, 9, 32)
    mode = Counted()
    substitute(monkeypatch, "backend.CpuKernelMode", lambda: mode)
    results: list[list[Tensor]] = []
    for backend in (Backend(CPU, precision), None):
        layer.zero_grad()
        context = backend.compute_context() if backend else torch.autocast("cpu", BF16, enabled=precision == "bf16")
        with context:
            y = layer(x, torch.ones(3, 1, 1, 9, dtype=torch.bool))
        y.square().sum().backward()
        results.append([y.detach(), *(gradient_of(parameter) for parameter in layer.parameters())])
    assert [mode.functions.count(function) for function in (fused_linear, F.linear, feed_forward, attention)] == [
        1,
        1,
        1,
        1,
    ]
    tolerance = 1e-4 if precision == "float32" else 3e-2
    largest = max(tensor.norm() for tensor in results[1])  # the gradient of the keys' bias is 0 up to rounding
    for actual, expected in zip(*results, strict=True):
        assert (actual - expected).norm() <= tolerance * expected.norm() + 1e-3 * largest


def gradient_of(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad


def test_layers_are_not_replaced_outside_of_the_context() -> None:
    """Catches a context that does not end: later models would not use PyTorch's functions."""
    with CpuKernelMode():
        pass
    assert "_Linear" not in str(nn.Linear(3, 4)(torch.randn(2, 3)).grad_fn)


def test_structures_have_the_fields_of_the_kernels() -> None:
    """Catches a field that was added on one side only: sizes in C must equal those in Python."""
    from ctypes import sizeof

    from transformer.kernels.attention_autograd import TrainingAttentionArgs
    from transformer.kernels.gemm import EpilogueArgs, MatrixArgs

    compiled = library()
    assert compiled is not None
    names = (f"transformer_size_of_{name}" for name in ("matrix_view", "epilogue", "training_attention"))
    sizes = [getattr(compiled, name)() for name in names]
    assert sizes == [sizeof(structure) for structure in (MatrixArgs, EpilogueArgs, TrainingAttentionArgs)]
