"""Conversion between the GPT of this package and the published GPT-2 format."""

from collections.abc import Collection, Mapping
from typing import Final

from transformer.config import JsonObject
from transformer.models.gpt.config import GptConfig
from transformer.models.huggingface.format import HuggingFaceFormat
from transformer.models.huggingface.generation_config import language_model_files
from transformer.models.huggingface.key_mapping import (
    ACTIVATION_NAMES,
    PUBLISHED_ACTIVATIONS,
    ParameterMapping,
    check_architectures,
    check_settings,
    embedding_and_output,
    layer_norm,
    map_choice,
)

ARCHITECTURES: Final = ("GPT2LMHeadModel", "GPT2Model")
SETTINGS: Final = {
    "vocab_size": ("vocab_size", 50257), "seq_len": ("n_positions", 1024), "d_model": ("n_embd", 768),
    "N": ("n_layer", 12), "h": ("n_head", 12), "eps": ("layer_norm_epsilon", 1e-5), "dropout": ("resid_pdrop", 0.1),
    "embedding_dropout": ("embd_pdrop", 0.1), "attention_dropout": ("attn_pdrop", 0.1),
    "scale_by_width": ("scale_attn_weights", True), "scale_by_layer": ("scale_attn_by_inverse_layer_idx", False),
    "share_embeddings": ("tie_word_embeddings", True), "d_ff": ("n_inner", None),
}  # fmt: skip


def read_settings(published: JsonObject, names: Collection[str], files: Mapping[str, bytes]) -> dict[str, object]:
    """Reads the settings that need more than another name."""
    del names, files
    check_architectures(published, ARCHITECTURES)
    check_settings(
        published, {"add_cross_attention": (False,), "is_encoder_decoder": (False,), "is_causal": (True, None)}
    )
    return {"activation": map_choice(published, "activation_function", ACTIVATION_NAMES, "gelu_new")}


def write_settings(config: GptConfig) -> dict[str, object]:
    """Returns the settings that `read_settings` reads."""
    activation = PUBLISHED_ACTIVATIONS[config.activation]
    dropout = config.dropout if config.embedding_dropout is None else config.embedding_dropout
    return {"architectures": ["GPT2LMHeadModel"], "activation_function": activation, "embd_pdrop": dropout}


def weight_names(config: GptConfig) -> list[ParameterMapping]:
    """Maps the weight names of GPT-2 to the parameters here.

    All matrices except embeddings are published transposed, and those of queries, keys and values as one.
    """
    entries = embedding_and_output("transformer.wte.weight", "lm_head.weight", shared=config.share_embeddings)
    entries += [ParameterMapping("transformer.wpe.weight", ("positions.embedding.weight",))]
    for number in range(config.N):
        hf_name, our_name = f"transformer.h.{number}", f"decoder.layers.{number}"
        attention = [f"{our_name}.self_attention_block.{matrix}" for matrix in ("W_q", "W_k", "W_v")]
        maps = {
            "attn.c_attn": attention, "attn.c_proj": [f"{our_name}.self_attention_block.W_o"],
            "mlp.c_fc": [f"{our_name}.feed_forward_block.linear_1"],
            "mlp.c_proj": [f"{our_name}.feed_forward_block.linear_2"],
        }  # fmt: skip
        for name, matrices in maps.items():
            for kind in ("weight", "bias"):
                parameters = tuple(f"{matrix}.{kind}" for matrix in matrices)
                entries.append(ParameterMapping(f"{hf_name}.{name}.{kind}", parameters, transposed=kind == "weight"))
        for place, name in enumerate(("ln_1", "ln_2")):
            entries += layer_norm(f"{hf_name}.{name}", f"{our_name}.residual_connections.{place}.norm")
    return [*entries, *layer_norm("transformer.ln_f", "decoder.norm")]


FORMAT: Final = HuggingFaceFormat(
    ("gpt2",), ARCHITECTURES, SETTINGS, weight_names, read_settings, write_settings,
    prefix="transformer.", heads=("lm_head.",),
    ids={"bos_id": ("bos_token_id", 50256), "eos_id": ("eos_token_id", 50256), "pad_id": ("pad_token_id", None)},
    write_files=language_model_files, ignored=r"transformer\.h\.\d+\.attn\.(bias|masked_bias)",
)  # fmt: skip
