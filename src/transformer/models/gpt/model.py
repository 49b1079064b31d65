"""Builds a GPT from its configuration."""

import math
from functools import partial

from torch import nn

from transformer.blocks import (
    ACTIVATIONS,
    CausalDecoder,
    CausalDecoderLayer,
    FeedForwardBlock,
    InputEmbedding,
    LayerNormalization,
    LearnedPositions,
    MultiHeadAttention,
    ProjectionLayer,
    initialize_normal,
)
from transformer.errors import ConfigError
from transformer.models.gpt.config import GptConfig
from transformer.models.language_model import LanguageModel


def build(config: GptConfig) -> LanguageModel:
    """Builds a freshly initialized model.

    Raises:
        ConfigError: The vocabulary size is not set.

    Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", Sec. 2.3.
    """
    if config.vocab_size is None:
        raise ConfigError("model.vocab_size is not set; give the tokenizer's vocabulary size")
    norm = partial(LayerNormalization, eps=config.eps)
    d_ff = config.d_ff or 4 * config.d_model

    def layer(number: int) -> CausalDecoderLayer:
        scale = math.sqrt(config.h / config.d_model) if config.scale_by_width else 1.0
        scale = scale / number if config.scale_by_layer else scale
        is_usual = config.scale_by_width and not config.scale_by_layer
        attention = MultiHeadAttention(
            config.d_model, config.h, config.attention_dropout, scale=None if is_usual else scale
        )
        network = FeedForwardBlock(config.d_model, d_ff, 0.0, activation=ACTIVATIONS[config.activation])
        return CausalDecoderLayer(config.d_model, attention, network, config.dropout, norm=norm)

    dropout = config.dropout if config.embedding_dropout is None else config.embedding_dropout
    model = LanguageModel(
        InputEmbedding(config.d_model, config.vocab_size, scale=1.0),
        LearnedPositions(config.d_model, config.seq_len, dropout),
        CausalDecoder(nn.ModuleList(layer(number) for number in range(1, config.N + 1)), norm(config.d_model)),
        ProjectionLayer(config.d_model, config.vocab_size, bias=False),
    )
    if config.share_embeddings:
        model.projection_layer.proj.weight = model.embed.embedding.weight
    initialize_normal(model, layers=config.N)
    return model
