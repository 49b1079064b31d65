"""Builds the paper's model from its configuration."""

from transformer.errors import ConfigError
from transformer.models.transformer.config import TransformerConfig
from transformer.transformer import Transformer, build_transformer


def build(config: TransformerConfig) -> Transformer:
    """Builds a freshly initialized Transformer.

    Raises:
        ConfigError: A vocabulary size is not set, or sizes do not fit together.
    """
    values = config.model_dump(exclude={"family"})
    for side in ("src_vocab_size", "tgt_vocab_size"):
        if values[side] is None:
            raise ConfigError(f"model.{side} is not set; give the tokenizer's vocabulary size")
    return build_transformer(**values)
