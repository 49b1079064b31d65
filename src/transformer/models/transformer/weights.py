"""Export of the paper's model to published formats: post-norm models as Marian, pre-norm models as Pegasus.

Both formats add sinusoids whose sines come first, while sines and cosines alternate in this package, so every vector of
width d_model is reordered. Their norms have an epsilon of 1e-5 instead of 1e-6, which changes a logit by about as much
as rounding does.
"""

from collections.abc import Mapping
from typing import Final

import torch
from jaxtyping import Int
from torch import Tensor

from transformer.errors import BundleError
from transformer.models.huggingface.format import HuggingFaceFormat
from transformer.models.huggingface.generation_config import GENERATION, generation_config
from transformer.models.huggingface.key_mapping import ParameterMapping, layer_norm, to_published
from transformer.models.marian.weights import BIAS, layers, matrices
from transformer.models.transformer.config import TransformerConfig
from transformer.tokenizers.huggingface import write_tokenizer
from transformer.tokenizers.pair import TokenizerPair
from transformer.tokenizers.special_tokens import BOS_ID, EOS_ID, PAD_ID

INPUTS: Final = ("W_q.weight", "W_k.weight", "W_v.weight", "linear_1.weight", "embedding.weight", "proj.weight")
"""Suffixes of the parameters whose second axis is d_model."""
OUTPUTS: Final = ("W_o.weight", "W_o.bias", "linear_2.weight", "linear_2.bias", "norm.alpha", "norm.beta")
"""Suffixes of the parameters whose first axis is d_model."""


class TransformerFormat(HuggingFaceFormat[TransformerConfig]):
    """Writes the Marian and Pegasus formats; published folders in them are read as models of those families."""

    def write_config(self, config: TransformerConfig) -> dict[str, object]:
        """Implements `HuggingFaceFormat.write_config`.

        Raises:
            BundleError: The format does not support the model.
        """
        is_post = config.norm_order == "post"
        if not is_post and config.share_embeddings != "all":
            raise BundleError(
                f"a pre-norm model is written as Pegasus, which has one matrix for all, but share_embeddings="
                f"{config.share_embeddings!r}; train with 'all', or with norm_order='post'"
            )
        width = config.d_model / config.h
        if {config.d_k or width, config.d_v or config.d_k or width} != {width}:
            raise BundleError(
                f"the format has heads of width {width:g}; train a model without d_k={config.d_k} and d_v={config.d_v}"
            )
        if config.positions == "learned":
            raise BundleError("the format computes its positions; train a model with positions='sinusoidal'")
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
        special = {"pad_token_id": PAD_ID, "eos_token_id": EOS_ID, "decoder_start_token_id": BOS_ID}
        return {
            "model_type": kind, "architectures": ["MarianMTModel" if is_post else "PegasusForConditionalGeneration"],
            **sizes, **dropouts, **shared, **special, "decoder_vocab_size": config.tgt_vocab_size,
            "tie_word_embeddings": config.share_embeddings != "none", "activation_function": "relu",
            "scale_embedding": True, "forced_eos_token_id": None, "bos_token_id": BOS_ID, "is_encoder_decoder": True,
            "static_position_embeddings": True,
        }  # fmt: skip

    def write_weights(self, config: TransformerConfig, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Implements `HuggingFaceFormat.write_weights`; every matrix is written once."""
        order = torch.cat([torch.arange(0, config.d_model, 2), torch.arange(1, config.d_model, 2)])
        our_name = {name: _permute_features(name, tensor, order) for name, tensor in state.items()}
        our_name.setdefault(BIAS, torch.zeros(config.tgt_vocab_size or 0))
        table = [*layers(config), *matrices(config.share_embeddings)]
        if config.norm_order == "pre":
            for side in ("encoder", "decoder"):
                table += layer_norm(f"model.{side}.layer_norm", f"{side}.norm")
        return to_published([*table, ParameterMapping("final_logits_bias", (BIAS,), added_axes=1)], our_name)

    def write_tokenizers(self, config: TransformerConfig, tokenizers: TokenizerPair) -> dict[str, bytes]:
        """Implements `HuggingFaceFormat.write_tokenizers`; a separate target tokenizer goes into `target`."""
        del config
        files = write_tokenizer(tokenizers.source, "$A [EOS]")
        if not tokenizers.is_joint:
            target_files = write_tokenizer(tokenizers.target, "$A [EOS]")
            files |= {f"target/{name}": content for name, content in target_files.items()}
        return files


def _permute_features(name: str, tensor: Tensor, order: Int[Tensor, " D"]) -> Tensor:
    """Permutes the d_model axis of a parameter."""
    if name.endswith(INPUTS):
        return tensor[:, order]
    return tensor[order] if name.endswith(OUTPUTS) else tensor


def write_files(config: TransformerConfig) -> dict[str, object]:
    """Returns the generation settings for translations."""
    return {GENERATION: generation_config(BOS_ID, EOS_ID, PAD_ID, config.tgt_seq_len)}


FORMAT: Final = TransformerFormat((), write_files=write_files)
