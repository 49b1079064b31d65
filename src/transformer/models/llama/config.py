"""Configuration of a Llama."""

from typing import Final, Literal

from pydantic import Field

from transformer.config import Config as Values
from transformer.config import Layers
from transformer.models.kinds import Dropout, FurtherEnds, LanguageModelConfig


class RopeScaling(Values):
    """Slower rotations for long texts, as in Llama 3.1; see `FrequencyScaling`."""

    factor: float = Field(ge=1, description="divisor of the low frequencies")
    low: float = Field(default=1.0, gt=0, description="number of turns below which a frequency is low")
    high: float = Field(default=4.0, gt=0, description="number of turns above which a frequency stays; more than low")
    seq_len: int = Field(ge=1, description="number of positions of the pre-training")


class LlamaConfig(LanguageModelConfig):
    """Configuration of a Llama: a pre-norm decoder with RoPE, gated feed-forward networks, RMSNorm and GQA.

    RoPE stands for rotary position embeddings, GQA for grouped-query attention.
    """

    family: Literal["llama"] = "llama"
    vocab_size: int | None = Field(default=None, ge=1, description="vocabulary size; set by the tokenizer")
    seq_len: int = Field(default=2048, ge=2, description="maximum sequence length in tokens, special tokens included")
    d_model: int = Field(default=512, ge=2, description="hidden size of the model")
    N: Layers = Field(default=8, description="number of layers")
    h: int = Field(default=8, ge=1, description="number of attention heads")
    kv_heads: int | None = Field(
        default=None, ge=1, description="number of key-value heads (grouped-query attention); h if not set"
    )
    d_k: int | None = Field(default=None, ge=2, description="size of an attention head; d_model / h if not set")
    d_ff: int = Field(default=1376, ge=1, description="inner size of the feed-forward networks")
    attention_bias: bool = Field(default=False, description="use biases in the linear layers of attention")
    network_bias: bool = Field(
        default=False, description="use biases in the linear layers of the feed-forward networks"
    )
    base: float = Field(default=10000.0, gt=0, description="base of the rotary position frequencies (RoPE theta)")
    scaling: RopeScaling | None = Field(default=None, description="slower rotations for long texts; none if not set")
    eps: float = Field(default=1e-6, gt=0, description="epsilon of RMS normalization")
    dropout: Dropout = 0.0
    attention_dropout: float = Field(default=0.0, ge=0, lt=1, description="dropout probability of attention weights")
    share_embeddings: bool = Field(default=False, description="tie the input embedding and the output projection")
    bos_id: int | None = Field(default=None, ge=0, description="id of the BOS token; the tokenizer's if not set")
    eos_id: int | None = Field(default=None, ge=0, description="id of the EOS token; the tokenizer's if not set")
    further_eos_ids: FurtherEnds = ()
    pad_id: int | None = Field(default=None, ge=0, description="id of the padding token; the tokenizer's if not set")


Config = LlamaConfig

PRESETS: Final = {"tiny": {"d_model": 128, "N": 4, "h": 4, "kv_heads": 2, "d_ff": 352, "seq_len": 256, "dropout": 0.1}}
