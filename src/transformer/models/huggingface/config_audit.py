"""Detection of settings in a published configuration that change the computation but that no reader uses."""

import re
from collections.abc import Iterator
from fnmatch import translate
from typing import Any, Final

from transformer.config import JsonObject
from transformer.errors import BundleError


def _pattern(names: str) -> re.Pattern[str]:
    """Returns a pattern that matches whole names; `*` in a name stands for any characters."""
    return re.compile("|".join(map(translate, names.split())))


WITHOUT_EFFECT: Final = _pattern("""
    architectures model_type transformers_version torch_dtype dtype attn_implementation tokenizer_class torchscript
    name_or_path finetuning_task task_specific_params return_dict use_return_dict use_cache output_attentions
    output_hidden_states initializer_range initializer_factor init_std gradient_checkpointing chunk_size_feed_forward

    max_length min_length max_new_tokens do_sample early_stopping num_beams num_beam_groups diversity_penalty
    temperature top_k top_p typical_p repetition_penalty length_penalty no_repeat_ngram_size bad_words_ids
    encoder_no_repeat_ngram_size num_return_sequences decoder_start_token_id forced_bos_token_id forced_eos_token_id
    pad_token_id bos_token_id eos_token_id sep_token_id cls_token_id mask_token_id

    id2label label2id num_labels classifier_dropout classif_dropout encoder_layerdrop decoder_layerdrop
    is_encoder_decoder num_hidden_layers n_ctx output_past encoder_stride directionality model_max_length
    extra_pos_embeddings reorder_and_upcast_attn summary_type summary_use_proj summary_activation summary_proj_to_labels
    summary_first_dropout pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head
    pooler_type tie_word_embeddings is_decoder add_cross_attention keys_to_ignore_at_inference problem_type
""")  # fmt: skip
"""Usual settings that do not change what a model computes from its inputs.

They concern storage and training, text generation, which is configured at each call here, and heads that are not read.
"""

CHANGING: Final = _pattern("""
    auto_map quantization quantization_config compression_config quant_method pruned_heads adapters peft_config
    per_layer_config prefix

    attention_chunk_size attention_layers attention_sink* attention_type attention_types attention_window attn_config
    attn_temperature_tuning attn_type bidirectional causal cross_attention_* is_prefix_lm layer_types
    layers_block_type linear_attention* multi_query no_rope_layer* num_kv_shared_layers prefix_lm sliding_window*
    use_bidirectional_attention use_sinks use_sliding_window window_size

    alibi* disable_position_embeddings global_rope_theta has_relative_attention_bias has_spatial_attention_bias
    layer_rope_theta local_rope_theta mrope_section nope_layer_interval pos_att_type position_biased_input
    position_embedding_type position_embeddings_type relative_attention* rope_* rotary* sinusoidal_* use_abs_pos
    use_absolute_position_embeddings use_alibi use_dynamic_ntk use_learned_position_embeddings use_logn_attn
    use_rel_pos use_relative_position_* use_rope use_rotary* use_shared_relative_position_bias
    static_position_embeddings

    *softcap* clip_qkv dim_model_base layer_scale* layerscale_value normalize_embedding query_pre_attn_scalar
    rescale_prenorm_residual scale_attn_by_inverse_layer_idx scale_attn_weights scale_emb* scale_sqrt_depth
    scaled_residual token_dropout use_layer_scale

    add_bias_logits add_final_layer_norm apply_residual_connection_post_layernorm do_layer_norm_before
    do_stable_layer_norm emb_layer_norm_before layernorm_embedding norm_type normalization_type normalize_before
    num_ln_in_parallel_attn parallel_attn parallel_residual pre_norm qk_layernorm qk_layer_norms qk_norm
    rms_norm_add_unit_offset share_layernorm use_parallel_* use_post_norm use_qk_norm use_sandwich_norm
    zero_centered_gamma new_decoder_architecture

    act_fn activation activation_function activation_sparsity_pattern feed_forward_proj gelu_activation hidden_act
    hidden_activation inner_group_num mlp_only_layers mlp_type moe_* n_*experts* num_*experts* *_sparse_step
    num_feedforward_networks num_hidden_groups swiglu_* use_bottleneck* use_gated_mlp use_glu use_swiglu_ffn
    mamba_* ssm_* hybrid_*

    classifier_pooling num_register_tokens use_cls_token use_mask_token use_mean_pooling
""")  # fmt: skip
"""Settings that change what a model computes, in any published family, unless they are off."""
FACTORS: Final = _pattern("""
    *_multiplier *_multipliers *_scaling_factor attention_value_scale deepnorm* embed_scale embedding_scale logit_scale
    logits_scaling mup_* partial_rotary_factor residual_scale rotary_pct scale_depth scale_factor
""")  # fmt: skip
"""Settings that change what a model computes unless they are off or 1."""
NEUTRAL: Final[dict[str, tuple[object, ...]]] = {
    "attention_type": ("full", "full_attention", "original_full", "softmax"),
    "position_embedding_type": ("absolute",), "position_biased_input": (True,), "scale_attn_weights": (True,),
    "static_position_embeddings": (True,),
}  # fmt: skip
"""Values of such settings that change nothing, besides null, false and empty ones."""
OFF: Final = (None, False, "", [], {})


class AuditedConfig(JsonObject):
    """A configuration that records which of its settings were read."""

    def __init__(self, content: JsonObject) -> None:
        self._content = content
        self._read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        """Returns a setting and records that it was read."""
        self._read.add(name)
        return self._content[name]

    def __iter__(self) -> Iterator[str]:
        """Iterates over the names of all settings."""
        return iter(self._content)

    def __len__(self) -> int:
        """Returns the number of settings."""
        return len(self._content)

    def check_all_read(self) -> list[str]:
        """Checks that every setting that changes the computation was read.

        Returns:
            The names of other settings that were not read and that `WITHOUT_EFFECT` does not list. Names that begin
            with an underscore and settings that are null, false or empty are never among them.

        Raises:
            BundleError: A setting that changes the computation was not read.
        """
        unread = {
            name: value
            for name, value in self._content.items()
            if name not in self._read
            and value not in OFF
            and not name.startswith("_")
            and not WITHOUT_EFFECT.fullmatch(name)
        }
        changing = [f"{name}={value!r}"[:80] for name, value in unread.items() if _changes(name, value)]
        if changing:
            raise BundleError(
                f"config.json has settings that are not known here: {', '.join(changing)}; remove those that do not "
                "change what this model computes, or run it with transformers"
            )
        return list(unread)


def _changes(name: str, value: object) -> bool:
    """Whether a setting that is not off changes what a model computes."""
    if FACTORS.fullmatch(name):
        return value != 1 and value != [1] * (len(value) if isinstance(value, list) else 0)
    return bool(CHANGING.fullmatch(name)) and value not in NEUTRAL.get(name, ())
