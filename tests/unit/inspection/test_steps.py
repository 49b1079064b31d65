from dataclasses import replace
from itertools import groupby

import numpy as np
import pytest
import torch

from inspected import FAMILIES, example, recorded, tiny
from transformer.blocks import causal_mask
from transformer.inspection.gradient_norms import compared_norms, step_norms
from transformer.inspection.page_data import mathml
from transformer.inspection.passes import Changes, Pass
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
    """Catches shapes that contradict the text: cross-attention scores are (B, h, T, S)."""
    steps = make_steps(recorded("transformer"))
    axes = {(step.section, step.block, step.title): step.output.axes for step in steps}
    cross = "Decoder layer 1", "Multi-head cross-attention"
    assert axes[*cross, "Scores"] == ("B", "h", "T", "S")
    assert axes[*cross, "Softmax"] == ("B", "h", "T", "S")
    assert axes[*cross, "Keys"] == ("B", "S", "d_model")
    assert axes[*cross, "Split values into heads"] == ("B", "h", "S", "d_k")
    assert axes[*cross, "Concatenate heads"] == ("B", "T", "d_model")
    assert axes["Encoder layer 2", "Position-wise feed-forward network", "ReLU"] == ("B", "S", "d_ff")
    assert axes["Output", "Final linear layer", "Project to the vocabulary"] == ("B", "T", "V")


@pytest.mark.parametrize("name", ["transformer", "transformer-post"])
def test_every_step_of_the_paper_model_has_a_name_and_a_source(name: str) -> None:
    """Catches a step with a general name, without formula, or without the section of the paper."""
    for step in make_steps(recorded(name)):
        assert step.output.symbol != "y", step.title
        assert step.paper or step.operation.kind == "rearrange", step.title
        assert step.operation.file.startswith(("blocks/", "transformer.py")) or step.section in (
            "Output",
            "Probabilities",
            "Loss",
        )
        assert "<math" in mathml(step.formula)
        for line in step.gradients.values():
            assert "<math" in mathml(line)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_step_of_a_family_has_a_name(name: str) -> None:
    """Catches a block of a family whose operations are only called add, multiply or rearrange."""
    unnamed = [step.title for step in make_steps(recorded(name)) if step.output.symbol == "y"]
    assert unnamed == []


@pytest.mark.parametrize("name", FAMILIES)
def test_no_section_comes_back(name: str) -> None:
    """Catches a block that layers share, such as a rotation, shown as part of the first layer each time."""
    sections = [step.section for step in make_steps(recorded(name))]
    changes = [section for n, section in enumerate(sections) if n == 0 or sections[n - 1] != section]
    assert len(changes) == len(set(changes))


def axes_by_title(name: str) -> dict[str, tuple[str, ...]]:
    """Returns the axes of the outputs by title, of the last step of that title."""
    return {step.title: step.output.axes for step in make_steps(recorded(name))}


def test_grouped_queries_share_heads_of_keys() -> None:
    """Catches keys of fewer heads that are shown as if there were as many as of queries."""
    axes = axes_by_title("llama")
    assert axes["Keys"] == ("B", "T", "d_kv")
    assert axes["Split keys into heads"] == ("B", "h_kv", "T", "d_k")
    assert axes["Repeat keys for their queries"] == ("B", "h", "T", "d_k")
    assert axes["Join the halves of the queries"] == ("B", "h", "T", "d_k")


def test_biases_of_distances_are_one_for_each_head_and_pair() -> None:
    """Catches heads and positions exchanged, and positions of the source in the decoder."""
    steps = make_steps(recorded("t5"))
    axes = {(step.section, step.title): step.output.axes for step in steps}
    assert axes["Encoder input", "Arrange biases by heads"] == ("B", "h", "S", "S")
    assert axes["Decoder input", "Arrange biases by heads"] == ("B", "h", "T", "T")


def test_patches_come_from_the_pixels() -> None:
    """Catches a path that begins after the picture was cut, without its pixels and their gradient."""
    first = make_steps(recorded("vit"))[0]
    assert first.inputs[0].symbol == r"\text{pixels}"
    assert first.inputs[0].gradient is not None
    assert axes_by_title("vit")["Prepend the class token"] == ("B", "T", "d_model")


def test_a_factor_of_one_is_not_called_a_square_root() -> None:
    """Catches the paper's scaling shown for families that leave it out."""
    titles = {name: axes_by_title(name).keys() for name in ("transformer", "t5", "llama")}
    assert {"Multiply by √d_model", "Divide by √d_k"} <= titles["transformer"]
    assert {"Keep the embeddings unscaled", "Keep the scores unscaled"} <= titles["t5"]
    assert {"Keep the embeddings unscaled", "Divide by √d_k"} <= titles["llama"]


@pytest.mark.parametrize("length", [1, 5])
def test_target_positions_are_told_from_source_positions(length: int) -> None:
    """Catches letters that are guessed from sizes: a target as long as the source, or of one token."""
    bundle = tiny("transformer")
    one = example(bundle, length=5)
    target = one.inputs["target"][:, :length]
    mask = causal_mask(length)
    cut = replace(
        one, inputs={**one.inputs, "target": target}, labels=target[0],
        tokens={"S": ["a"] * 5, "T": ["b"] * length},
        compute=lambda model, inputs: model(inputs["source"], inputs["target"], None, mask)[0],
    )  # fmt: skip
    steps = make_steps(Pass.record(bundle, cut))
    axes = {(step.block, step.title): step.output.axes for step in steps if step.section == "Decoder layer 1"}
    assert axes["Masked multi-head self-attention", "Scores"] == ("B", "h", "T", "T")
    assert axes["Multi-head cross-attention", "Scores"] == ("B", "h", "T", "S")
    assert axes["Multi-head cross-attention", "Concatenate heads"] == ("B", "T", "d_model")
    assert steps[-2].output.axes == ("T", "V")


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


def test_compared_norms_of_steps_go_from_the_loss_back_one_stack_after_the_other() -> None:
    """Catches steps of both stacks in one line, and series in the order of the forward pass."""
    bundle = tiny("transformer")
    bundle.model.float()
    recorded_pass = Pass.record(bundle, example(bundle))
    for one in compared_norms(recorded_pass, step_norms):
        stacks = [section.split()[0] for section in (value["section"] for value in one["values"])]
        assert [stack for stack, _ in groupby(stacks)] == ["Loss", "Output", "Decoder", "Encoder"]
    first = next(step for step in reversed(make_steps(recorded_pass)) if step.output.gradient is not None)
    assert compared_norms(recorded_pass, step_norms)[0]["values"][0]["norm"] == float(first.output.gradient.norm())


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


def test_probabilities_are_a_step_that_the_loss_does_not_read() -> None:
    """Catches a path that ends at the logits, and a gradient that is claimed to pass through the probabilities."""
    one = recorded("transformer")
    probabilities, loss = make_steps(one)[-2:]
    assert (probabilities.title, loss.title) == ("Softmax of the logits", "Loss")
    assert probabilities.output.axes == ("T", "V")
    powers = np.exp(one.logits.numpy())
    expected = torch.from_numpy(powers / powers.sum(axis=1, keepdims=True))
    torch.testing.assert_close(probabilities.output.tensor.detach(), expected)
    assert probabilities.output.gradient is None
    assert probabilities.readers == []


def test_code_of_a_step_is_where_it_is_computed() -> None:
    """Catches a line of the command line for the loss, and of the caller for a norm that a hook records."""
    files = {step.title: step.operation.file for step in make_steps(recorded("llama"))}
    assert files["Loss"] == files["Softmax of the logits"] == "inspection/passes.py"
    assert files["Root mean square normalization"] == "blocks/normalization.py"


def test_muting_is_a_step_of_its_own() -> None:
    """Catches muted weights that are called scores, under the symbol of the scores."""
    bundle = tiny("transformer")
    bundle.model.float()
    changes = Changes(mute_heads={"encoder.layers.0.self_attention_block": [0]})
    steps = make_steps(Pass.record(bundle, example(bundle), changes))
    [muted] = [step for step in steps if step.title == "Mute heads"]
    assert muted.output.symbol == r"\hat A_i"
    assert muted.paper == ""
    assert not muted.output.tensor[:, 0].any()
    assert muted.output.tensor[:, 1].any()


def test_chain_rule_sums_over_broadcast_axes() -> None:
    """Catches a line by which one segment embedding has a gradient for every token."""
    [step] = [step for step in make_steps(recorded("bert")) if step.title == "Add the segment embedding"]
    assert r"\sum_{t}" in step.gradients["w"]
    assert r"\sum" not in step.gradients["x"]


def test_repeated_keys_are_transposed_once() -> None:
    """Catches a gradient of the scores that multiplies by a transpose of a transpose."""
    scores = next(step for step in make_steps(recorded("llama")) if step.title == "Scores")
    assert r"\top}^\top" not in scores.gradients["x"]
    assert "K_i'" in scores.gradients["x"]


def test_masks_and_positions_have_letters() -> None:
    """Catches a mask of cross-attention with the letter of the target for its keys."""
    masks = {
        step.block: part.axes
        for step in make_steps(recorded("transformer"))
        for part in step.inputs
        if part.role == "m"
    }
    assert masks["Multi-head self-attention"][-1] == "S"
    assert masks["Masked multi-head self-attention"][-2:] == ("T", "T")
    assert masks["Multi-head cross-attention"][-1] == "S"


@pytest.mark.parametrize("sizes", [{"h": 1}, {"d_ff": 12}])
def test_letters_do_not_depend_on_equal_sizes(sizes: dict[str, int]) -> None:
    """Catches letters that are guessed from sizes: one head, or an inner width that equals the model's."""
    usual, bundle = tiny("transformer"), tiny("transformer", **sizes)
    assert bundle.config.model_dump()["d_model"] == 12
    bundle.model.float()
    usual.model.float()
    letters = [
        [
            (step.title, *(part.axes for part in (*step.inputs, step.output)))
            for step in make_steps(Pass.record(one, example(one)))
        ]
        for one in (usual, bundle)
    ]
    assert letters[0] == letters[1]
