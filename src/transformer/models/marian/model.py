"""Builds a Marian model from its configuration: the paper's Transformer with other positions and activations."""

from functools import partial
from typing import Final

from torch import nn

from transformer.blocks import (
    ACTIVATIONS,
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForwardBlock,
    InputEmbedding,
    LayerNormalization,
    MultiHeadAttention,
    PositionalEncoding,
    ProjectionLayer,
    halved_sinusoid,
    initialize_embeddings,
    initialize_xavier_uniform,
)
from transformer.errors import ConfigError
from transformer.models.marian.config import MarianConfig
from transformer.transformer import Transformer

EPSILON: Final = 1e-5
"""Of the norms, in every published model."""


def build(config: MarianConfig) -> Transformer:
    """Builds a freshly initialized model.

    Raises:
        ConfigError: A vocabulary size is not set, or vocabularies of different sizes are to share a matrix.

    Source: Junczys-Dowmunt et al. 2018, "Marian: Fast Neural Machine Translation in C++".
    """
    sizes = config.vocab_sizes
    if config.share_embeddings == "all" and sizes[0] != sizes[1]:
        raise ConfigError(
            f"share_embeddings='all' needs one vocabulary, but they have {sizes[0]} and {sizes[1]} tokens"
        )
    norm, scale = partial(LayerNormalization, eps=EPSILON), None if config.scale_embedding else 1.0

    def feed_forward(d_ff: int | None) -> FeedForwardBlock:
        activation = ACTIVATIONS[config.activation]
        return FeedForwardBlock(config.d_model, d_ff or config.d_ff, config.activation_dropout, activation=activation)

    def attention(h: int | None) -> MultiHeadAttention:
        return MultiHeadAttention(config.d_model, h or config.h, config.attention_dropout)

    def encoder_layer() -> EncoderLayer:
        blocks = attention(config.encoder_h), feed_forward(config.encoder_d_ff)
        return EncoderLayer(config.d_model, *blocks, config.dropout, order="post", norm=norm)

    def decoder_layer() -> DecoderLayer:
        blocks = attention(config.decoder_h), attention(config.decoder_h), feed_forward(config.decoder_d_ff)
        return DecoderLayer(config.d_model, *blocks, config.dropout, order="post", norm=norm)

    def positions(seq_len: int) -> PositionalEncoding:
        return PositionalEncoding(config.d_model, seq_len, config.dropout, table=halved_sinusoid)

    model = Transformer(
        Encoder(nn.ModuleList(encoder_layer() for _ in range(config.encoder_layers or config.N)), nn.Identity()),
        Decoder(nn.ModuleList(decoder_layer() for _ in range(config.decoder_layers or config.N)), nn.Identity()),
        InputEmbedding(config.d_model, sizes[0], scale=scale),
        InputEmbedding(config.d_model, sizes[1], scale=scale),
        positions(config.src_seq_len),
        positions(config.tgt_seq_len),
        ProjectionLayer(config.d_model, sizes[1]),
    )
    if config.share_embeddings != "none":
        model.projection_layer.proj.weight = model.tgt_embed.embedding.weight
    if config.share_embeddings == "all":
        model.src_embed.embedding.weight = model.tgt_embed.embedding.weight
    initialize_xavier_uniform(model)
    initialize_embeddings(model)
    nn.init.zeros_(model.projection_layer.proj.bias)
    return model
