"""Configuration of a Marian model."""

from typing import Final, Literal

from pydantic import Field, model_validator

from transformer.config import Layers
from transformer.errors import ConfigError
from transformer.models.kinds import Activation, Dropout, EncoderDecoderConfig


class MarianConfig(EncoderDecoderConfig):
    """Configuration of a Marian model, with all options in which OPUS-MT models differ.

    The model is a post-norm Transformer whose sinusoidal positions hold all sines first, then all cosines. Token ids
    follow this package's order, special tokens first; `pad_id`, `eos_id`, `unk_id` and `start_id` are those of the
    published vocabulary.
    """

    family: Literal["marian"] = "marian"
    src_vocab_size: int | None = Field(default=None, ge=1, description="source vocabulary size; set by the tokenizer")
    tgt_vocab_size: int | None = Field(default=None, ge=1, description="target vocabulary size; set by the tokenizer")
    src_seq_len: int = Field(default=512, ge=2, description="maximum source length in tokens, EOS included")
    tgt_seq_len: int = Field(default=512, ge=2, description="maximum target length in tokens, EOS included")
    d_model: int = Field(default=512, ge=2, description="hidden size of the model")
    N: Layers = Field(default=6, description="number of encoder layers, and of decoder layers")
    encoder_layers: Layers | None = Field(default=None, description="number of encoder layers; N if not set")
    decoder_layers: Layers | None = Field(default=None, description="number of decoder layers; N if not set")
    h: int = Field(default=8, ge=1, description="number of attention heads")
    encoder_h: int | None = Field(default=None, ge=1, description="number of encoder attention heads; h if not set")
    decoder_h: int | None = Field(default=None, ge=1, description="number of decoder attention heads; h if not set")
    d_ff: int = Field(default=2048, ge=1, description="inner size of the feed-forward networks")
    encoder_d_ff: int | None = Field(
        default=None, ge=1, description="inner size of the encoder's feed-forward networks; d_ff if not set"
    )
    decoder_d_ff: int | None = Field(
        default=None, ge=1, description="inner size of the decoder's feed-forward networks; d_ff if not set"
    )
    activation: Activation = "silu"
    scale_embedding: bool = Field(default=True, description="multiply embeddings by sqrt(d_model)")
    share_embeddings: Literal["none", "target", "all"] = Field(
        default="all",
        description="shared matrices: none, target (target embedding and output) or all (source embedding too)",
    )
    dropout: Dropout = 0.1
    attention_dropout: float = Field(default=0.0, ge=0, lt=1, description="dropout probability of attention weights")
    activation_dropout: float = Field(
        default=0.0, ge=0, lt=1, description="dropout probability after the activation in the feed-forward networks"
    )
    pad_id: int = Field(default=58_100, ge=0, description="id of the padding token in the published vocabulary")
    eos_id: int = Field(default=0, ge=0, description="id of the EOS token in the published vocabulary")
    unk_id: int = Field(default=1, ge=0, description="id of the unknown token in the published vocabulary")
    start_id: int = Field(
        default=58_100, ge=0, description="id of the decoder's start token in the published vocabulary"
    )

    @model_validator(mode="after")
    def _sizes_fit(self) -> "MarianConfig":
        for heads in (self.h, self.encoder_h or self.h, self.decoder_h or self.h):
            if self.d_model % heads:
                raise ValueError(f"{heads} heads do not divide d_model={self.d_model}; choose a divisor")
        if self.d_model % 2:
            raise ValueError(f"d_model={self.d_model} is odd, but sines and cosines come in pairs; choose an even one")
        return self

    @property
    def vocab_sizes(self) -> tuple[int, int]:
        """Sizes of the source and the target vocabulary.

        Raises:
            ConfigError: One of them is not set.
        """
        if self.src_vocab_size is None or self.tgt_vocab_size is None:
            raise ConfigError("model.src_vocab_size and tgt_vocab_size are not both set; give the tokenizer's sizes")
        return self.src_vocab_size, self.tgt_vocab_size


Config = MarianConfig

PRESETS: Final[dict[str, dict[str, object]]] = {
    "tiny": {"d_model": 128, "N": 2, "h": 4, "d_ff": 256},
    "opus": {"d_model": 512, "N": 6, "h": 8, "d_ff": 2048},
}
"""`opus` has the sizes of most OPUS-MT models (Tiedemann and Thottingal 2020, "OPUS-MT")."""
