"""The building blocks of the paper, one idea per file.

Shapes are written as jaxtyping strings. The axis letters of this package are:

- B: batch. S: source length. T: target (or query) length. D: model width (d_model).
- H: heads. G: heads of keys and values. E: width of one head (d_k). V: vocabulary.
- W: hypotheses per sentence. R: selected rows. M: selected tokens. C: channels of an image.
- L: capacity of a cache. N: sentences in a cache, or scored positions in the loss.

Masks are boolean, or integers 0 and 1, and broadcast to (B, H, T, S). True (1) means "may attend".
"""

from transformer.blocks.attention import MultiHeadAttention, attention, attention_weights
from transformer.blocks.cache import CausalCache, DecoderCache, IncrementalState, KeyValueCache, LayerCache
from transformer.blocks.causal import CausalDecoder, CausalDecoderLayer
from transformer.blocks.decoder import Decoder, DecoderLayer
from transformer.blocks.dropout import Dropout
from transformer.blocks.embedding import InputEmbedding, PatchEmbedding
from transformer.blocks.encoder import Encoder, EncoderLayer
from transformer.blocks.feed_forward import ACTIVATIONS, FeedForwardBlock, GatedFeedForward
from transformer.blocks.initialization import (
    initialize_embeddings,
    initialize_fairseq,
    initialize_normal,
    initialize_t5,
    initialize_xavier_uniform,
)
from transformer.blocks.masks import causal_mask, neighbourhood_mask, padding_mask, target_mask
from transformer.blocks.normalization import LayerNormalization, RMSNormalization, Scale
from transformer.blocks.position_bias import LinearBias, RelativePositionBias
from transformer.blocks.positional import LearnedPositions, NoPositions, PositionalEncoding, halved_sinusoid, sinusoid
from transformer.blocks.projection import ProjectionLayer
from transformer.blocks.readout import ReadoutEncoder, ReadoutLayer
from transformer.blocks.residual import ResidualConnection
from transformer.blocks.rotary import FrequencyScaling, RotaryAttention, RotaryPositions

DecoderBlock = DecoderLayer
"""Another name of `DecoderLayer`."""
MultiHeadAttentionBlock = MultiHeadAttention
"""Another name of `MultiHeadAttention`."""

__all__ = [
    "ACTIVATIONS",
    "CausalCache",
    "CausalDecoder",
    "CausalDecoderLayer",
    "Decoder",
    "DecoderBlock",
    "DecoderCache",
    "DecoderLayer",
    "Dropout",
    "Encoder",
    "EncoderLayer",
    "FeedForwardBlock",
    "FrequencyScaling",
    "GatedFeedForward",
    "IncrementalState",
    "InputEmbedding",
    "KeyValueCache",
    "LayerCache",
    "LayerNormalization",
    "LearnedPositions",
    "LinearBias",
    "MultiHeadAttention",
    "MultiHeadAttentionBlock",
    "NoPositions",
    "PatchEmbedding",
    "PositionalEncoding",
    "ProjectionLayer",
    "RMSNormalization",
    "ReadoutEncoder",
    "ReadoutLayer",
    "RelativePositionBias",
    "ResidualConnection",
    "RotaryAttention",
    "RotaryPositions",
    "Scale",
    "attention",
    "attention_weights",
    "causal_mask",
    "halved_sinusoid",
    "initialize_embeddings",
    "initialize_fairseq",
    "initialize_normal",
    "initialize_t5",
    "initialize_xavier_uniform",
    "neighbourhood_mask",
    "padding_mask",
    "sinusoid",
    "target_mask",
]
