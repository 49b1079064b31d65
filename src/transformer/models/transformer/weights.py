"""Our own models in published formats: post-norm as Marian, pre-norm as Pegasus.

Both add sinusoids whose sines come first, where ours alternate with cosines: every vector of width d_model is
reordered. Their norms have an epsilon of 1e-5 in place of our 1e-6, which moves a logit by about as much as rounding
does.
"""

from collections.abc import Mapping
from typing import Any, Final

import torch
from jaxtyping import Int
from torch import Tensor

from transformer.config import Config
from transformer.errors import BundleError
from transformer.models.huggingface.format import Format
from transformer.models.huggingface.generation_config import GENERATION, described_writing
from transformer.models.huggingface.key_mapping import Renamed, layer_norm, write_renamed
from transformer.models.marian.weights import BIAS, layers, matrices
from transformer.models.transformer.config import TransformerConfig
from transformer.tokenizers.huggingface import write_tokenizer
from transformer.tokenizers.pair import TokenizerPair
from transformer.tokenizers.special_tokens import BOS_ID, EOS_ID, PAD_ID

INPUTS: Final = ("W_q.weight", "W_k.weight", "W_v.weight", "linear_1.weight", "embedding.weight", "proj.weight")
"""What the names of parameters end with whose second axis is d_model."""
OUTPUTS: Final = ("W_o.weight", "W_o.bias", "linear_2.weight", "linear_2.bias", "norm.alpha", "norm.beta")
"""Those whose first axis is."""


class OwnFormat(Format):
    """Writes Marian and Pegasus folders; what is published in them is read as those."""

    def write_config(self, config: Config) -> dict[str, Any]:
        """As of `Format`.

        Raises:
            BundleError: the format has no such model.
        """
        assert isinstance(config, TransformerConfig)
        is_post = config.norm_order == "post"
        if not is_post and config.share_embeddings != "all":
            raise BundleError(
                f"a pre-norm model is written as Pegasus, which has one matrix for all, but share_embeddings="
                f"{config.share_embeddings!r}; train with 'all', or with norm_order='post'"
            )
        kind = "marian" if is_post else "pegasus"
        sizes = {
            "d_model": config.d_model, "encoder_layers": config.encoder_layers or config.N,
            "decoder_layers": config.decoder_layers or config.N, "encoder_attention_heads": config.h,
            "decoder_attention_heads": config.h, "encoder_ffn_dim": config.d_ff, "decoder_ffn_dim": config.d_ff,
            "max_position_embeddings": max(config.src_seq_len, config.tgt_seq_len), "vocab_size": config.src_vocab_size,
        }  # fmt: skip
        dropouts = {
            "dropout": config.dropout, "attention_dropout": config.attention_dropout,
            "activation_dropout": config.activation_dropout,
        }  # fmt: skip
        shared = {"share_encoder_decoder_embeddings": config.share_embeddings == "all"} if is_post else {}
        control = {"pad_token_id": PAD_ID, "eos_token_id": EOS_ID, "decoder_start_token_id": BOS_ID}
        return {
            "model_type": kind, "architectures": ["MarianMTModel" if is_post else "PegasusForConditionalGeneration"],
            **sizes, **dropouts, **shared, **control, "decoder_vocab_size": config.tgt_vocab_size,
            "tie_word_embeddings": config.share_embeddings != "none", "activation_function": "relu",
            "scale_embedding": True, "forced_eos_token_id": None, "bos_token_id": BOS_ID, "is_encoder_decoder": True,
            "static_position_embeddings": True,
        }  # fmt: skip

    def write_weights(self, config: Config, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """As of `Format`; every matrix once."""
        assert isinstance(config, TransformerConfig)
        order = torch.cat([torch.arange(0, config.d_model, 2), torch.arange(1, config.d_model, 2)])
        ours = {name: _reordered(name, tensor, order) for name, tensor in state.items()}
        ours.setdefault(BIAS, torch.zeros(config.tgt_vocab_size or 0))
        table = [*layers(config), *matrices(config.share_embeddings)]
        if config.norm_order == "pre":
            for side in ("encoder", "decoder"):
                table += layer_norm(f"model.{side}.layer_norm", f"{side}.norm")
        return write_renamed([*table, Renamed("final_logits_bias", (BIAS,), added_axes=1)], ours)

    def write_tokenizers(self, config: Config, tokenizers: TokenizerPair) -> dict[str, bytes]:
        """As of `Format`; where each side has its own, that of the target stands in the folder `target`."""
        del config
        files = write_tokenizer(tokenizers.source, "$A [EOS]")
        if not tokenizers.is_joint:
            own = write_tokenizer(tokenizers.target, "$A [EOS]")
            files |= {f"target/{name}": content for name, content in own.items()}
        return files


def _reordered(name: str, tensor: Tensor, order: Int[Tensor, " D"]) -> Tensor:
    """A parameter with the axis of d_model in another order."""
    if name.endswith(INPUTS):
        return tensor[:, order]
    return tensor[order] if name.endswith(OUTPUTS) else tensor


def write_files(config: TransformerConfig) -> dict[str, Any]:
    """How translations are written."""
    return {GENERATION: described_writing(BOS_ID, EOS_ID, PAD_ID, config.tgt_seq_len)}


FORMAT: Final = OwnFormat((), write_files=write_files)
