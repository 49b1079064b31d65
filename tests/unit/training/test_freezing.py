"""Frozen parameters and rows: what is trained, and that all else stays bit for bit."""

import pytest
import torch
from torch import nn

from transformer.errors import ConfigError
from transformer.training.freezing import freeze_parameters, trained_parameters
from transformer.training.optim.adam import make_optimizer
from transformer.training.optim.ema import update_ema, use_ema_parameters
from transformer.training.optim.state_dict import optimizer_tensors, restore_optimizer
from transformer.transformer import Transformer, build_transformer


def tiny_model(share: str = "all") -> Transformer:
    torch.manual_seed(1)
    return build_transformer(11, 11, 7, 7, d_model=8, N=2, h=2, d_ff=12, share_embeddings=share)


def frozen_names(model: nn.Module) -> set[str]:
    return {name for name, parameter in model.named_parameters() if not parameter.requires_grad}


def test_patterns_name_parameters() -> None:
    """Catches a pattern that matches a part of a word, and one of a shared matrix that leaves it to another name."""
    model = tiny_model()
    freeze_parameters(model, ["encoder"])
    assert frozen_names(model) == {name for name, _ in model.named_parameters() if name.startswith("encoder.")}
    model = tiny_model()
    freeze_parameters(model, ["decoder.layers.[1]", "*.norm"])
    assert any(name.startswith("decoder.layers.1.") for name in frozen_names(model))
    assert all(name.startswith("decoder.layers.1.") or ".norm" in name for name in frozen_names(model))
    for pattern in ("projection_layer", "tgt_embed", "embeddings"):
        model = tiny_model()
        freeze_parameters(model, [pattern])
        assert not model.src_embed.embedding.weight.requires_grad
        assert not model.projection_layer.proj.weight.requires_grad
    total = sum(parameter.numel() for parameter in model.parameters())
    assert trained_parameters(model, {}) == total - 11 * 8


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        (["encodr"], "training.freeze='encodr' matches no parameter; write encoder"),
        (["embedings"], "matches no parameter; write embeddings"),
        (["decoder.layers.7"], "matches no parameter; write decoder.layers"),
        (["zzz"], "matches no parameter; name a part such as embeddings, encoder, decoder"),
        (["ncoder"], "matches no parameter; write encoder or decoder"),
        (["encoder", "*"], r"training.freeze=['encoder', '*'] leaves no parameter to train; freeze fewer"),
    ],
)
def test_a_wrong_pattern_is_an_error(patterns: list[str], message: str) -> None:
    """Catches a run that trains what should stay, because of a typing mistake."""
    with pytest.raises(ConfigError) as error:
        freeze_parameters(tiny_model(), patterns)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("weight_decay", [0.0, 0.5])
def test_frozen_parameters_have_no_state(weight_decay: float) -> None:
    """Catches weight decay and moving averages that change frozen parameters, and moments that are stored for them."""
    model = tiny_model()
    freeze_parameters(model, ["encoder", "embeddings"])
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimizer = make_optimizer(model, weight_decay=weight_decay)
    for step in (1, 2):
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter) if parameter.requires_grad else None
        optimizer.param_groups[0]["lr"] = optimizer.param_groups[-1]["lr"] = 0.1
        optimizer.step()
        update_ema(optimizer, 0.9, step)
    frozen = frozen_names(model)
    with use_ema_parameters(optimizer):
        assert all(
            torch.equal(parameter, before[name]) == (name in frozen) for name, parameter in model.named_parameters()
        )
    assert all(torch.equal(parameter, before[name]) == (name in frozen) for name, parameter in model.named_parameters())
    tensors = {name: tensor.clone() for name, tensor in optimizer_tensors(model, optimizer).items()}
    assert {name.partition("/")[2] for name in tensors}.isdisjoint(frozen)
    other = tiny_model()
    freeze_parameters(other, ["encoder", "embeddings"])
    restored = make_optimizer(other, weight_decay=weight_decay)
    restore_optimizer(other, restored, tensors, ("step", "exp_avg", "exp_avg_sq", "average"))
    assert all(torch.equal(tensor, tensors[name]) for name, tensor in optimizer_tensors(other, restored).items())
