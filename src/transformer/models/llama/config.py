"""Configuration of a Llama."""

from typing import Final, Literal

from pydantic import Field

from transformer.config import Config

KIND: Final = "language model"


class LlamaConfig(Config):
    """A pre-norm decoder with rotary positions, gated feed-forward networks, RMS norms and shared key heads."""

    family: Literal["llama"] = "llama"
    vocab_size: int | None = Field(default=None, ge=1, description="set by the tokenizer")
    seq_len: int = Field(default=2048, ge=2, description="positions")
    d_model: int = Field(default=512, ge=2, description="width of the model")
    N: int = Field(default=8, ge=1, description="layers")
    h: int = Field(default=8, ge=1, description="attention heads")
    kv_heads: int | None = Field(default=None, ge=1, description="heads of keys and values; h if not set")
    d_k: int | None = Field(default=None, ge=2, description="width of a head; d_model / h if not set")
    d_ff: int = Field(default=1376, ge=1, description="inner width of the feed-forward networks")
    attention_bias: bool = Field(default=False, description="biases of the linear layers of attention")
    network_bias: bool = Field(default=False, description="biases of the linear layers of the networks")
    base: float = Field(default=10000.0, gt=0, description="of the frequencies of positions")
    eps: float = Field(default=1e-6, gt=0, description="of the norms")
    dropout: float = Field(default=0.0, ge=0, lt=1, description="of residual connections and embeddings")
    attention_dropout: float = Field(default=0.0, ge=0, lt=1, description="of attention weights")
    share_embeddings: bool = Field(default=False, description="embedding and output are one matrix")
    bos_id: int | None = Field(default=None, ge=0, description="of what texts begin with; the tokenizer's if not set")
    eos_id: int | None = Field(default=None, ge=0, description="of the end of a text; the tokenizer's if not set")
    pad_id: int | None = Field(default=None, ge=0, description="of padding; the tokenizer's if not set")


Config = LlamaConfig

PRESETS: Final = {"tiny": {"d_model": 128, "N": 4, "h": 4, "kv_heads": 2, "d_ff": 352, "seq_len": 256, "dropout": 0.1}}
