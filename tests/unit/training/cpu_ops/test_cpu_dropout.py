"""Dropout by the compiled kernels: against numbers drawn in Python, and against the formula in float64."""

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
    """Philox4x32-10 as in Salmon et al. 2011, Sec. 3.3, in Python's integers."""
    for _ in range(10):
        left, right = counter[0] * 0xD2511F53, counter[2] * 0xCD9E8D57
        counter = (
            (right >> 32) ^ counter[1] ^ key[0], right & WORD, (left >> 32) ^ counter[3] ^ key[1], left & WORD
        )  # fmt: skip
        key = (key[0] + 0x9E3779B9) & WORD, (key[1] + 0xBB67AE85) & WORD
    return counter


def keeps(n: int, seed: int, levels: int) -> Tensor:
    """Which of n elements are kept: 32 numbers a vector of 16, the lower halves first, four vectors a counter."""
    kept = torch.zeros(-(-n // 128) * 128, dtype=torch.bool)
    for block, lane in itertools.product(range(len(kept) // 128), range(16)):
        words = philox((block * 16 + lane, 0, 0, 0), (seed & WORD, seed >> 32))
        for place, word in enumerate(words):
            kept[block * 128 + place * 32 + lane] = (word & 0xFFFF) >= levels
            kept[block * 128 + place * 32 + 16 + lane] = (word >> 16) >= levels
    return kept[:n]


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((WORD,) * 4, (WORD, WORD), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ],
)
def test_the_reference_is_philox(counter: Four, key: tuple[int, int], expected: Four) -> None:
    """Catches a reference that is wrong in the way the kernel is: the answers that the authors publish."""
    assert philox(counter, key) == expected


@pytest.mark.parametrize("n", [1, 127, 129, 4096, 9001])
@pytest.mark.parametrize("seed", [0, 5, 2**64 - 3, 0x123456789ABCDEF])
def test_what_is_dropped_is_what_the_generator_says(n: int, seed: int) -> None:
    """Catches a counter, a key or a half of a number in the wrong place, and a block that starts from the first one."""
    actual = dropped(torch.ones(n), LEVELS, seed, dtype=FLOAT32)
    torch.testing.assert_close(actual, keeps(n, seed, LEVELS) * SCALE)


@pytest.mark.parametrize(
    ("y_dtype", "residual_dtype"), [(FLOAT32, FLOAT32), (BF16, FLOAT32), (BF16, BF16), (BF16, None)]
)
@pytest.mark.parametrize("levels", [0, LEVELS])
def test_a_sum_of_any_types(y_dtype: torch.dtype, residual_dtype: torch.dtype | None, levels: int) -> None:
    """Catches rows that do not lie side by side, a type that is read as another, and a sum that is scaled too."""
    y = torch.randn(31, 40).to(y_dtype).t()
    x = None if residual_dtype is None else torch.randn(40, 31).to(residual_dtype)
    actual = dropped(y, levels, 7, residual=x, dtype=residual_dtype or y_dtype)
    kept = keeps(y.numel(), 7, levels).view(40, 31)
    expected = torch.where(kept, y.double() * 65536 / (65536 - levels), 0.0) + (0.0 if x is None else x.double())
    torch.testing.assert_close(actual.double(), expected, rtol=1e-2 if actual.dtype == BF16 else 1e-6, atol=1e-5)


def test_does_not_depend_on_threads() -> None:
    """Catches numbers that a thread draws by its own count."""
    threads, actual = torch.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            actual.append(dropped(torch.ones(100_003), LEVELS, 9, dtype=FLOAT32))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(actual[0], actual[1])
    assert torch.equal(actual[0], actual[2])


@pytest.mark.parametrize("is_added", [False, True])
def test_the_gradient_passes_where_the_value_did(*, is_added: bool) -> None:
    """Catches other numbers on the way back, the same ones in the next call, and a seed that torch does not decide."""
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
    kept = (z - x if is_added else z) != 0
    assert y.grad is not None
    torch.testing.assert_close(y.grad.float(), torch.where(kept, dz.float() * SCALE, 0.0), rtol=1e-2, atol=1e-3)
    if is_added:
        torch.testing.assert_close(x.grad, dz)
    assert kept.float().mean().item() == pytest.approx(1 - P, abs=0.04)


@pytest.mark.parametrize("dtype", [FLOAT32, BF16])
@pytest.mark.parametrize(
    ("queries", "positions", "width"), [(5, 13, 13), (40, 150, 150), (17, 16, 16), (9, 13, 16), (9, 31, 32)]
)
def test_attention_drops_weights(dtype: torch.dtype, queries: int, positions: int, width: int) -> None:
    """Catches weights dropped after the values, heads that drop the same, and a gradient of what was not used.

    Values that are an identity matrix show the weights that were used; with these, all of it is done again in float64.
    """
    q, k = (torch.randn(2, 3, n, width).to(dtype) for n in (queries, positions))
    v = torch.eye(positions, width).expand(2, 3, -1, -1).to(dtype).contiguous()
    mask = torch.rand(2, 1, queries, positions) < 0.8
    inputs = [x.clone().requires_grad_() for x in (q, k, v)]
    with CpuKernelMode():
        out = attention(*inputs, mask, P)
    d_out = torch.randn_like(out)
    out.backward(d_out)
    wide = [x.double().requires_grad_() for x in (q, k, v)]
    scores = (wide[0] @ wide[1].mT / width**0.5).masked_fill(~mask, -torch.inf)
    kept = out.detach().double()[..., :positions] > 0
    expected = (scores.softmax(-1) * kept * SCALE) @ wide[2]
    expected.backward(d_out.double())
    tolerance = {"atol": 1e-5, "rtol": 1e-4} if dtype == FLOAT32 else {"atol": 0.03, "rtol": 0.03}
    torch.testing.assert_close(out.double(), expected, **tolerance)
    for actual, reference in zip(inputs, wide, strict=True):
        assert actual.grad is not None
        torch.testing.assert_close(actual.grad.double(), reference.grad, **tolerance)
    share = kept[mask.expand_as(kept)].double().mean().item()
    assert share == pytest.approx(1 - P, abs=5 * (P * (1 - P) / mask.sum().item() / 3) ** 0.5)
    assert not torch.equal(kept[0, 0], kept[0, 1])
