"""Builds a T5 from its configuration: the paper's Transformer with other positions, norms and networks."""

from functools import partial

from torch import nn

from transformer.blocks import (
    ACTIVATIONS,
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForwardBlock,
    GatedFeedForward,
    InputEmbedding,
    MultiHeadAttention,
    NoPositions,
    ProjectionLayer,
    RelativePositionBias,
    RMSNormalization,
    Scale,
    initialize_t5,
)
from transformer.errors import ConfigError
from transformer.models.t5.config import T5Config
from transformer.transformer import Transformer


def build(config: T5Config) -> Transformer:
    """Builds a freshly initialized model.

    Raises:
        ConfigError: The vocabulary size is not set, or h does not divide d_model and d_k is not set.

    Source: Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer",
    Sec. 2.1; the scale of the output is that of the authors' code, where embeddings and output are one matrix.
    """
    if config.vocab_size is None:
        raise ConfigError("model.vocab_size is not set; give the tokenizer's vocabulary size")
    d_model, norm = config.d_model, partial(RMSNormalization, eps=config.eps)

    def attention() -> MultiHeadAttention:
        return MultiHeadAttention(d_model, config.h, config.attention_dropout, d_k=config.d_k, bias="none", scale=1.0)

    def network() -> nn.Module:
        kind = GatedFeedForward if config.gated else FeedForwardBlock
        activation = ACTIVATIONS[config.activation]
        return kind(d_model, config.d_ff, config.activation_dropout, activation=activation, bias=False)

    def encoder_layer() -> EncoderLayer:
        return EncoderLayer(d_model, attention(), network(), config.dropout, norm=norm)

    def decoder_layer() -> DecoderLayer:
        return DecoderLayer(d_model, attention(), attention(), network(), config.dropout, norm=norm)

    def positions(*, bidirectional: bool) -> RelativePositionBias:
        return RelativePositionBias(config.h, config.buckets, config.max_distance, bidirectional=bidirectional)

    last = nn.Sequential(norm(d_model), Scale(d_model**-0.5)) if config.scale_output else norm(d_model)
    embedding = InputEmbedding(d_model, config.vocab_size, scale=1.0)
    model = Transformer(
        Encoder(
            nn.ModuleList(encoder_layer() for _ in range(config.N)),
            norm(d_model),
            position_bias=positions(bidirectional=True),
        ),
        Decoder(
            nn.ModuleList(decoder_layer() for _ in range(config.decoder_layers or config.N)),
            last,
            position_bias=positions(bidirectional=False),
        ),
        embedding,
        embedding,
        NoPositions(config.src_seq_len, config.dropout),
        NoPositions(config.tgt_seq_len, config.dropout),
        ProjectionLayer(d_model, config.vocab_size, bias=False),
    )
    if config.share_embeddings == "all":
        model.projection_layer.proj.weight = embedding.embedding.weight
    initialize_t5(model, d_model, config.d_k or d_model // config.h)
    return model
