"""Configuration of a BERT."""

from typing import Final, Literal

from pydantic import Field, model_validator

from transformer.config import Layers
from transformer.models.kinds import Activation, Dropout, EncoderConfig


class BertConfig(EncoderConfig):
    """Configuration of a BERT: a post-norm encoder with learned position embeddings, and optional heads."""

    family: Literal["bert"] = "bert"
    vocab_size: int | None = Field(default=None, ge=1, description="vocabulary size; set by the tokenizer")
    seq_len: int = Field(default=512, ge=2, description="maximum sequence length in tokens, special tokens included")
    d_model: int = Field(default=768, ge=1, description="hidden size of the model")
    N: Layers = Field(default=12, description="number of layers")
    h: int = Field(default=12, ge=1, description="number of attention heads")
    d_ff: int = Field(default=3072, ge=1, description="inner size of the feed-forward networks")
    activation: Activation = "gelu"
    token_types: int = Field(
        default=2, ge=1, description="number of token types (segments): 0 is the first text, 1 the second"
    )
    eps: float = Field(default=1e-12, gt=0, description="epsilon of layer normalization")
    dropout: Dropout = 0.1
    attention_dropout: float = Field(default=0.1, ge=0, lt=1, description="dropout probability of attention weights")
    head_dropout: float | None = Field(
        default=None, ge=0, lt=1, description="dropout probability before the classification head; dropout if not set"
    )
    pooler: bool = Field(default=True, description="add a pooler: a linear layer and tanh over the first position")
    masked: bool = Field(default=False, description="add a masked language modeling head")
    next_sentence: bool = Field(default=False, description="add a next-sentence prediction head")
    labels: tuple[str, ...] = Field(
        default=(), description="label names of texts; adds a classification head if not empty"
    )
    embedding: Literal["mean", "first", "pooled"] = Field(
        default="mean",
        description="embedding of a text: mean over its positions, first position, or pooled (pooler output)",
    )
    labels_read: Literal["pooler", "embedding"] = Field(
        default="pooler",
        description="input of the classification head: pooler, as in published models, or the text's embedding",
    )
    text_tokens: int | None = Field(
        default=None,
        ge=2,
        description="maximum tokens of a text in one pass, special tokens included; seq_len if not set",
    )
    pad_id: int | None = Field(default=0, ge=0, description="id of the padding token")

    @model_validator(mode="after")
    def _parts_fit(self) -> "BertConfig":
        if self.d_model % self.h:
            raise ValueError(f"h={self.h} does not divide d_model={self.d_model}; choose a divisor")
        if self.text_tokens is not None and self.text_tokens > self.seq_len:
            raise ValueError(f"text_tokens={self.text_tokens} exceeds the {self.seq_len} positions; shorten it")
        tells_labels = bool(self.labels) and self.labels_read == "pooler"
        needs_pooler = self.next_sentence or tells_labels or self.embedding == "pooled"
        if not self.pooler and needs_pooler:
            raise ValueError(
                "next_sentence, embedding='pooled' and labels with labels_read='pooler' read what the pooler gives; "
                "set pooler=true"
            )
        return self


Config = BertConfig

PRESETS: Final[dict[str, dict[str, object]]] = {
    "tiny": {"d_model": 128, "N": 2, "h": 2, "d_ff": 512, "masked": True},
    "mini": {"d_model": 256, "N": 4, "h": 4, "d_ff": 1024, "masked": True},
    "base": {"masked": True},
    "large": {"d_model": 1024, "N": 24, "h": 16, "d_ff": 4096, "masked": True},
}
"""`base` and `large` are those of Devlin et al. 2019, Sec. 3; `tiny` and `mini` of Turc et al. 2019, "Well-Read
Students Learn Better", Table 1."""
