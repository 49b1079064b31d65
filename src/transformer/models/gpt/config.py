"""Configuration of a GPT."""

from typing import Final, Literal

from pydantic import Field, model_validator

from transformer.config import Layers
from transformer.models.kinds import Activation, FurtherEnds, LanguageModelConfig


class GptConfig(LanguageModelConfig):
    """Configuration of a GPT: a pre-norm decoder with learned position embeddings (GPT-2)."""

    family: Literal["gpt"] = "gpt"
    vocab_size: int | None = Field(default=None, ge=1, description="vocabulary size; set by the tokenizer")
    seq_len: int = Field(default=1024, ge=2, description="maximum sequence length in tokens, special tokens included")
    d_model: int = Field(default=768, ge=1, description="hidden size of the model")
    N: Layers = Field(default=12, description="number of layers")
    h: int = Field(default=12, ge=1, description="number of attention heads")
    d_ff: int | None = Field(
        default=None, ge=1, description="inner size of the feed-forward networks; 4 * d_model if not set"
    )
    activation: Activation = "gelu_tanh"
    eps: float = Field(default=1e-5, gt=0, description="epsilon of layer normalization")
    dropout: float = Field(default=0.1, ge=0, lt=1, description="dropout probability of residual connections")
    embedding_dropout: float | None = Field(
        default=None, ge=0, lt=1, description="dropout probability of embeddings; dropout if not set"
    )
    attention_dropout: float = Field(default=0.0, ge=0, lt=1, description="dropout probability of attention weights")
    scale_by_width: bool = Field(default=True, description="divide attention scores by sqrt(d_k)")
    scale_by_layer: bool = Field(
        default=False, description="also divide the attention scores of layer i by i, counted from 1"
    )
    share_embeddings: bool = Field(default=True, description="tie the input embedding and the output projection")
    bos_id: int | None = Field(default=None, ge=0, description="id of the BOS token; the tokenizer's if not set")
    eos_id: int | None = Field(default=None, ge=0, description="id of the EOS token; the tokenizer's if not set")
    further_eos_ids: FurtherEnds = ()
    pad_id: int | None = Field(default=None, ge=0, description="id of the padding token; the tokenizer's if not set")

    @model_validator(mode="after")
    def _sizes_fit(self) -> "GptConfig":
        if self.d_model % self.h:
            raise ValueError(f"h={self.h} does not divide d_model={self.d_model}; choose a divisor")
        return self


Config = GptConfig

PRESETS: Final[dict[str, dict[str, object]]] = {
    "tiny": {"d_model": 128, "N": 4, "h": 4, "seq_len": 256},
    "small": {"d_model": 768, "N": 12, "h": 12, "seq_len": 1024},
    "medium": {"d_model": 1024, "N": 24, "h": 16, "seq_len": 1024},
}
"""`small` and `medium` have the sizes of the first two models of Radford et al. 2019, "Language Models are Unsupervised
Multitask Learners", Table 2."""
