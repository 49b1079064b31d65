import pytest
import torch

from inspected import FAMILIES, example, recorded, tiny
from transformer.inspection.gradient_norms import compared_norms
from transformer.inspection.page import mathml
from transformer.inspection.passes import Pass
from transformer.inspection.steps import make_steps


@pytest.mark.parametrize("name", FAMILIES)
def test_each_letter_is_one_size(name: str) -> None:
    """Catches an axis with the wrong letter: in each pass, every letter stands for one number alone."""
    one = recorded(name)
    sizes: dict[str, set[int]] = {}
    for step in make_steps(one):
        for part in (*step.inputs, step.output):
            assert len(part.axes) == part.tensor.dim(), step.title
            for letter, size in zip(part.axes, part.tensor.shape, strict=True):
                sizes.setdefault(letter, set()).add(size)
    sizes.pop("", None)
    assert {letter: size for letter, size in sizes.items() if len(size) > 1} == {}
    assert {"B", "T", "h", "d_k", "d_model", "d_ff"} <= sizes.keys()


def test_the_shapes_of_the_paper_model() -> None:
    """Catches shapes that contradict the text: cross-attention scores are (B, h, T_dec, T)."""
    steps = make_steps(recorded("transformer"))
    found = {(step.section, step.block, step.title): step.output.axes for step in steps}
    cross = "Decoder layer 1", "Multi-head cross-attention"
    assert found[*cross, "Scores"] == ("B", "h", "T_dec", "T")
    assert found[*cross, "Softmax"] == ("B", "h", "T_dec", "T")
    assert found[*cross, "Keys"] == ("B", "T", "d_model")
    assert found[*cross, "Split values into heads"] == ("B", "h", "T", "d_k")
    assert found[*cross, "Concatenate heads"] == ("B", "T_dec", "d_model")
    assert found["Encoder layer 2", "Position-wise feed-forward network", "ReLU"] == ("B", "T", "d_ff")
    assert found["Output", "Final linear layer and softmax", "Project to the vocabulary"] == ("B", "T_dec", "V")


@pytest.mark.parametrize("name", ["transformer", "transformer-post"])
def test_every_step_of_the_paper_model_has_a_name_and_a_source(name: str) -> None:
    """Catches a step with a general name, without formula, or without the section of the paper."""
    for step in make_steps(recorded(name)):
        assert step.output.symbol != "y", step.title
        assert step.paper or step.operation.kind == "rearrange", step.title
        assert step.operation.file.startswith(("blocks/", "transformer.py")) or step.section == "Output"
        assert "<math" in mathml(step.formula)
        for line in step.gradients.values():
            assert "<math" in mathml(line)


def test_post_norm_normalizes_after_the_sum() -> None:
    """Catches blocks in a fixed order: the path follows what the model computes."""
    titles = {
        name: [step.title for step in make_steps(recorded(name)) if step.section == "Encoder layer 1"]
        for name in ("transformer", "transformer-post")
    }
    assert titles["transformer"][0] == "Layer normalization"
    assert titles["transformer-post"][0] == "Queries"
    assert titles["transformer-post"][-1] == "Layer normalization"


def test_readers_are_the_paths_of_the_gradient() -> None:
    """Catches a sum of paths that lacks one: contributions of all readers add up to the gradient of the output."""
    one = recorded("transformer")
    steps = make_steps(one)
    for step in steps[:-1]:
        if step.output.gradient is None:
            continue
        total = torch.zeros_like(step.output.tensor)
        for reader in step.readers:
            for part in steps[reader].inputs:
                if part.tensor is step.output.tensor and part.gradient is not None:
                    total += part.gradient
        torch.testing.assert_close(total, step.output.gradient)


def test_gradient_norms_are_compared_by_order_and_residual() -> None:
    """Catches a comparison of one model with itself; without residual paths, first layers get far less."""
    bundle = tiny("transformer")
    bundle.model.float()
    series = compared_norms(Pass.record(bundle, example(bundle)))
    assert [one["name"] for one in series] == [
        "this model", "untrained, pre-norm", "untrained, pre-norm, without residual connections",
        "untrained, post-norm", "untrained, post-norm, without residual connections",
    ]  # fmt: skip
    assert [value["label"] for value in series[0]["values"]][:3] == [
        "Encoder input",
        "Encoder layer 1",
        "Encoder layer 2",
    ]
    norms = [tuple(value["norm"] for value in one["values"]) for one in series]
    assert len(set(norms)) == len(norms)


@pytest.mark.parametrize("name", FAMILIES)
def test_contributions_of_all_paths_add_up(name: str) -> None:
    """Catches parts of a split that each claim the gradient of all parts."""
    one = recorded(name)
    total: dict[int, torch.Tensor] = {}
    for operation in one.operations:
        for tensor, use in zip(operation.inputs, operation.uses, strict=True):
            if id(use) in one.gradients and tensor is not use:
                total[id(tensor)] = total.get(id(tensor), torch.zeros_like(tensor)) + one.gradients[id(use)]
    for key, gradient in total.items():
        torch.testing.assert_close(gradient, one.gradients[key])
