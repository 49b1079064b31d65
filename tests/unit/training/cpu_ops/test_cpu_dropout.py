"""Dropout by the compiled kernels, compared with a generator in Python and with the formula in float64."""

import itertools

import pytest
import torch
from torch import Tensor

from transformer.blocks import attention
from transformer.blocks.dropout import add_dropout, drop_out
from transformer.kernels import unavailable_reason
from transformer.kernels.elementwise import drop_out as dropped
from transformer.training.cpu_ops.dispatch import CpuKernelMode

pytestmark = pytest.mark.skipif(unavailable_reason() is not None, reason=f"no compiled kernels: {unavailable_reason()}")
FLOAT32, BF16 = torch.float32, torch.bfloat16
P, LEVELS = 0.3, 19661
SCALE = 65536 / (65536 - LEVELS)
WORD = 2**32 - 1
Four = tuple[int, int, int, int]


def philox(counter: Four, key: tuple[int, int]) -> Four:
    """Computes Philox4x32-10 (Salmon et al. 2011, Sec. 3.3) with Python's integers."""
    for _ in range(10):
        left, right = counter[0] * 0xD2511F53, counter[2] * 0xCD9E8D57
        counter = (
            (right >> 32) ^ counter[1] ^ key[0], right & WORD, (left >> 32) ^ counter[3] ^ key[1], left & WORD
        )  # fmt: skip
        key = (key[0] + 0x9E3779B9) & WORD, (key[1] + 0xBB67AE85) & WORD
    return counter


def keep_mask(n: int, seed: int, levels: int) -> Tensor:
    """Returns which of n elements are kept.

    Each vector of 16 words yields 32 numbers, the lower halves first; a counter yields four vectors.
    """
    mask = torch.zeros(-(-n // 128) * 128, dtype=torch.bool)
    for block, lane in itertools.product(range(len(mask) // 128), range(16)):
        words = philox((block * 16 + lane, 0, 0, 0), (seed & WORD, seed >> 32))
        for word_index, word in enumerate(words):
            mask[block * 128 + word_index * 32 + lane] = (word & 0xFFFF) >= levels
            mask[block * 128 + word_index * 32 + 16 + lane] = (word >> 16) >= levels
    return mask[:n]


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((WORD,) * 4, (WORD, WORD), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ],
)
def test_the_reference_is_philox(counter: Four, key: tuple[int, int], expected: Four) -> None:
    """Catches a reference with the same error as the kernel: the expected values are the authors'."""
    assert philox(counter, key) == expected


@pytest.mark.parametrize("n", [1, 127, 129, 4096, 9001])
@pytest.mark.parametrize("seed", [0, 5, 2**64 - 3, 0x123456789ABCDEF])
def test_what_is_dropped_is_what_the_generator_says(n: int, seed: int) -> None:
    """Catches a misplaced counter, key or half of a number, and a block that restarts the sequence."""
    actual = dropped(torch.ones(n), LEVELS, seed, dtype=FLOAT32)
    torch.testing.assert_close(actual, keep_mask(n, seed, LEVELS) * SCALE)


@pytest.mark.parametrize(
    ("y_dtype", "residual_dtype"), [(FLOAT32, FLOAT32), (BF16, FLOAT32), (BF16, BF16), (BF16, None)]
)
@pytest.mark.parametrize("levels", [0, LEVELS])
def test_a_sum_of_any_types(y_dtype: torch.dtype, residual_dtype: torch.dtype | None, levels: int) -> None:
    """Catches wrong strides, a dtype that is read as another, and a residual that is scaled too."""
    y = torch.randn(31, 40).to(y_dtype).t()
    x = None if residual_dtype is None else torch.randn(40, 31).to(residual_dtype)
    actual = dropped(y, levels, 7, residual=x, dtype=residual_dtype or y_dtype)
    mask = keep_mask(y.numel(), 7, levels).view(40, 31)
    expected = torch.where(mask, y.double() * 65536 / (65536 - levels), 0.0) + (0.0 if x is None else x.double())
    torch.testing.assert_close(actual.double(), expected, rtol=1e-2 if actual.dtype == BF16 else 1e-6, atol=1e-5)


def test_does_not_depend_on_threads() -> None:
    """Catches random numbers that depend on the number of threads."""
    actual: list[Tensor] = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        actual.append(dropped(torch.ones(100_003), LEVELS, 9, dtype=FLOAT32))
    assert torch.equal(actual[0], actual[1])
    assert torch.equal(actual[0], actual[2])


@pytest.mark.parametrize("is_added", [False, True])
def test_the_gradient_passes_where_the_value_did(*, is_added: bool) -> None:
    """Catches another mask in the backward pass, equal masks in two calls, and a seed other than PyTorch's."""
    x, y = torch.randn(50, 70, requires_grad=True), torch.randn(50, 70).bfloat16().requires_grad_()
    results: list[Tensor] = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        with CpuKernelMode():
            first, second = (add_dropout(x, y, P) - x if is_added else drop_out(y, P) for _ in range(2))
        assert not torch.equal(first == 0, second == 0)
        results.append(first == 0)
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])
    with CpuKernelMode():
        z = add_dropout(x, y, P) if is_added else drop_out(y, P)
    dz = torch.randn_like(z)
    z.backward(dz)
    mask = (z - x if is_added else z) != 0
    assert y.grad is not None
    torch.testing.assert_close(y.grad.float(), torch.where(mask, dz.float() * SCALE, 0.0), rtol=1e-2, atol=1e-3)
    if is_added:
        torch.testing.assert_close(x.grad, dz)
    assert mask.float().mean().item() == pytest.approx(1 - P, abs=0.04)


@pytest.mark.parametrize("dtype", [FLOAT32, BF16])
@pytest.mark.parametrize(
    ("queries", "positions", "width"), [(5, 13, 13), (40, 150, 150), (17, 16, 16), (9, 13, 16), (9, 31, 32)]
)
def test_attention_drops_weights(dtype: torch.dtype, queries: int, positions: int, width: int) -> None:
    """Catches dropout after the values, equal masks of heads, and gradients of dropped weights.

    Values that are an identity matrix expose the weights used, with which everything is recomputed in float64.
    """
    q, k = (torch.randn(2, 3, n, width).to(dtype) for n in (queries, positions))
    v = torch.eye(positions, width).expand(2, 3, -1, -1).to(dtype).contiguous()
    mask = torch.rand(2, 1, queries, positions) < 0.8
    inputs = [x.clone().requires_grad_() for x in (q, k, v)]
    with CpuKernelMode():
        out = attention(*inputs, mask, P)
    d_out = torch.randn_like(out)
    out.backward(d_out)
    references = [x.double().requires_grad_() for x in (q, k, v)]
    scores = (references[0] @ references[1].mT / width**0.5).masked_fill(~mask, -torch.inf)
    keep_mask = out.detach().double()[..., :positions] > 0
    expected = (scores.softmax(-1) * keep_mask * SCALE) @ references[2]
    expected.backward(d_out.double())
    tolerance = {"atol": 1e-5, "rtol": 1e-4} if dtype == FLOAT32 else {"atol": 0.03, "rtol": 0.03}
    torch.testing.assert_close(out.double(), expected, **tolerance)
    for actual, reference in zip(inputs, references, strict=True):
        assert actual.grad is not None
        torch.testing.assert_close(actual.grad.double(), reference.grad, **tolerance)
    share = keep_mask[mask.expand_as(keep_mask)].double().mean().item()
    assert share == pytest.approx(1 - P, abs=5 * (P * (1 - P) / mask.sum().item() / 3) ** 0.5)
    assert not torch.equal(keep_mask[0, 0], keep_mask[0, 1])


def test_functions_are_replaced_in_calls_by_keyword() -> None:
    """Catches arguments that are dropped, and a call that reaches the plain function, if they are keywords."""
    x = torch.ones(8, 16)
    results: list[Tensor] = []
    for _ in range(2):
        torch.manual_seed(2)
        with CpuKernelMode():
            results += [drop_out(x, P), drop_out(x=x, p=P), add_dropout(x, x, P), add_dropout(x=x, y=x, p=P)]
    torch.manual_seed(2)
    assert not torch.equal(results[0], torch.nn.functional.dropout(x, P))
    assert all(map(torch.equal, results[:4], results[4:]))
    assert set(results[1].unique().tolist()) == set(results[0].unique().tolist())
