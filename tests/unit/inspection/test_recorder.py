from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from inspected import FAMILIES, example, recorded, tiny
from samples import fast_first
from transformer.blocks import MultiHeadAttention
from transformer.bundle import load_bundle
from transformer.data.batch import PairBatch
from transformer.inspection.passes import Changes, Pass, record_pass
from transformer.inspection.recorder import Operation, Recorder
from transformer.training.objectives.translation import TranslationObjective


class Nudged(Recorder):
    """Adds a small tensor to the output of one operation."""

    def __init__(self, model: nn.Module, index: int, nudge: Tensor) -> None:
        super().__init__(model)
        self.index, self.nudge = index, nudge

    def _add(self, kind: str, inputs: Any, uses: Any, output: Tensor, attributes: Any, *place: Any) -> None:
        if len(self.operations) == self.index:
            with torch.no_grad():
                output.add_(self.nudge)
        super()._add(kind, inputs, uses, output, attributes, *place)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_recorded_pass_computes_what_the_model_computes(name: str) -> None:
    """Catches a recorder that changes a result, or skips an operation of a family."""
    one = recorded(name)
    with torch.no_grad():
        expected = one.example.compute(one.model, one.example.inputs)
    torch.testing.assert_close(one.logits, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_number_comes_from_a_recorded_operation(name: str) -> None:
    """Catches an operation between two recorded ones that is of no known kind, so that the path has a gap."""
    one = recorded(name)
    parameters = {id(tensor) for tensor in (*one.model.parameters(), *one.example.inputs.values())}
    written: set[int] = set()
    for operation in one.operations:
        for tensor in operation.inputs:
            known = not tensor.requires_grad or id(tensor) in parameters or id(tensor) in written
            assert known, f"{operation.kind} in {operation.module} reads what no operation wrote"
        written.add(id(operation.output))
    assert one.operations[-1].kind == "cross_entropy"


@pytest.mark.parametrize("name", FAMILIES)
def test_gradients_are_those_of_the_plain_model(name: str) -> None:
    """Catches gradients that miss one of the paths to a tensor: all uses of a parameter add up to its gradient."""
    one = recorded(name)
    parameters = dict(one.model.named_parameters())
    loss = F.cross_entropy(one.example.compute(one.model, one.example.inputs), one.labels)
    expected = dict(
        zip(parameters, torch.autograd.grad(loss, list(parameters.values()), allow_unused=True), strict=True)
    )
    for key, parameter in parameters.items():
        if (gradient := expected[key]) is not None and gradient.count_nonzero():
            torch.testing.assert_close(one.gradients[id(parameter)], gradient, rtol=1e-9, atol=1e-12)
            uses = [
                one.gradients[id(use)]
                for operation in one.operations
                for tensor, use in zip(operation.inputs, operation.uses, strict=True)
                if tensor is parameter and id(use) in one.gradients
            ]
            torch.testing.assert_close(torch.stack(uses).sum(dim=0), gradient, rtol=1e-9, atol=1e-12)


def directional_derivative(one: Pass, target: Operation, direction: Tensor) -> float:
    """Differentiates the loss numerically along a direction of one operation's output."""
    index = one.operations.index(target)
    losses: list[float] = []
    for step in (1e-5, -1e-5):
        recorder = Nudged(one.model, index, step * direction)
        with recorder:
            logits = one.example.compute(one.model, one.example.inputs)
            losses.append(F.cross_entropy(logits, one.labels).item())
    return (losses[0] - losses[1]) / 2e-5


@pytest.mark.parametrize("name", fast_first(FAMILIES, 1))
def test_gradients_agree_with_finite_differences(name: str) -> None:
    """Catches a gradient of the wrong tensor or path; the oracle changes a number and computes the loss again."""
    one = recorded(name)
    generator = torch.Generator().manual_seed(1)
    candidates = [op for op in one.operations[:-1] if id(op.output) in one.gradients and op.kind != "rearrange"]
    chosen = torch.randperm(len(candidates), generator=generator)[:6].tolist()
    for index in chosen:
        operation = candidates[index]
        gradient = one.gradients[id(operation.output)]
        direction = torch.randn(gradient.shape, generator=generator, dtype=torch.float64)
        direction[~operation.output.detach().isfinite()] = 0.0
        expected = directional_derivative(one, operation, direction)
        assert (gradient * direction).sum().item() == pytest.approx(expected, rel=1e-5, abs=1e-8), operation.module


def test_the_loss_and_its_gradients_are_those_of_training() -> None:
    """Catches a page whose loss is not the training loss: smoothing, mean, or labels that are shifted wrongly."""
    bundle = tiny("transformer")
    bundle.provenance = {"recipe": {"training": {"label_smoothing": 0.1}}}
    one = Pass.record(bundle, example(bundle))
    inputs = one.example.inputs
    batch = PairBatch(inputs["source"], inputs["target"], one.labels[None], len(one.labels))
    model = bundle.model.requires_grad_(True)
    result = TranslationObjective(model, 0.1, pad_ids=(-1, -1))(batch)
    expected = torch.autograd.grad(result.loss_sum / result.count, list(model.parameters()))
    torch.testing.assert_close(one.loss, result.loss_sum.detach() / result.count, rtol=1e-6, atol=1e-6)
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(one.gradients[id(parameter)], gradient, rtol=1e-4, atol=1e-6)


def test_fused_attention_of_long_sources_shows_its_weights() -> None:
    """Catches sources of more than 256 tokens, whose weights the fused kernel does not give away."""
    bundle = tiny("transformer")
    one = Pass.record(bundle, example(bundle, length=260))
    kinds = {op.kind for op in one.operations if op.module == "encoder.layers.0.self_attention_block"}
    assert {"softmax", "matmul"} <= kinds
    with torch.no_grad():
        torch.testing.assert_close(one.logits, one.example.compute(one.model, one.example.inputs))


def test_a_muted_head_is_left_out_of_the_concatenation() -> None:
    """Catches a wrong head or layer that is muted; the oracle zeroes the head's columns of W_o."""
    bundle = tiny("transformer")
    one = example(bundle)
    muted = Pass.record(bundle, one, Changes(mute_heads={"encoder.layers.1.self_attention_block": [2]}))
    block = bundle.model.get_submodule("encoder.layers.1.self_attention_block")
    assert isinstance(block, MultiHeadAttention)
    with torch.no_grad():
        block.W_o.weight[:, 8:12] = 0.0
        torch.testing.assert_close(muted.logits, one.compute(bundle.model, one.inputs))


def test_without_residual_connections_only_the_sub_layer_counts() -> None:
    """Catches a switch that changes nothing; without residual connections the embedding reaches no later sum."""
    bundle = tiny("transformer")
    plain = Pass.record(bundle, example(bundle), residual=False)
    assert not [op for op in plain.operations if op.kind == "add" and "residual" in op.module]
    assert not torch.allclose(plain.logits, recorded("transformer").logits)


def test_the_hooks_are_gone_after_a_pass() -> None:
    """Catches hooks that stay on the model, also after an error, and slow down or record later passes."""
    bundle = tiny("gpt")
    recorder = Recorder(bundle.model)
    with pytest.raises(KeyError), recorder:
        raise KeyError
    Pass.record(bundle, example(bundle))
    assert all(not module._forward_hooks and not module._forward_pre_hooks for module in bundle.model.modules())


def test_a_translation_is_inspected_from_text(tiny_run: Path) -> None:
    """Catches wrong special tokens on either side: the model's own translation must be likely, step by step."""
    bundle = load_bundle(tiny_run)
    one = record_pass(bundle, "one two three")
    assert one.example.tokens["S"][-1] == "[EOS]"
    assert one.example.tokens["T"][0] == "[SOS]"
    assert one.example.tokens["T"][1:] == one.label_names[:-1]
    assert one.label_names == one.example.names(one.logits.argmax(dim=-1).tolist()), "greedy search chose these tokens"
    masked = record_pass(bundle, "one two three", changes=Changes(mask_source=[0]))
    weights = [op.output for op in masked.operations if op.kind == "softmax"]
    assert weights[0][..., 0].count_nonzero() == 0
