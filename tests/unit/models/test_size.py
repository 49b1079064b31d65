"""Sizes of models that are never built, compared with models that are."""

from typing import Any

import pytest
import torch
from pydantic import ValidationError

from transformer.config import Config
from transformer.errors import ConfigError
from transformer.models import family, family_names
from transformer.models.size import ModelSize, check_size_of_weights, has_common_sizes, model_size


def config_of(name: str, **values: Any) -> Config:
    """Returns the first preset of a family, with a vocabulary, labels and other values."""
    model_family = family(name)
    fields = model_family.config.model_fields
    preset = next(iter(model_family.presets().values()))
    needed = {key: 99 for key in ("src_vocab_size", "tgt_vocab_size", "vocab_size") if key in fields}
    needed |= {"labels": ("a", "b")} if name == "vit" else {}
    return model_family.config.model_validate({**preset, **needed, **values})


LAYERS = [{"N": 1}, {"N": 5}, {"N": 3, "decoder_layers": 4}, {"encoder_layers": 4}]


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        (name, keys)
        for name in family_names()
        for keys in LAYERS
        if keys.keys() <= family(name).config.model_fields.keys()
    ],
)
def test_the_size_is_that_of_the_built_model(name: str, layers: dict[str, int]) -> None:
    """Catches layers counted twice or not at all, and a first layer that is larger than the others."""
    model_family = family(name)
    config = config_of(name, **layers)
    with torch.device("meta"):
        model = model_family.build(config)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    assert model_size(config) == ModelSize(parameters, sum(buffer.nbytes for buffer in model.buffers()))


def test_the_size_of_a_huge_model_by_hand() -> None:
    """Catches a model that is built layer by layer to be counted: 1,000 layers would take many seconds."""
    small, huge = (model_size(config_of("gpt", N=layers)) for layers in (1, 1000))
    block = 12 * 128 * 128 + 13 * 128  # four matrices of attention, eight of the network; biases and norms
    assert huge.parameters - small.parameters == 999 * block


@pytest.mark.parametrize("value", [10**9, 10**18, 10**30])
@pytest.mark.parametrize("name", family_names())
def test_sizes_beyond_any_machine_are_refused_or_computed(name: str, value: int) -> None:
    """Catches an overflow in torch, and a configuration that takes memory or time in proportion to its numbers."""
    for key in ("d_model", "d_ff", "src_seq_len", "seq_len"):
        if key not in family(name).config.model_fields:
            continue
        config = config_of(name, **{key: value})
        assert not has_common_sizes(config)
        try:
            size = model_size(config)
        except ConfigError as error:
            assert f"{key}={value}" in str(error)  # noqa: PT017
        else:
            has_no_table = key.endswith("seq_len") and name in ("t5", "llama")
            assert has_no_table or max(size.parameters, size.buffer_bytes) > value


@pytest.mark.parametrize("key", ["N", "encoder_layers", "decoder_layers"])
@pytest.mark.parametrize("name", family_names())
def test_a_stack_of_absurd_depth_is_refused_in_every_configuration(name: str, key: str) -> None:
    """Catches layers that are built for minutes although they have hardly any weights."""
    if key not in family(name).config.model_fields:
        return
    assert config_of(name, **{key: 1000}).model_dump()[key] == 1000
    with pytest.raises(ValidationError, match="less than or equal to 1000"):
        config_of(name, **{key: 1001})


def test_a_configuration_that_cannot_be_that_of_the_weights() -> None:
    """Catches a folder that takes all memory before its tensors are compared with the model."""
    stored = 4 * model_size(config_of("transformer")).parameters
    check_size_of_weights(config_of("transformer"), stored)
    check_size_of_weights(config_of("transformer", src_seq_len=20_000), stored)  # a table without parameters
    for values, message in (
        ({"N": 1000}, r"describes [\d,]+ parameters, but the weights have [\d,]+ bytes"),
        ({"d_model": 2**40}, "d_model=1099511627776 is too large for the tensors of any machine"),
        ({"tgt_seq_len": 10**8}, r"describes position tables of [\d,]+ bytes"),
    ):
        with pytest.raises(ConfigError, match=message):
            check_size_of_weights(config_of("transformer", **values), stored)


def test_a_head_that_a_model_lacks_is_named() -> None:
    """Catches a traceback of Python for labels of a model that has none."""
    for name, settings in (("bert", {"pooler": False}), ("vit", {"labels": (), "pooler_size": None})):
        model = family(name).build(config_of(name, d_model=8, h=2, d_ff=8, N=1, **settings))
        encoded = torch.zeros(1, 3, 8)
        with pytest.raises(ConfigError, match="the model has no pooler; build it with one"):
            model.pooled(encoded)
    with pytest.raises(ConfigError, match="the model has no label head"):
        model.label_logits(torch.zeros(1, 1, 28, 28))
