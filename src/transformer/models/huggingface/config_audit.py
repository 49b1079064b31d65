"""Detection of settings in a published configuration that the reader does not use."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from transformer.errors import BundleError

IGNORED: Final = frozenset(re.findall(r"\w+", """
    architectures model_type transformers_version torch_dtype dtype attn_implementation tokenizer_class
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
    pooler_type
"""))  # fmt: skip
"""Settings that do not change what a model computes from its inputs.

They concern storage and training, text generation, which is configured at each call here, and heads that are not read.
"""


class AuditedConfig(Mapping[str, Any]):
    """A configuration that records which of its settings were read."""

    def __init__(self, content: Mapping[str, Any]) -> None:
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

    def check_all_read(self) -> None:
        """Checks that every setting that may change the model was read.

        Settings that are null, false or empty are ignored.

        Raises:
            BundleError: A setting was not read.
        """
        unread = {
            name: value
            for name, value in self._content.items()
            if name not in self._read | IGNORED and not name.startswith("_") and value not in (None, False, "", [], {})
        }
        if unread:
            named = ", ".join(f"{name}={value!r}"[:80] for name, value in unread.items())
            raise BundleError(
                f"config.json has settings that are not known here: {named}; remove those that do not change what the "
                "model computes"
            )
