"""The GPU kernels against plain formulas: on a GPU or, without one, in Triton's interpreter on the CPU.

Compilation is tested separately, since the interpreter accepts code that the compiler rejects.
"""

import copy
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton", reason="Triton is not installed")

from transformer.decoding import Search, search_all
from transformer.decoding.cuda_graphs import GraphedSearcher
from transformer.inference.gpu import fuse
from transformer.kernels import triton_kernels
from transformer.transformer import build_transformer
from unit.decoding.tiny_search import requests

pytestmark = pytest.mark.gpu
IS_GPU = torch.cuda.is_available()
DEVICE = "cuda" if IS_GPU else "cpu"
TYPES = [torch.float32, *([torch.bfloat16] if IS_GPU else [])]  # the interpreter cannot multiply bfloat16
HEADS, WIDTH = 3, 16


def close(actual: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether two tensors are equal up to the rounding of inputs and outputs."""
    error = (actual.double().cpu() - expected.double().cpu()).norm() / expected.double().norm()
    return bool(error < (1e-5 if actual.dtype == torch.float32 else 1e-2))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shared", [False, True])
def test_a_new_position_attends_to_all_before_it(dtype: torch.dtype, *, shared: bool) -> None:
    """Catches a position that is skipped or read twice, another row's keys, and a key that is not stored."""
    rows, capacity = 5, 70
    keys, values = (torch.randn(rows, HEADS, capacity, WIDTH, device=DEVICE).to(dtype) for _ in range(2))
    joint = torch.randn(rows, 3 * HEADS * WIDTH, device=DEVICE).to(dtype)
    positions = torch.full((rows,), 40) if shared else torch.tensor([0, 1, 33, 64, 69])
    cache_indirection = torch.randint(0, rows, (rows, capacity), dtype=torch.int32, device=DEVICE) if shared else None
    before = keys.clone(), values.clone()
    actual = triton_kernels.self_attention_step(joint, keys, values, positions.to(DEVICE), 0.3, cache_indirection)
    for row, n in enumerate(positions.tolist()):
        query, key, value = joint[row].double().view(3, HEADS, WIDTH)
        source_rows = (
            torch.full((n,), row, device=DEVICE) if cache_indirection is None else cache_indirection[row, :n].long()
        )
        past = [x[source_rows, :, torch.arange(n)].double() for x in before]
        k, v = (torch.cat([x, new[None]]) for x, new in zip(past, (key, value), strict=True))
        weights = (0.3 * torch.einsum("he,nhe->hn", query, k)).softmax(dim=-1)
        assert close(actual[row], torch.einsum("hn,nhe->he", weights, v).flatten())
        assert torch.equal(keys[row, :, n].flatten(), joint[row].view(3, -1)[1])
        assert torch.equal(values[row, :, n].flatten(), joint[row].view(3, -1)[2])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("width", [1, 3, 17])
def test_hypotheses_attend_to_their_source(width: int, dtype: torch.dtype) -> None:
    """Catches another sentence's source, padding that is attended to, and a fully masked row that is not zero."""
    sentences, length = 3, 37
    keys, values = (torch.randn(sentences, HEADS, length, WIDTH, device=DEVICE).to(dtype) for _ in range(2))
    queries = torch.randn(sentences * width, HEADS * WIDTH, device=DEVICE).to(dtype)
    mask = torch.rand(sentences, 1, 1, length, device=DEVICE) > 0.3
    mask[1] = False
    actual = triton_kernels.cross_attention_step(queries, keys, values, mask, 0.3)
    by_sentence = queries.double().view(sentences, width, HEADS, WIDTH).transpose(1, 2)
    weights = (0.3 * by_sentence @ keys.double().transpose(2, 3)).masked_fill(~mask, -torch.inf).softmax(-1)
    expected = (weights.nan_to_num(0.0) @ values.double()).transpose(1, 2).reshape(sentences * width, -1)
    assert close(actual, expected)
    assert not actual.view(sentences, -1)[1].any()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("adds", [False, True])
def test_a_sum_is_normalized(dtype: torch.dtype, *, adds: bool) -> None:
    """Catches statistics that include the padding of a row of 48, and a sum that is not stored."""
    x, y = (torch.randn(5, 48, device=DEVICE).to(dtype) for _ in range(2))
    alpha, beta = (torch.randn(48, device=DEVICE).to(dtype) for _ in range(2))
    total, normed = triton_kernels.add_norm(x, y if adds else None, alpha, beta, 1e-5, store_sum=True)
    expected = x.double() + y.double() if adds else x.double()
    assert close(total, expected)
    assert close(normed, F.layer_norm(expected, (48,), alpha.double(), beta.double(), 1e-5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("vocabulary", "k"), [(9, 2), (1024, 1), (2500, 8)])
def test_the_best_tokens_come_first(vocabulary: int, k: int, dtype: torch.dtype) -> None:
    """Catches missed tokens at the edge of a block, repeated or forbidden tokens, and disorder among equal logits."""
    logits = torch.randn(4, vocabulary, device=DEVICE).to(dtype)
    logits[1] = 0.0
    logits[2, -1] = logits[2, 0] = logits[2, 5] = 9.0
    forbidden = torch.zeros(vocabulary, dtype=torch.bool, device=DEVICE)
    forbidden[[0, 2]] = True
    log_p, tokens = triton_kernels.best_tokens(logits, k, forbidden)
    exact = logits.double().log_softmax(dim=1).masked_fill(forbidden, -torch.inf)
    order = exact.sort(dim=1, descending=True, stable=True)
    assert torch.equal(tokens, order.indices[:, :k])
    assert (log_p - order.values[:, :k]).abs().max() < 1e-5
    unrestricted = triton_kernels.best_tokens(logits, k)[1]
    assert torch.equal(unrestricted, logits.double().sort(dim=1, descending=True, stable=True).indices[:, :k])


def test_too_few_tokens_are_filled_up_with_none() -> None:
    """Catches a forbidden token among the best ones."""
    log_p, _ = triton_kernels.best_tokens(
        torch.zeros(1, 5, device=DEVICE), 4, torch.tensor([1, 0, 1, 1, 0]).bool().to(DEVICE)
    )
    assert log_p[0].tolist()[:2] == pytest.approx([-1.6094379] * 2)
    assert log_p[0].tolist()[2:] == [-float("inf")] * 2


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("vocab_size", [7, 4096, 9000])
def test_the_loss_and_its_gradient_are_those_of_the_formula(dtype: torch.dtype, vocab_size: int) -> None:
    """Catches a block of the vocabulary left out, a label in a later block, and smoothing that leaves the label out."""
    torch.manual_seed(4)
    logits = (4 * torch.randn(6, vocab_size)).to(dtype)
    labels = torch.tensor([0, vocab_size - 1, vocab_size // 2, 3, 3, 6])
    leaf = logits.double().requires_grad_()
    expected = F.cross_entropy(leaf, labels, reduction="none", label_smoothing=0.1)
    expected.sum().backward()
    actual = logits.to(DEVICE, copy=True)
    losses = triton_kernels.smoothed_gradient(actual, labels.to(DEVICE), 0.1)
    assert leaf.grad is not None
    assert close(losses[:, 0], expected.detach())
    assert close(losses[:, 1], F.cross_entropy(logits.double(), labels, reduction="none"))
    assert close(actual, leaf.grad)


@pytest.mark.parametrize("order", ["pre", "post"])
def test_a_fused_decoder_writes_what_the_model_writes(order: str) -> None:
    """Catches a misplaced norm, residual sum or bias, and hypotheses that continue another one's past."""
    torch.manual_seed(3)
    model = build_transformer(9, 9, 12, 20, d_model=32, N=2, h=2, d_ff=20, dropout=0.0, norm_order=order)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        model.projection_layer.proj.weight.mul_(3)
    batch = sorted(requests(1, [4, 9], 9), key=lambda request: -len(request.source))
    fused = fuse(copy.deepcopy(model.eval()).to(DEVICE))
    for search in (Search(), Search(beam=3, n_best=3), Search(beam=2, no_repeat_ngram=2)):
        expected = search_all(model, batch, search)
        actual = dict(GraphedSearcher(fused, search, torch.device(DEVICE), 12).search_each(batch, 4096))
        for index, hypotheses in enumerate(expected):
            assert [hypothesis.tokens for hypothesis in actual[index]] == [
                hypothesis.tokens for hypothesis in hypotheses
            ]
            assert [hypothesis.score for hypothesis in actual[index]] == pytest.approx(
                [hypothesis.score for hypothesis in hypotheses], abs=1e-4
            )


@pytest.mark.slow
@pytest.mark.parametrize("search", [Search(), Search(no_repeat_ngram=9)])
def test_a_cache_that_grew_holds_every_row(search: Search) -> None:
    """Catches positions beyond the initial 32 of a cache that are stored in the first row."""
    torch.manual_seed(5)
    model = build_transformer(9, 9, 12, 60, d_model=32, N=2, h=2, d_ff=20, dropout=0.0).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
        assert model.projection_layer.proj.bias is not None
        model.projection_layer.proj.bias[2] = -9.0  # EOS
    batch = sorted(requests(2, [41, 41], 9), key=lambda request: -len(request.source))
    fused = fuse(copy.deepcopy(model).to(DEVICE))
    actual = dict(GraphedSearcher(fused, search, torch.device(DEVICE), 12).search_each(batch, 4096))
    for index, (expected,) in enumerate(search_all(model, batch, search)):
        assert actual[index][0].tokens == expected.tokens
        assert actual[index][0].score == pytest.approx(expected.score, abs=1e-4)


def test_other_blocks_stay_as_they_are() -> None:
    """Catches heads of a width that the kernels do not support."""
    model = build_transformer(9, 9, 12, 20, d_model=24, N=1, h=2, d_ff=20)
    decoder = model.decoder
    assert fuse(model).decoder is decoder


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_the_kernels_compile_for_a_gpu(dtype: str) -> None:
    """Catches code that only the interpreter accepts, such as a variable that changes its type within a loop."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, str(Path(__file__).parent / "compile_triton_kernels.py"), dtype]
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 0, result.stderr
    programs = {name for name, value in vars(triton_kernels).items() if hasattr(value, "fn") and hasattr(value, "run")}
    assert set(result.stdout.split()) == programs
