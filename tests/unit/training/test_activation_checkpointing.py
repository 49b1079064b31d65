"""Activation checkpointing: layers that are recomputed in the backward pass."""

import copy

import numpy as np
import pytest
import torch
from torch import Tensor

from substitution import substitute
from transformer import build_transformer
from transformer.data.dataset import pair_batch
from transformer.training.backend import CPU_FLOAT32, Backend
from transformer.training.objectives.translation import TranslationObjective


def gradients(backend: Backend, *, checkpointing: bool) -> tuple[dict[str, Tensor], int]:
    """Returns the gradients of a step with dropout, and the number of elements saved for the backward pass."""
    torch.manual_seed(1)
    model = build_transformer(
        31, 31, 9, 9, d_model=16, N=3, h=2, d_ff=24, dropout=0.3, attention_dropout=0.2, share_embeddings="all"
    )
    objective = TranslationObjective(model, 0.1, activation_checkpointing=checkpointing)
    sides = [[np.arange(4, 4 + n, dtype=np.int32) for n in lengths] for lengths in ((3, 7, 5), (6, 2, 8))]
    n_saved = 0

    def count(tensor: Tensor) -> Tensor:
        nonlocal n_saved
        n_saved += tensor.numel()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor), backend.compute_context():
        loss = objective(pair_batch(*sides)).loss_sum
    loss.backward()
    return {name: p.grad for name, p in objective.named_parameters() if p.grad is not None}, n_saved


@pytest.mark.parametrize("backend", [CPU_FLOAT32, Backend(torch.device("cpu"), "bf16")])
def test_gradients_are_equal_to_the_bit_and_less_is_kept(backend: Backend) -> None:
    """Catches new dropout masks or another precision in the backward pass, and layers that were not wrapped."""
    expected, n_saved = gradients(backend, checkpointing=False)
    actual, n_saved_with_checkpointing = gradients(backend, checkpointing=True)
    assert expected.keys() == actual.keys()
    for name, gradient in expected.items():
        assert torch.equal(gradient, actual[name]), name
    assert n_saved_with_checkpointing < n_saved / 3


def test_holes_are_given_back_on_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a heap that is not trimmed, one trimmed in evaluation, and trimming at every layer."""
    times: list[bool] = []
    substitute(monkeypatch, "activation_checkpointing.trim_heap", lambda: times.append(torch.is_grad_enabled()))
    gradients(CPU_FLOAT32, checkpointing=True)
    assert times == [True] * 4, "before layers 0 and 3 of 6, in the forward pass and when they are recomputed"
    model = build_transformer(31, 31, 9, 9, d_model=16, N=1, h=2, d_ff=24)
    TranslationObjective(model, 0.1, activation_checkpointing=True)
    with torch.no_grad():
        model.encode(torch.tensor([[4, 5, 6]]), None)
    assert len(times) == 4


def test_a_copy_computes_with_its_own_parameters() -> None:
    """Catches a copied model (FSDP2 copies it) whose layers are those of the original."""
    torch.manual_seed(1)
    model = build_transformer(31, 31, 9, 9, d_model=16, N=1, h=2, d_ff=24, dropout=0.0, norm_order="post")
    TranslationObjective(model, 0.1, activation_checkpointing=True)
    tokens = torch.tensor([[4, 5, 6]])
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    assert model.encode(tokens, None).abs().sum() > 0
    assert other.encode(tokens, None).abs().sum() == 0
