"""Conversion between the Llama of this package and the published format."""

from typing import Final

from transformer.config import JsonObject
from transformer.errors import BundleError
from transformer.models.huggingface.format import HuggingFaceFormat
from transformer.models.huggingface.generation_config import language_model_files
from transformer.models.huggingface.key_mapping import (
    OTHER_PROGRAM,
    ParameterMapping,
    check_architectures,
    check_settings,
    embedding_and_output,
    linear,
)
from transformer.models.llama.config import LlamaConfig

ARCHITECTURES: Final = ("LlamaForCausalLM", "LLaMAForCausalLM", "LlamaModel")
SETTINGS: Final = {
    "vocab_size": ("vocab_size", 32000), "seq_len": ("max_position_embeddings", 2048), "d_model": ("hidden_size", 4096),
    "N": ("num_hidden_layers", 32), "h": ("num_attention_heads", 32), "kv_heads": ("num_key_value_heads", None),
    "d_k": ("head_dim", None), "d_ff": ("intermediate_size", 11008), "eps": ("rms_norm_eps", 1e-6),
    "dropout": ("dropout", 0.0), "attention_dropout": ("attention_dropout", 0.0), "network_bias": ("mlp_bias", False),
    "attention_bias": ("attention_bias", False), "share_embeddings": ("tie_word_embeddings", False),
}  # fmt: skip


SCALED: Final[dict[str, dict[str, str]]] = {
    "llama3": {"factor": "factor", "low_freq_factor": "low", "high_freq_factor": "high",
               "original_max_position_embeddings": "seq_len"},
}  # fmt: skip
"""Published settings of each scaling of the rotary frequencies, and their names here."""


def read_settings(published: JsonObject, *_: object) -> dict[str, object]:
    """Reads the base of the rotary frequencies and checks the other settings."""
    check_architectures(published, ARCHITECTURES)
    check_settings(published, {"pretraining_tp": (1, None), "hidden_act": ("silu",), "is_causal": (True, None)})
    rope = (published.get("rope_parameters") or {}) | (published.get("rope_scaling") or {})
    kinds = "default", *SCALED
    check_settings(rope, {"rope_type": kinds, "type": kinds, "partial_rotary_factor": (1.0, None)})
    scaled = SCALED.get(str(rope.get("rope_type", rope.get("type"))), {})
    if more := rope.keys() - {"rope_type", "type", "rope_theta", "partial_rotary_factor", *scaled}:
        raise BundleError(
            f"config.json: {', '.join(sorted(more))}: rotary positions with more than rope_theta are not known; "
            f"{OTHER_PROGRAM}"
        )
    if missing := scaled.keys() - rope.keys():
        raise BundleError(f"config.json: rope_type='llama3' needs {', '.join(sorted(missing))}; copy config.json again")
    scaling = {ours: rope[theirs] for theirs, ours in scaled.items()}
    return {"base": rope.get("rope_theta", published.get("rope_theta", 10000.0)), "scaling": scaling or None}


def write_settings(config: LlamaConfig) -> dict[str, object]:
    """Returns the settings that `read_settings` reads."""
    rope: dict[str, object] = {"rope_theta": config.base, "rope_type": "default"}
    if config.scaling:
        scaling = config.scaling.model_dump()
        rope |= {"rope_type": "llama3", **{theirs: scaling[ours] for theirs, ours in SCALED["llama3"].items()}}
    return {"architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "rope_parameters": rope}


def weight_names(config: LlamaConfig) -> list[ParameterMapping]:
    """Maps the weight names of Llama to the parameters here."""
    entries = embedding_and_output("model.embed_tokens.weight", "lm_head.weight", shared=config.share_embeddings)
    for number in range(config.N):
        hf_name, our_name = f"model.layers.{number}", f"decoder.layers.{number}"
        for name, matrix in (("q_proj", "W_q"), ("k_proj", "W_k"), ("v_proj", "W_v"), ("o_proj", "W_o")):
            place = f"{hf_name}.self_attn.{name}", f"{our_name}.self_attention_block.{matrix}"
            entries += linear(*place, bias=config.attention_bias)
        for name, matrix in (("gate_proj", "gate"), ("up_proj", "linear_1"), ("down_proj", "linear_2")):
            entries += linear(
                f"{hf_name}.mlp.{name}", f"{our_name}.feed_forward_block.{matrix}", bias=config.network_bias
            )
        for place, name in enumerate(("input_layernorm", "post_attention_layernorm")):
            entries += [
                ParameterMapping(f"{hf_name}.{name}.weight", (f"{our_name}.residual_connections.{place}.norm.alpha",))
            ]
    return [*entries, ParameterMapping("model.norm.weight", ("decoder.norm.alpha",))]


FORMAT: Final = HuggingFaceFormat(
    ("llama",), ARCHITECTURES, SETTINGS, weight_names, read_settings, write_settings,
    special={"unk_token": "<unk>"},
    ignored=r".*rotary_emb\.inv_freq",
    ids={"bos_id": ("bos_token_id", 1), "eos_id": ("eos_token_id", 2), "pad_id": ("pad_token_id", None)},
    write_files=language_model_files,
)  # fmt: skip
