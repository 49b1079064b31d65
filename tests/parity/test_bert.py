"""BERT: reads published folders written by the transformers package and compares the computations."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertForNextSentencePrediction,
    BertForPreTraining,
    BertForSequenceClassification,
    BertModel,
    BertTokenizerFast,
)

from parity.published import assert_round_trip, close, close_inside, imported, outputs_of, randomized, write_word_level
from transformer.bundle.huggingface import read_published, write_published
from transformer.errors import BundleError
from transformer.models.bert.model import Bert

SIZE = 53
SIZES: dict[str, Any] = {
    "vocab_size": SIZE, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 37,
    "max_position_embeddings": 40,
}  # fmt: skip
SPECIAL = {
    "unk_token": "[UNK]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
MODELS: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "plain": (BertModel, {}, {}),
    "without pooler, other epsilon": (BertModel, {"layer_norm_eps": 1e-3}, {"add_pooling_layer": False}),
    "masked words": (BertForMaskedLM, {"hidden_act": "gelu_new"}, {}),
    "masked words and next sentence": (BertForPreTraining, {"type_vocab_size": 3}, {}),
    "next sentence": (BertForNextSentencePrediction, {"hidden_act": "relu"}, {}),
    "classification": (BertForSequenceClassification, {"id2label": {0: "no", 1: "maybe", 2: "yes"}}, {}),
}


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_hidden_states_and_heads_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    """Catches a misnamed matrix, a head on the wrong vector, and a wrong activation, epsilon, token type or mask."""
    model_class, overrides, load_options = MODELS[name]
    reference = randomized(model_class(BertConfig(**{**SIZES, **overrides}), **load_options))
    write_word_level(tmp_path / "hf", SIZE, SPECIAL, "[CLS] $A [SEP]")
    bundle = imported(reference, tmp_path / "hf")
    model = bundle.model
    assert isinstance(model, Bert)
    tokens, types = torch.randint(0, SIZE, (3, 11)), torch.randint(0, overrides.get("type_vocab_size", 2), (3, 11))
    mask = torch.ones(3, 11, dtype=torch.bool)
    mask[1, 6:] = False
    inputs = {"input_ids": tokens, "attention_mask": mask.long(), "token_type_ids": types}
    expected = reference(**inputs, output_hidden_states=True)
    with outputs_of(model.encoder.layers) as layer_outputs:
        encoded = model.encode(tokens, mask[:, None, None], types)
    close_inside(layer_outputs, expected.hidden_states, mask)
    close(encoded[mask], expected.hidden_states[-1][mask])
    if model_class is BertModel and not load_options:
        close(model.pooled(encoded), expected.pooler_output)
    if model.masked_head:
        expected_logits = expected.logits if model_class is BertForMaskedLM else expected.prediction_logits
        close(model.masked_head(encoded)[mask], expected_logits[mask])
    if model.next_sentence_head:
        expected_logits = expected.seq_relationship_logits if model_class is BertForPreTraining else expected.logits
        close(model.next_sentence_head(model.pooled(encoded)), expected_logits)
    if model.label_head:
        close(model.label_logits(tokens, mask[:, None, None], types), expected.logits)
        assert bundle.config.model_dump()["labels"] == ("no", "maybe", "yes")
    assert [bool(head) for head in (model.masked_head, model.next_sentence_head, model.label_head)] == [
        "masked" in name, "next" in name, "class" in name
    ]  # fmt: skip
    reloaded = assert_round_trip(bundle, tmp_path, lambda folder: model_class.from_pretrained(folder, **load_options))
    outputs, expected_outputs = reloaded(**inputs).to_tuple(), reference(**inputs).to_tuple()
    for actual_tensor, expected_tensor in zip(outputs, expected_outputs, strict=True):
        close(actual_tensor, expected_tensor)


TEXTS = ["Hello, wörld!", "the cat\tsat  unaffable 中文 résumé", "x" * 120, "[MASK] is [SEP] text", ""]


@pytest.mark.parametrize("lowercase", [True, False])
def test_word_pieces_of_a_vocabulary_are_those_of_transformers(*, lowercase: bool, tmp_path: Path) -> None:
    """Catches a different normalization, split or set of boundary tokens when a folder holds only vocab.txt."""
    words = [*SPECIAL.values(), "hello", "Hello", ",", "!", "the", "cat", "sat", "un", "##aff", "##able", "resume",
             "résumé", "中", "文", "w", "##orld", "##ö", "wor", "##ld", "is", "text", "[", "]", "mask",
             "sep"]  # fmt: skip
    config = BertConfig(**{**SIZES, "vocab_size": len(words)})
    randomized(BertModel(config)).save_pretrained(tmp_path / "hf")
    (tmp_path / "hf" / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    reference = BertTokenizerFast(vocab=str(tmp_path / "hf" / "vocab.txt"), do_lower_case=lowercase)
    settings = f'{{"do_lower_case": {str(lowercase).lower()}}}'
    (tmp_path / "hf" / "tokenizer_config.json").write_text(settings, encoding="utf-8")
    bundle = read_published(tmp_path / "hf")
    write_published(bundle, tmp_path / "again")
    exported = AutoTokenizer.from_pretrained(tmp_path / "again")
    assert exported.model_max_length == config.max_position_embeddings, "texts that are too long would reach the model"
    tokenizer = bundle.tokenizers.source
    before, after = tokenizer.boundary_tokens
    for text in TEXTS:
        expected = reference(text, split_special_tokens=True)
        assert [*before, *tokenizer.encode(text), *after] == expected["input_ids"]
        assert dict(exported(text, split_special_tokens=True)) == dict(expected), "our export changes the tokenizer"
    settings = settings.replace(str(lowercase).lower(), str(not lowercase).lower())
    (tmp_path / "again" / "tokenizer_config.json").write_text(settings, encoding="utf-8")
    with pytest.raises(
        BundleError, match=f"do_lower_case={not lowercase} in tokenizer_config.json is not what.*; correct"
    ):
        read_published(tmp_path / "again")
    assert tokenizer.special_tokens.mask == reference.mask_token_id
    assert tokenizer.special_tokens.mask not in tokenizer.encode("[MASK]")


@pytest.mark.parametrize(
    ("name", "head"),
    [("masked words", "cls.predictions"), ("masked words and next sentence", "cls.seq_relationship"),
     ("classification", "classifier")],
)  # fmt: skip
def test_a_head_that_is_missing_is_named(name: str, head: str, tmp_path: Path) -> None:
    """Catches a classifier whose head is missing and that is read as an encoder."""
    model_class, overrides, load_options = MODELS[name]
    model_class(BertConfig(**{**SIZES, **overrides}), **load_options).save_pretrained(tmp_path / "hf")
    write_word_level(tmp_path / "hf", SIZE, SPECIAL, "[CLS] $A [SEP]")
    tensors = load_file(tmp_path / "hf" / "model.safetensors")
    remaining = {name: tensor for name, tensor in tensors.items() if not name.startswith(head)}
    assert len(remaining) < len(tensors)
    save_file(remaining, tmp_path / "hf" / "model.safetensors")
    with pytest.raises(BundleError, match=rf"{head}.*: missing, which a {model_class.__name__} has"):
        read_published(tmp_path / "hf")


def test_what_the_format_does_not_hold_is_not_written(tmp_path: Path) -> None:
    """Catches a model with pooled embeddings that takes the mean over positions after a round trip."""
    write_word_level(tmp_path / "hf", SIZE, SPECIAL, "[CLS] $A [SEP]")
    bundle = imported(BertModel(BertConfig(**SIZES)), tmp_path / "hf")
    pooled = replace(bundle, config=bundle.config.model_copy(update={"embedding": "pooled"}))
    with pytest.raises(BundleError, match="the pooler's output stands for a text; keep the bundle"):
        write_published(pooled, tmp_path / "out")


def test_what_is_not_known_is_refused(tmp_path: Path) -> None:
    """Catches a setting, a module on top of the model, or a parameter that is silently ignored."""
    write_word_level(tmp_path / "hf", SIZE, SPECIAL, "[CLS] $A [SEP]")
    with pytest.raises(BundleError, match="problem_type='regression' is not known"):
        imported(BertForSequenceClassification(BertConfig(**SIZES, problem_type="regression")), tmp_path / "hf")
    prompts = tmp_path / "hf" / "config_sentence_transformers.json"
    prompts.write_text('{"prompts": {"query": "Find: "}, "default_prompt_name": "query"}', encoding="utf-8")
    model = BertModel(BertConfig(**SIZES))
    with pytest.raises(BundleError, match=r"default_prompt_name='query' in config_\w+.json puts a prompt"):
        imported(model, tmp_path / "hf")
    prompts.unlink()
    (tmp_path / "hf" / "modules.json").write_text('[{"type": "sentence_transformers.models.Dense"}]', encoding="utf-8")
    with pytest.raises(BundleError, match="names Dense; only Transformer, Pooling and Normalize are known"):
        imported(model, tmp_path / "hf")
    (tmp_path / "hf" / "modules.json").unlink()
    model.extra = torch.nn.Linear(2, 2)
    with pytest.raises(BundleError, match=r"unknown: bert.extra.bias, bert.extra.weight"):
        imported(model, tmp_path / "hf")
    del model.extra
    model.embeddings.LayerNorm = torch.nn.Identity()
    with pytest.raises(BundleError, match=r"missing: bert.embeddings.LayerNorm.weight, bert.embeddings.LayerNorm.bias"):
        imported(model, tmp_path / "hf")
