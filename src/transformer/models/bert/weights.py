"""Conversion between the BERT of this package and the published format."""

import json
from collections.abc import Collection, Mapping
from typing import Final

from transformer.config import JsonObject
from transformer.errors import BundleError
from transformer.models.bert.config import BertConfig
from transformer.models.huggingface.format import INPUTS, HuggingFaceFormat
from transformer.models.huggingface.key_mapping import (
    ACTIVATION_NAMES,
    PUBLISHED_ACTIVATIONS,
    ParameterMapping,
    check_architectures,
    check_heads,
    check_settings,
    layer_norm,
    linear,
    map_choice,
    read_labels,
    write_labels,
)
from transformer.tokenizers.huggingface_files import lowercases

MODULES, POOLING, SENTENCES = "modules.json", "1_Pooling/config.json", "sentence_bert_config.json"
PROMPTS: Final = "config_sentence_transformers.json"
ARCHITECTURES: Final = (
    "BertModel", "BertForPreTraining", "BertForMaskedLM", "BertForNextSentencePrediction",
    "BertForSequenceClassification",
)  # fmt: skip
MASKED, NEIGHBOURS = "cls.predictions.transform.dense.weight", "cls.seq_relationship.weight"
HEADS: Final = {
    "BertForMaskedLM": [MASKED], "BertForPreTraining": [MASKED, NEIGHBOURS],
    "BertForNextSentencePrediction": [NEIGHBOURS], "BertForSequenceClassification": ["classifier.weight"],
}  # fmt: skip
SETTINGS: Final = {
    "vocab_size": ("vocab_size", 30522), "seq_len": ("max_position_embeddings", 512), "d_model": ("hidden_size", 768),
    "N": ("num_hidden_layers", 12), "h": ("num_attention_heads", 12), "d_ff": ("intermediate_size", 3072),
    "token_types": ("type_vocab_size", 2), "eps": ("layer_norm_eps", 1e-12), "dropout": ("hidden_dropout_prob", 0.1),
    "attention_dropout": ("attention_probs_dropout_prob", 0.1), "head_dropout": ("classifier_dropout", None),
}  # fmt: skip
FIXED: Final[dict[str, tuple[object, ...]]] = {
    "is_decoder": (False,), "add_cross_attention": (False,), "position_embedding_type": ("absolute",),
    "tie_word_embeddings": (True,), "problem_type": (None, "single_label_classification"),
    "is_encoder_decoder": (False,), "is_causal": (False, None),
}  # fmt: skip


def read_settings(published: JsonObject, names: Collection[str], files: Mapping[str, bytes]) -> dict[str, object]:
    """Reads the settings that need more than another name; the parameter names determine the heads."""
    check_settings(published, FIXED)
    check_architectures(published, ARCHITECTURES)
    check_heads(published, names, HEADS)
    has_labels = "classifier.weight" in names
    return {
        "activation": map_choice(published, "hidden_act", ACTIVATION_NAMES, "gelu"),
        "pooler": "bert.pooler.dense.weight" in names,
        "masked": MASKED in names,
        "next_sentence": NEIGHBOURS in names,
        "labels": read_labels(published) if has_labels else (),
        "embedding": _embedding(files),
        "text_tokens": _text_tokens(files),
    }


def _text_tokens(files: Mapping[str, bytes]) -> int | None:
    """Returns the maximum text length in the sentence-transformers configuration, if any.

    Raises:
        BundleError: The configuration changes texts before they are read.
    """
    sentences, prompts = (json.loads(files.get(name, b"{}")) for name in (SENTENCES, PROMPTS))
    if prompts.get("default_prompt_name"):
        raise BundleError(
            f"default_prompt_name={prompts['default_prompt_name']!r} in {PROMPTS} puts a prompt before every text, "
            "which is not known; set it to null and write the prompt yourself"
        )
    if sentences.get("do_lower_case") and not lowercases(files):
        raise BundleError(
            f"{SENTENCES} lower-cases texts beside the tokenizer, which is not known; set do_lower_case to false and "
            "lower-case the texts yourself"
        )
    return sentences.get("max_seq_length")


def _embedding(files: Mapping[str, bytes]) -> str:
    """Returns the kind of pooling in the sentence-transformers configuration; default: the mean.

    Raises:
        BundleError: The configuration asks for another kind of pooling than the mean or the first position.
    """
    modules = json.loads(files.get(MODULES, b"[]"))
    kinds = [str(module["type"]).rpartition(".")[2] for module in modules]
    if "Pooling" in kinds and POOLING not in files:
        raise BundleError(f"{POOLING}, which {MODULES} names, is missing; copy the whole folder")
    if not set(kinds) <= {"Transformer", "Pooling", "Normalize"}:
        raise BundleError(
            f"{MODULES} names {', '.join(kinds)}; only Transformer, Pooling and Normalize are known; use "
            "sentence-transformers for this model"
        )
    pooling = json.loads(files.get(POOLING, b"{}"))
    modes = {name for name, is_on in pooling.items() if is_on is True and name.startswith("pooling_mode_")}
    if "pooling_mode" in pooling:  # as sentence-transformers write it since version 5
        modes.add(
            {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token"}.get(*[pooling["pooling_mode"]] * 2)
        )
    known = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "first"}
    if not modes:
        return "mean"
    if len(modes) > 1 or not modes <= known.keys():
        raise BundleError(f"{POOLING} asks for {', '.join(sorted(modes))}; only one of {', '.join(known)} is known")
    return known[modes.pop()]


def write_files(config: BertConfig) -> dict[str, object]:
    """Returns the files that sentence-transformers reads beside the model."""
    modes = {"mean": "pooling_mode_mean_tokens", "first": "pooling_mode_cls_token"}
    if config.embedding not in modes:
        return {}
    names = (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"))
    modules = [
        {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.models.{name}"}
        for place, (path, name) in enumerate(names)
    ]
    pooling = {name: kind == config.embedding for kind, name in modes.items()}
    sentences = {SENTENCES: {"max_seq_length": config.text_tokens, "do_lower_case": False}}
    return {
        MODULES: modules,
        POOLING: {"word_embedding_dimension": config.d_model, **pooling},
        **(sentences if config.text_tokens else {}),
    }


def write_settings(config: BertConfig) -> dict[str, object]:
    """Returns the settings that `read_settings` reads.

    Raises:
        BundleError: The format does not support the model.
    """
    if config.labels and config.labels_read != "pooler":
        raise BundleError("published models tell labels from the pooler; train with model.labels_read='pooler' for one")
    if config.embedding == "pooled":
        raise BundleError("published folders do not say that the pooler's output stands for a text; keep the bundle")
    heads = {
        (True, True): "BertForPreTraining", (True, False): "BertForMaskedLM",
        (False, True): "BertForNextSentencePrediction", (False, False): "BertModel",
    }  # fmt: skip
    architecture = "BertForSequenceClassification" if config.labels else heads[config.masked, config.next_sentence]
    activation = PUBLISHED_ACTIVATIONS[config.activation]
    return {"architectures": [architecture], "hidden_act": activation, **write_labels(config.labels)}


def weight_names(config: BertConfig) -> list[ParameterMapping]:
    """Maps the weight names of BERT to the parameters here."""
    embedding = "embed.tokens.embedding.weight"
    tied = ("masked_head.projection_layer.proj.weight",) if config.masked else ()
    entries = [
        ParameterMapping("bert.embeddings.word_embeddings.weight", (embedding,), tied=tied,
                aliases=("cls.predictions.decoder.weight",) if config.masked else ()),
        ParameterMapping("bert.embeddings.position_embeddings.weight", ("embed.positions.embedding.weight",)),
        ParameterMapping("bert.embeddings.token_type_embeddings.weight", ("embed.types.weight",)),
        *layer_norm("bert.embeddings.LayerNorm", "embed.norm"),
    ]  # fmt: skip
    for number in range(config.N):
        hf_name, our_name = f"bert.encoder.layer.{number}", f"encoder.layers.{number}"
        for name, matrix in (
            ("self.query", "W_q"),
            ("self.key", "W_k"),
            ("self.value", "W_v"),
            ("output.dense", "W_o"),
        ):
            entries += linear(f"{hf_name}.attention.{name}", f"{our_name}.self_attention_block.{matrix}")
        for name, matrix in (("intermediate.dense", "linear_1"), ("output.dense", "linear_2")):
            entries += linear(f"{hf_name}.{name}", f"{our_name}.feed_forward_block.{matrix}")
        for place, name in enumerate(("attention.output.LayerNorm", "output.LayerNorm")):
            entries += layer_norm(f"{hf_name}.{name}", f"{our_name}.residual_connections.{place}.norm")
    if config.pooler:
        entries += linear("bert.pooler.dense", "pooler")
    if config.masked:
        entries += linear("cls.predictions.transform.dense", "masked_head.transform")
        entries += layer_norm("cls.predictions.transform.LayerNorm", "masked_head.norm")
        bias = "masked_head.projection_layer.proj.bias"
        entries.append(ParameterMapping("cls.predictions.bias", (bias,), aliases=("cls.predictions.decoder.bias",)))
    if config.next_sentence:
        entries += linear("cls.seq_relationship", "next_sentence_head")
    if config.labels:
        entries += linear("classifier", "label_head.1")
    return entries


FORMAT: Final = HuggingFaceFormat(
    ("bert",), ARCHITECTURES, SETTINGS, weight_names, read_settings, write_settings,
    ids={"pad_id": ("pad_token_id", 0)}, prefix="bert.",
    heads=("cls.", "classifier."), ignored=r"bert\.embeddings\.position_ids", inputs=(*INPUTS, "token_type_ids"),
    template="[SOS] $A [EOS]", special={"unk_token": "[UNK]", "mask_token": "[MASK]"},
    write_files=write_files,
)  # fmt: skip
