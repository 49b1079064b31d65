"""Quantization-aware training computes what int8 inference computes."""

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from samples import randomize
from transformer.blocks import FeedForwardBlock, causal_mask, padding_mask
from transformer.errors import ConfigError
from transformer.inference.cpu import pack
from transformer.kernels import PackedLinear, Weight
from transformer.run.recipe import parse_recipe
from transformer.training.backend import CPU_FLOAT32, Backend
from transformer.training.fake_quantization import FakeQuantizationMode, fake_quantize, fake_quantized_linear
from transformer.training.objectives.cross_entropy import smoothed_cross_entropy
from transformer.transformer import build_transformer


def test_a_linear_layer_is_that_of_the_engine() -> None:
    """Catches a scale for the whole weight or batch, 128 instead of 127, and rows of zeros that become NaN."""
    torch.manual_seed(1)
    x, weight, bias = torch.randn(7, 40), torch.randn(24, 40) * torch.rand(24, 1), torch.randn(24)
    x[2], weight[3] = 0, 0
    expected = PackedLinear(Weight.from_tensor(weight, "int8"), bias=bias)(x)
    actual = fake_quantized_linear(x, weight, bias)
    assert (actual - expected).abs().max() < 1e-5
    assert (actual - (x @ weight.T + bias)).abs().max() > 1e-3


@pytest.fixture
def engine_products(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Returns a function after whose call every linear layer is computed by the engine, in int8."""

    def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return PackedLinear(Weight.from_tensor(weight, "int8"), bias=bias)(x)

    return lambda: monkeypatch.setattr(F, "linear", product)


def test_a_model_is_that_of_the_engine(engine_products: Callable[[], None]) -> None:
    """Catches a layer of the model that is left in floating point.

    The engine's products are exact, but it also stores inner activations, keys and values in bfloat16, which is left
    out here.
    """
    torch.manual_seed(3)
    model = randomize(build_transformer(40, 40, 12, 12, d_model=16, N=2, h=2, dropout=0.0, d_ff=32))
    src, tgt = torch.randint(4, 40, (5, 8)), torch.randint(4, 40, (5, 6))

    def log_p() -> Tensor:
        src_mask = padding_mask(src)
        return model.log_probabilities(model.decode(model.encode(src, src_mask), src_mask, tgt, causal_mask(6)))

    with torch.no_grad():
        exact = log_p()
        with FakeQuantizationMode():
            actual = log_p()
        for embedding in (model.src_embed, model.tgt_embed):
            packed = pack(nn.ModuleList([copy.deepcopy(embedding)]), "int8")[0]
            vectors = packed(torch.arange(40)[None])[0] / embedding.scale
            embedding.embedding = nn.Embedding.from_pretrained(vectors)
        engine_products()
        expected = log_p()
    assert (actual - expected).norm() < 0.02 * (actual - exact).norm()


def test_gradients_pass_through_the_rounding() -> None:
    """Catches gradients that are zero, or are those of the numbers before the rounding."""
    torch.manual_seed(4)
    x, weight = torch.randn(5, 12, requires_grad=True), torch.randn(6, 12, requires_grad=True)
    factor = torch.randn(5, 6)
    (fake_quantized_linear(x, weight) * factor).sum().backward()
    assert x.grad is not None
    assert weight.grad is not None
    rounded_x, rounded_weight = fake_quantize(x).detach(), fake_quantize(weight).detach()
    torch.testing.assert_close(x.grad, factor @ rounded_weight)
    torch.testing.assert_close(weight.grad, factor.T @ rounded_x)


def test_the_loss_is_rounded_too() -> None:
    """Catches an output projection that stays in floating point: it is no linear layer in training."""
    torch.manual_seed(5)
    hidden, weight, labels = torch.randn(6, 8), torch.randn(20, 8), torch.randint(20, (6,))
    expected = smoothed_cross_entropy(fake_quantize(hidden), fake_quantize(weight), None, labels, 0.1)
    with FakeQuantizationMode():
        assert smoothed_cross_entropy(hidden, weight, None, labels, 0.1) == expected


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_only_the_last_updates_are_rounded(precision: str) -> None:
    """Catches rounding in validations or in updates before, and kernels that are lost around it."""
    layer, x = randomize(FeedForwardBlock(16, 32, 0.0)), torch.randn(2, 3, 16)
    backend = Backend(CPU_FLOAT32.device, precision, quantized_from=5)
    results: dict[int | None, Tensor] = {}
    for step in (None, 4, 5):
        with backend.compute_context(step):
            results[step] = layer(x)
    with Backend(CPU_FLOAT32.device, precision).compute_context(7):
        plain = layer(x)
    assert torch.equal(results[None], plain)
    assert torch.equal(results[4], plain)
    assert not torch.equal(results[5], plain)
    assert results[5].dtype == plain.dtype
    assert (results[5] - plain).norm() < 0.05 * plain.norm()


@pytest.mark.parametrize("other", ["compile", "activation_checkpointing"])
def test_what_it_excludes(other: str) -> None:
    """Catches layers that a compiled or repeated forward pass leaves in floating point."""
    training = {"quantization_aware_steps": 5, other: True}
    with pytest.raises(ConfigError, match=f"quantization_aware_steps and training.{other} exclude each other"):
        parse_recipe({"data": {"source": "a", "target": "b"}, "training": training})
