"""Configuration of a Transformer; the recipe's `model` section."""

from typing import Final, Literal

from pydantic import Field, model_validator

from transformer.config import Layers
from transformer.models.kinds import Dropout, EncoderDecoderConfig, SourceLength, TargetLength


class TransformerConfig(EncoderDecoderConfig):
    """The arguments of `build_transformer`, under the paper's names.

    Recipes omit the vocabulary sizes, which a run sets from its tokenizers.
    """

    family: Literal["transformer"] = "transformer"
    src_vocab_size: int | None = Field(default=None, ge=1, description="source vocabulary size; set by the tokenizer")
    tgt_vocab_size: int | None = Field(default=None, ge=1, description="target vocabulary size; set by the tokenizer")
    src_seq_len: SourceLength = 512
    tgt_seq_len: TargetLength = 512
    d_model: int = Field(default=512, ge=2, description="hidden size of the model")
    N: Layers = Field(default=6, description="number of encoder layers, and of decoder layers")
    encoder_layers: Layers | None = Field(default=None, description="number of encoder layers; N if not set")
    decoder_layers: Layers | None = Field(default=None, description="number of decoder layers; N if not set")
    h: int = Field(default=8, ge=1, description="number of attention heads")
    d_k: int | None = Field(
        default=None, ge=1, description="width of a head's queries and keys; d_model / h if not set"
    )
    d_v: int | None = Field(default=None, ge=1, description="width of a head's values; d_k if not set")
    d_ff: int = Field(default=2048, ge=1, description="inner size of the feed-forward networks")
    positions: Literal["sinusoidal", "learned"] = Field(
        default="sinusoidal",
        description="positional encoding: sines and cosines, or a learned vector for each position",
    )
    dropout: Dropout = 0.1
    attention_dropout: float = Field(default=0.0, ge=0, lt=1, description="dropout probability of attention weights")
    activation_dropout: float = Field(
        default=0.0, ge=0, lt=1, description="dropout probability after the activation in the feed-forward networks"
    )
    norm_order: Literal["pre", "post"] = Field(
        default="pre", description="layer normalization before (pre) or after (post, as in the paper) each sublayer"
    )
    initialization: Literal["xavier", "fairseq"] = Field(
        default="xavier", description="weight initialization; fairseq learns faster if norm_order is post"
    )
    share_embeddings: Literal["none", "target", "all"] = Field(
        default="all",
        description="shared matrices: none, target (target embedding and output) or all (as in the paper)",
    )

    @model_validator(mode="after")
    def _sizes_fit(self) -> "TransformerConfig":
        if self.d_k is None and self.d_model % self.h:
            raise ValueError(f"h={self.h} does not divide d_model={self.d_model}; choose a divisor")
        if self.d_model % 2:
            raise ValueError(f"d_model={self.d_model} is odd, but sines and cosines come in pairs; choose an even one")
        return self


Config = TransformerConfig

PRESETS: Final[dict[str, dict[str, object]]] = {
    "mini": {"d_model": 128, "N": 2, "h": 4, "d_ff": 512},
    "tiny": {"d_model": 128, "N": 4, "h": 4, "d_ff": 256},
    "small": {"d_model": 256, "N": 4, "h": 4, "d_ff": 1024},
    "base": {"d_model": 512, "N": 6, "h": 8, "d_ff": 2048, "dropout": 0.1, "norm_order": "post"},
    "big": {"d_model": 1024, "N": 6, "h": 16, "d_ff": 4096, "dropout": 0.3, "norm_order": "post"},
    "deep-shallow": {"d_model": 512, "encoder_layers": 12, "decoder_layers": 1, "h": 8, "d_ff": 2048},
}
"""`base` and `big` are those of Vaswani et al. 2017, Table 3 (all three matrices shared, post-norm).

`tiny` has the sizes of Transformer-Tiny (Wu et al. 2021, "Good for Misconceived Reasons"), `deep-shallow` the layers of
Kasai et al. 2021, "Deep Encoder, Shallow Decoder": the decoder runs once per output token and the encoder
once per sentence, so moving layers from the decoder to the encoder speeds up translation at about the same quality.
This preset uses pre-norm, because twelve post-norm layers are harder to train.
"""
