"""Sizes, compared with PyTorch's counters, and attention, compared with the block that computes it."""

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from transformer.blocks import causal_mask
from transformer.models import family
from transformer.models.parameter_count import flops_per_token, parameters_by_block, shared_blocks
from transformer.pipelines.auto import load
from transformer.pipelines.translation.attention_maps import cross_attention
from transformer.reporting.figures import attention_picture, training_curve
from transformer.transformer import build_transformer


@pytest.mark.parametrize("widths", [{}, {"d_k": 2, "d_v": 5}], ids=["equal", "d_k and d_v"])
def test_flops_are_those_torch_counts(widths: dict[str, int]) -> None:
    """Catches an omitted matrix, cross-attention counted on the wrong side, and a factor of two."""
    length = 7
    model = build_transformer(31, 29, 16, 16, d_model=12, N=2, h=3, d_ff=17, **widths).eval()
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):  # the fused kernel is not counted
        model(
            torch.ones(1, length, dtype=torch.long), torch.ones(1, length, dtype=torch.long), None, causal_mask(length)
        )
    assert sum(flops_per_token(model, length).values()) * length == pytest.approx(counter.get_total_flops(), rel=1e-9)
    assert flops_per_token(torch.nn.Linear(2, 2), 3) == {}


def test_parameters_by_block_add_up() -> None:
    """Catches a shared matrix counted twice, and parameters of the model itself that are not counted."""
    model = build_transformer(31, 31, 16, 16, d_model=12, N=2, h=3, d_ff=17, share_embeddings="all")
    sizes = parameters_by_block(model)
    assert sum(sizes.values()) == sum(parameter.numel() for parameter in model.parameters())
    assert (sizes["src_embed"], sizes["tgt_embed"], sizes["projection_layer"]) == (0, 0, 31 * 12) or (
        sizes["src_embed"] + sizes["tgt_embed"] + sizes["projection_layer"] == 31 * 12
    )
    vit = family("vit")
    recognizer = vit.build(vit.config(image_size=(8, 8), patch_size=(4, 4), channels=1, d_model=12, N=1, h=3, d_ff=17))
    assert sum(parameters_by_block(recognizer).values()) == sum(
        parameter.numel() for parameter in recognizer.parameters()
    )


def test_attention_is_that_of_the_forward_pass(tiny_run: Path) -> None:
    """Catches weights of another layer, swapped axes, and hooks left in the model."""
    translator = load(tiny_run)
    picture = cross_attention(translator, "one two", "2 1")
    assert picture.source[-1] == picture.written[-1] == "[EOS]"
    assert picture.read == ["[SOS]", *picture.written[:-1]]
    assert picture.weights.shape == (2, 2, len(picture.written), len(picture.source))
    torch.testing.assert_close(picture.weights.sum(-1), torch.ones(picture.weights.shape[:3]))
    assert not any(layer.cross_attention_block._forward_pre_hooks for layer in translator.model.decoder.layers)


def test_pictures_are_drawn(tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches pieces that matplotlib parses as formulas, and a crash if it is not installed."""
    weights = cross_attention(load(tiny_run), "one $x$ two", "2 $ 1")
    picture = attention_picture(weights, tmp_path / "attention.png")
    assert picture is not None
    assert picture.read_bytes().startswith(b"\x89PNG")
    curve = training_curve(tiny_run)
    assert curve is not None
    assert curve.read_bytes().startswith(b"\x89PNG")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert attention_picture(weights, tmp_path / "none.png") is None
    assert training_curve(tiny_run) is None


def test_a_shared_matrix_has_one_owner() -> None:
    """Catches a matrix that counts twice, and one that is partly shared, which has parameters of its own."""
    model = nn.Module()
    model.first, model.second = nn.Linear(3, 3), nn.Linear(3, 3, bias=False)
    model.third, model.empty = nn.Linear(3, 3), nn.ReLU()
    model.second.weight = model.third.weight = model.first.weight
    assert shared_blocks(model) == {"second": "first"}
    assert parameters_by_block(model) == {"first": 12, "second": 0, "third": 3, "empty": 0}
