"""Configuration of a T5."""

from typing import Final, Literal

from pydantic import Field, model_validator

from transformer.config import Layers
from transformer.models.kinds import Activation, Dropout, EncoderDecoderConfig, SourceLength, TargetLength


class T5Config(EncoderDecoderConfig):
    """Configuration of a T5: a pre-norm Transformer with relative position biases, RMSNorm and no linear biases."""

    family: Literal["t5"] = "t5"
    vocab_size: int | None = Field(default=None, ge=1, description="vocabulary size; set by the tokenizer")
    src_seq_len: SourceLength = 512
    tgt_seq_len: TargetLength = 512
    d_model: int = Field(default=512, ge=1, description="hidden size of the model")
    d_k: int | None = Field(default=None, ge=1, description="size of an attention head; d_model / h if not set")
    N: Layers = Field(default=6, description="number of encoder layers, and of decoder layers")
    decoder_layers: Layers | None = Field(default=None, description="number of decoder layers; N if not set")
    h: int = Field(default=8, ge=1, description="number of attention heads")
    d_ff: int = Field(default=1024, ge=1, description="inner size of the feed-forward networks")
    gated: bool = Field(default=True, description="use gated feed-forward networks, as in T5 version 1.1")
    activation: Activation = "gelu_tanh"
    buckets: int = Field(default=32, ge=4, description="number of relative position buckets")
    max_distance: int = Field(
        default=128, ge=4, description="relative distance beyond which all positions share the last bucket"
    )
    eps: float = Field(default=1e-6, gt=0, description="epsilon of RMS normalization")
    dropout: Dropout = 0.1
    attention_dropout: float = Field(default=0.1, ge=0, lt=1, description="dropout probability of attention weights")
    activation_dropout: float = Field(
        default=0.1, ge=0, lt=1, description="dropout probability inside the feed-forward networks"
    )
    share_embeddings: Literal["all", "inputs"] = Field(
        default="inputs",
        description="shared matrices: inputs (both embeddings, as in T5 1.1) or all (output too, learns slower)",
    )
    scale_output: bool | None = Field(
        default=None,
        description="multiply the decoder's output by d_model^-0.5; if not set, only for share_embeddings=all",
    )
    pad_id: int | None = Field(default=None, ge=0, description="id of the padding token; the tokenizer's if not set")
    eos_id: int | None = Field(default=None, ge=0, description="id of the EOS token; the tokenizer's if not set")
    start_id: int | None = Field(default=None, ge=0, description="id of the decoder's start token; BOS if not set")

    @model_validator(mode="before")
    @classmethod
    def _scale_of_one_matrix(cls, values: dict[str, object]) -> dict[str, object]:
        """Embeddings from N(0, 1) as an output would make logits of variance d_model."""
        scaled = values.get("share_embeddings") == "all"
        return values if values.get("scale_output") is not None else {**values, "scale_output": scaled}

    @model_validator(mode="after")
    def _buckets_are_ranges(self) -> "T5Config":
        if self.max_distance <= self.buckets // 2:
            raise ValueError(f"max_distance={self.max_distance} must be more than half of buckets={self.buckets}")
        return self


Config = T5Config

PRESETS: Final[dict[str, dict[str, object]]] = {
    "tiny": {"d_model": 128, "N": 2, "h": 4, "d_ff": 256},
    "small": {"d_model": 512, "N": 8, "h": 6, "d_k": 64, "d_ff": 1024},
    "base": {"d_model": 768, "N": 12, "h": 12, "d_ff": 2048},
    "small-1.0": {
        "d_model": 512, "N": 6, "h": 8, "d_ff": 2048, "gated": False, "activation": "relu", "share_embeddings": "all"
    },
}  # fmt: skip
"""`small` and `base` have the sizes of version 1.1 of the published models of Raffel et al. 2020."""
