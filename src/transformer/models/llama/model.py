"""Builds a Llama from its configuration."""

from functools import partial

from torch import nn

from transformer.blocks import (
    CausalDecoder,
    CausalDecoderLayer,
    FrequencyScaling,
    GatedFeedForward,
    InputEmbedding,
    NoPositions,
    ProjectionLayer,
    RMSNormalization,
    RotaryAttention,
    RotaryPositions,
    initialize_normal,
)
from transformer.errors import ConfigError
from transformer.models.language_model import LanguageModel
from transformer.models.llama.config import LlamaConfig


def build(config: LlamaConfig) -> LanguageModel:
    """Builds a freshly initialized model.

    Raises:
        ConfigError: The vocabulary size is not set, or sizes do not fit together.

    Source: Touvron et al. 2023, "LLaMA", Sec. 2.2; "Llama 2", Sec. 2.2 (shared key heads).
    """
    if config.vocab_size is None:
        raise ConfigError("model.vocab_size is not set; give the tokenizer's vocabulary size")
    norm = partial(RMSNormalization, eps=config.eps)
    scaling = FrequencyScaling(**config.scaling.model_dump()) if config.scaling else None
    rotation = RotaryPositions(config.d_k or config.d_model // config.h, config.seq_len, config.base, scaling=scaling)

    def layer() -> CausalDecoderLayer:
        attention = RotaryAttention(
            config.d_model, config.h, rotation, config.attention_dropout, d_k=config.d_k, kv_heads=config.kv_heads,
            bias="all" if config.attention_bias else "none",
        )  # fmt: skip
        network = GatedFeedForward(config.d_model, config.d_ff, 0.0, bias=config.network_bias)
        return CausalDecoderLayer(config.d_model, attention, network, config.dropout, norm=norm)

    model = LanguageModel(
        InputEmbedding(config.d_model, config.vocab_size, scale=1.0),
        NoPositions(config.seq_len, config.dropout),
        CausalDecoder(nn.ModuleList(layer() for _ in range(config.N)), norm(config.d_model)),
        ProjectionLayer(config.d_model, config.vocab_size, bias=False),
    )
    if config.share_embeddings:
        model.projection_layer.proj.weight = model.embed.embedding.weight
    initialize_normal(model, layers=config.N)
    return model
