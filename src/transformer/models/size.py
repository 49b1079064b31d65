"""The size of a model, computed from its configuration before any of it is allocated."""

from dataclasses import dataclass
from typing import Final

import torch

from transformer.errors import ConfigError, TransformerError
from transformer.models.kinds import ModelConfig
from transformer.models.registry import family

LAYER_KEYS: Final = ("N", "encoder_layers", "decoder_layers")
SAMPLE_LAYERS: Final = 2
"""Layers of a stack that are built to compute its size. Further ones are like the second; the first may be larger."""
COMMON_LAYERS: Final = 128
COMMON_VOCABULARY: Final = 2**20
COMMON_SIZE: Final = 2**14
"""Largest sizes of a model that is loaded without a check, which would take longer than building it."""
MAX_BUFFER_RATIO: Final = 64
MIN_BUFFER_BYTES: Final = 2**28
"""Buffers, such as position tables, may have this many bytes, or this many times the bytes of the weights."""


@dataclass(frozen=True)
class ModelSize:
    """The size of a model.

    Attributes:
        parameters: Number of parameters.
        buffer_bytes: Number of bytes of all buffers.
    """

    parameters: int
    buffer_bytes: int


def model_size(config: ModelConfig) -> ModelSize:
    """Computes the size of the model that a configuration describes, in a time that does not depend on the size.

    Raises:
        ConfigError: The model has tensors too large for any machine, or the configuration is invalid.
    """
    values = config.model_dump()
    layers = {key: values[key] for key in LAYER_KEYS if (values.get(key) or 0) > SAMPLE_LAYERS}
    sample = config.model_copy(update=dict.fromkeys(layers, SAMPLE_LAYERS))
    size = _built_size(sample)
    parameters, buffer_bytes = size.parameters, size.buffer_bytes
    for key, n_layers in layers.items():
        fewer = _built_size(sample.model_copy(update={key: SAMPLE_LAYERS - 1}))
        parameters += (n_layers - SAMPLE_LAYERS) * (size.parameters - fewer.parameters)
        buffer_bytes += (n_layers - SAMPLE_LAYERS) * (size.buffer_bytes - fewer.buffer_bytes)
    return ModelSize(parameters, buffer_bytes)


def _built_size(config: ModelConfig) -> ModelSize:
    """Computes the size of a model by building it on the meta device, where tensors have no values."""
    try:
        with torch.device("meta"):
            model = family(config.family_name).build(config)
    except TransformerError:
        raise
    except (RuntimeError, OverflowError, TypeError) as error:
        huge = ", ".join(f"{key}={value}" for key, value in _sizes(config).items() if value > COMMON_SIZE)
        raise ConfigError(f"{huge} is too large for the tensors of any machine; reduce it") from error
    buffers = sum(buffer.numel() * buffer.element_size() for buffer in model.buffers())
    return ModelSize(sum(parameter.numel() for parameter in model.parameters()), buffers)


def has_common_sizes(config: ModelConfig) -> bool:
    """Whether the sizes are small enough that the model can be built without a check."""
    return all(value <= _common_limit(key) for key, value in _sizes(config).items())


def check_size_of_weights(config: ModelConfig, stored_bytes: int) -> None:
    """Checks that a model is not far larger than its stored weights, before memory for it is allocated.

    Args:
        config: Configuration of the model.
        stored_bytes: Number of bytes of the weights, of which each parameter takes at least one.

    Raises:
        ConfigError: The configuration cannot be that of the weights.
    """
    if has_common_sizes(config):
        return
    size = model_size(config)
    if size.parameters > stored_bytes:
        raise ConfigError(
            f"config.json describes {size.parameters:,} parameters, but the weights have {stored_bytes:,} bytes"
        )
    if size.buffer_bytes > max(MIN_BUFFER_BYTES, MAX_BUFFER_RATIO * stored_bytes):
        raise ConfigError(
            f"config.json describes position tables of {size.buffer_bytes:,} bytes, but the weights have "
            f"{stored_bytes:,} bytes"
        )


def _sizes(config: ModelConfig) -> dict[str, int]:
    """Returns the sizes in a configuration by key; keys of token ids have no influence on the size."""
    values = config.model_dump().items()
    numbers = {key: max(value) if isinstance(value, tuple) and value else value for key, value in values}
    return {
        key: value
        for key, value in numbers.items()
        if isinstance(value, int) and not isinstance(value, bool) and not key.endswith("_id")
    }


def _common_limit(key: str) -> int:
    if key in LAYER_KEYS:
        return COMMON_LAYERS
    return COMMON_VOCABULARY if key.endswith("vocab_size") else COMMON_SIZE
