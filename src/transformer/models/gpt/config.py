"""Configuration of a GPT."""

from typing import Any, Final, Literal

from pydantic import Field, model_validator

from transformer.config import Config

KIND: Final = "language model"


class GptConfig(Config):
    """A pre-norm decoder with learned positions (GPT-2)."""

    family: Literal["gpt"] = "gpt"
    vocab_size: int | None = Field(default=None, ge=1, description="set by the tokenizer")
    seq_len: int = Field(default=1024, ge=2, description="positions")
    d_model: int = Field(default=768, ge=1, description="width of the model")
    N: int = Field(default=12, ge=1, description="layers")
    h: int = Field(default=12, ge=1, description="attention heads")
    d_ff: int | None = Field(default=None, ge=1, description="inner width of the feed-forward networks; 4 d_model")
    activation: Literal["relu", "silu", "gelu", "gelu_tanh"] = Field(
        default="gelu_tanh", description="activation function"
    )
    eps: float = Field(default=1e-5, gt=0, description="of the norms")
    dropout: float = Field(default=0.1, ge=0, lt=1, description="of residual connections")
    embedding_dropout: float | None = Field(default=None, ge=0, lt=1, description="of embeddings; dropout if not set")
    attention_dropout: float = Field(default=0.0, ge=0, lt=1, description="of attention weights")
    scale_by_width: bool = Field(default=True, description="divide products of attention by sqrt(d_k)")
    scale_by_layer: bool = Field(default=False, description="divide those of layer i by i, from 1 on")
    share_embeddings: bool = Field(default=True, description="embedding and output are one matrix")
    bos_id: int | None = Field(default=None, ge=0, description="of what texts begin with; the tokenizer's if not set")
    eos_id: int | None = Field(default=None, ge=0, description="of the end of a text; the tokenizer's if not set")
    pad_id: int | None = Field(default=None, ge=0, description="of padding; the tokenizer's if not set")

    @model_validator(mode="after")
    def _sizes_fit(self) -> "GptConfig":
        if self.d_model % self.h:
            raise ValueError(f"h={self.h} does not divide d_model={self.d_model}; choose a divisor")
        return self


Config = GptConfig

PRESETS: Final[dict[str, dict[str, Any]]] = {
    "tiny": {"d_model": 128, "N": 4, "h": 4, "seq_len": 256},
    "small": {"d_model": 768, "N": 12, "h": 12, "seq_len": 1024},
    "medium": {"d_model": 1024, "N": 24, "h": 16, "seq_len": 1024},
}
"""`small` and `medium` have the sizes of the first two models of Radford et al. 2019, "Language Models are Unsupervised
Multitask Learners", Table 2."""
