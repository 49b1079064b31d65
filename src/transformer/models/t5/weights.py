"""Conversion between the T5 of this package and the published format."""

from collections.abc import Collection, Mapping
from typing import Final

from transformer.config import JsonObject
from transformer.models.huggingface.format import HuggingFaceFormat
from transformer.models.huggingface.generation_config import encoder_decoder_files
from transformer.models.huggingface.key_mapping import (
    PUBLISHED_ACTIVATIONS,
    ParameterMapping,
    check_architectures,
    check_settings,
    setting,
)
from transformer.models.t5.config import T5Config

SETTINGS: Final = {
    "vocab_size": ("vocab_size", 32128), "src_seq_len": ("n_positions", 512), "d_model": ("d_model", 512),
    "d_k": ("d_kv", 64), "N": ("num_layers", 6), "decoder_layers": ("num_decoder_layers", None),
    "h": ("num_heads", 8), "d_ff": ("d_ff", 2048), "buckets": ("relative_attention_num_buckets", 32),
    "max_distance": ("relative_attention_max_distance", 128), "eps": ("layer_norm_epsilon", 1e-6),
    "dropout": ("dropout_rate", 0.1),
}  # fmt: skip
NETWORKS: Final = {
    "relu": (False, "relu"), "gated-gelu": (True, "gelu_tanh"), "gelu": (False, "gelu"), "silu": (False, "silu"),
    "gated-relu": (True, "relu"), "gated-silu": (True, "silu"), "gelu_new": (False, "gelu_tanh"),
}  # fmt: skip
"""Published name -> gated, activation; "gated-gelu" means the approximation by tanh."""
FIXED: Final[dict[str, tuple[object, ...]]] = {
    "feed_forward_proj": tuple(NETWORKS), "is_encoder_decoder": (True,), "is_decoder": (False,)
}  # fmt: skip
ARCHITECTURES: Final = ("T5ForConditionalGeneration", "T5WithLMHeadModel", "T5Model")
"""Supported architectures.

`T5Model` lacks an output projection. That is complete if the projection shares its matrix with the embedding.
"""
OUTPUT: Final = "lm_head.weight"
OWN_RATES: Final = ("attention_dropout", "activation_dropout")
"""Dropout rates that may differ from `dropout_rate`, the only rate of the published format.

Other readers of the format use `dropout_rate` instead.
"""


def read_settings(published: JsonObject, names: Collection[str], files: Mapping[str, bytes]) -> dict[str, object]:
    """Reads the settings that need more than another name."""
    del files
    has_output = OUTPUT in names  # which says more than the configuration: transformers 5 writes "tied" of all models
    check_settings(published, FIXED)
    check_architectures(published, ARCHITECTURES)
    named = published.get("feed_forward_proj", "relu")
    gated, activation = NETWORKS[named]
    plain = {"gated-gelu": "gelu_new"}.get(named, named.removeprefix("gated-"))
    check_settings(published, {"dense_act_fn": (plain, None), "is_gated_act": (gated, None)})
    dropout = setting(published, "dropout_rate", 0.1)
    return {
        "tgt_seq_len": setting(published, "n_positions", 512), "gated": gated, "activation": activation,
        **{name: setting(published, name, dropout) for name in OWN_RATES},
        "share_embeddings": "inputs" if has_output or published.get("tie_word_embeddings") is False else "all",
        "scale_output": published.get("scale_decoder_outputs", published.get("tie_word_embeddings") is not False),
    }  # fmt: skip


def write_settings(config: T5Config) -> dict[str, object]:
    """Returns the settings that `read_settings` reads."""
    plain = {"gelu_tanh": "gelu"} if config.gated else PUBLISHED_ACTIVATIONS
    network = plain.get(config.activation, config.activation)
    return {
        "architectures": ["T5ForConditionalGeneration"],
        "d_kv": config.d_k or config.d_model // config.h, "num_decoder_layers": config.decoder_layers or config.N,
        "feed_forward_proj": f"gated-{network}" if config.gated else network,
        "tie_word_embeddings": config.share_embeddings == "all", "scale_decoder_outputs": config.scale_output,
        "is_encoder_decoder": True, **{name: getattr(config, name) for name in OWN_RATES},
    }  # fmt: skip


def weight_names(config: T5Config) -> list[ParameterMapping]:
    """Maps the weight names of T5 to the parameters here."""
    shares_output = config.share_embeddings == "all"
    projection = "projection_layer.proj.weight"
    tied = ("tgt_embed.embedding.weight",) + ((projection,) if shares_output else ())
    aliases = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
    entries = [ParameterMapping("shared.weight", ("src_embed.embedding.weight",), tied=tied, aliases=aliases)]
    entries += [] if shares_output else [ParameterMapping(OUTPUT, (projection,))]
    norm_of_decoder = "decoder.norm.0.alpha" if config.scale_output else "decoder.norm.alpha"
    entries += [
        ParameterMapping("encoder.final_layer_norm.weight", ("encoder.norm.alpha",)),
        ParameterMapping("decoder.final_layer_norm.weight", (norm_of_decoder,)),
    ]
    for side, layers in (("encoder", config.N), ("decoder", config.decoder_layers or config.N)):
        first = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        entries.append(ParameterMapping(first, (f"{side}.position_bias.embedding.weight",)))
        for number in range(layers):
            entries += _layer(config, f"{side}.block.{number}.layer", f"{side}.layers.{number}")
    return entries


def _layer(config: T5Config, hf_name: str, our_name: str) -> list[ParameterMapping]:
    """Returns the mapping of the parameters of an encoder or decoder layer."""
    attentions = [("SelfAttention", "self_attention_block")]
    if hf_name.startswith("decoder"):
        attentions.append(("EncDecAttention", "cross_attention_block"))
    entries: list[ParameterMapping] = []
    for place, (name, block) in enumerate(attentions):
        for matrix in ("q", "k", "v", "o"):
            parameter = f"{our_name}.{block}.W_{matrix}.weight"
            entries.append(ParameterMapping(f"{hf_name}.{place}.{name}.{matrix}.weight", (parameter,)))
    gated = (("wi_0", "gate"), ("wi_1", "linear_1"), ("wo", "linear_2"))
    last = len(attentions)
    for name, matrix in gated if config.gated else (("wi", "linear_1"), ("wo", "linear_2")):
        parameter = f"{our_name}.feed_forward_block.{matrix}.weight"
        entries.append(ParameterMapping(f"{hf_name}.{last}.DenseReluDense.{name}.weight", (parameter,)))
    for place in range(last + 1):
        alpha = f"{our_name}.residual_connections.{place}.norm.alpha"
        entries.append(ParameterMapping(f"{hf_name}.{place}.layer_norm.weight", (alpha,)))
    return entries


FORMAT: Final = HuggingFaceFormat(
    ("t5",), ARCHITECTURES, SETTINGS, weight_names, read_settings, write_settings,
    special={"unk_token": "<unk>"}, template="$A [EOS]",
    ids={
        "pad_id": ("pad_token_id", 0), "eos_id": ("eos_token_id", 1), "start_id": ("decoder_start_token_id", 0)
    },
    required=("eos_id", "start_id"),
    write_files=encoder_decoder_files,
    ignored=r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",
)  # fmt: skip
