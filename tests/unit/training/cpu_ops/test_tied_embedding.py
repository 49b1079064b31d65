"""The gradient of embeddings that look up tokens and project to the vocabulary."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer.training.cpu_ops.dispatch import CpuKernelMode
from transformer.training.objectives.cross_entropy import smoothed_cross_entropy

V, D = 11, 5


class Toy(nn.Module):
    """A model with two embeddings, which may share their weight."""

    def __init__(self, is_tied: bool) -> None:
        super().__init__()
        self.sources, self.targets = nn.Embedding(V, D), nn.Embedding(V, D)
        self.targets.weight = self.sources.weight if is_tied else self.targets.weight

    def forward(self, sources: Tensor, targets: Tensor, labels: Tensor) -> Tensor:
        """Returns the summed loss, computed by the functions under test."""
        hidden = torch.tanh(self.sources(sources)) * self.targets(targets)
        return smoothed_cross_entropy(hidden.flatten(0, 1), self.targets.weight, None, labels.flatten(), 0.1)[0]

    def reference_loss(self, sources: Tensor, targets: Tensor, labels: Tensor) -> Tensor:
        """Returns the same loss, computed with one-hot vectors and PyTorch's cross-entropy."""
        hidden = torch.tanh(F.one_hot(sources, V).float() @ self.sources.weight)
        hidden = hidden * (F.one_hot(targets, V).float() @ self.targets.weight)
        logits = hidden.flatten(0, 1) @ self.targets.weight.T
        return F.cross_entropy(logits, labels.flatten(), label_smoothing=0.1, reduction="sum")


@pytest.mark.parametrize("is_tied", [True, False])
def test_gradients_of_lookups_and_of_the_projection_add_up(is_tied: bool) -> None:
    """Catches rows that are left out, counted twice, or added to what a later micro-batch adds again."""
    torch.manual_seed(0)
    toy = Toy(is_tied)
    batches = [[torch.randint(0, V, (3, 4)) for _ in range(3)] for _ in range(2)]
    for batch in batches:  # each batch contains repeated tokens
        toy.reference_loss(*batch).backward()
    expected = [parameter.grad.clone() for parameter in toy.parameters() if parameter.grad is not None]
    toy.zero_grad()
    for batch in batches:
        with CpuKernelMode():
            loss = toy(*batch)
        loss.backward()
    actual = [parameter.grad for parameter in toy.parameters()]
    torch.testing.assert_close(actual, expected)


def test_lookups_without_the_loss_have_a_gradient_too() -> None:
    """Catches a gradient that waits for the backward pass of a loss that has none."""
    toy = Toy(True)
    tokens = torch.tensor([[1, 2, 2]])
    with CpuKernelMode():
        vectors = toy.sources(tokens)
        toy(tokens, tokens, tokens)
    vectors.sum().backward()
    expected = torch.zeros(V, D)
    expected[1], expected[2] = 1.0, 2.0
    assert toy.sources.weight.grad is not None
    torch.testing.assert_close(toy.sources.weight.grad, expected)


def test_a_lookup_has_its_gradient_after_another_backward_pass() -> None:
    """Catches rows that wait for the gradient of a loss whose backward pass is over."""
    toy = Toy(True)
    tokens = torch.tensor([[1, 2, 2]])
    with CpuKernelMode():
        vectors = toy.sources(tokens)
        loss = toy(tokens, tokens, tokens)
    loss.backward()
    toy.zero_grad()
    vectors.sum().backward()
    expected = torch.zeros(V, D)
    expected[1], expected[2] = 1.0, 2.0
    torch.testing.assert_close(toy.sources.weight.grad, expected)


def test_no_matrix_of_zeros_is_filled_for_a_tied_lookup() -> None:
    """Catches a backward pass that fills a matrix of the vocabulary's size, which took 3 % of a step."""
    toy, tokens = Toy(True), torch.tensor([[1, 2, 2]])
    with CpuKernelMode(), torch.profiler.profile() as profile:
        toy(tokens, tokens, tokens).backward()
    assert not any("embedding_dense_backward" in event.name for event in profile.events())
