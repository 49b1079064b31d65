"""BERT: published folders made by the transformers package, read by us, and both compute the same."""

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

from parity.published import (
    assert_round_trip,
    close,
    close_inside,
    imported,
    outputs_of,
    randomized,
    write_word_level,
)
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
    """Catches a matrix under another name, a head on the wrong vector, another activation, epsilon, type or mask."""
    kind, odd, more = MODELS[name]
    theirs = randomized(kind(BertConfig(**{**SIZES, **odd}), **more))
    write_word_level(tmp_path / "hf", SIZE, SPECIAL, "[CLS] $A [SEP]")
    bundle = imported(theirs, tmp_path / "hf")
    model = bundle.model
    assert isinstance(model, Bert)
    tokens, types = torch.randint(0, SIZE, (3, 11)), torch.randint(0, odd.get("type_vocab_size", 2), (3, 11))
    mask = torch.ones(3, 11, dtype=torch.bool)
    mask[1, 6:] = False
    given = {"input_ids": tokens, "attention_mask": mask.long(), "token_type_ids": types}
    found = theirs(**given, output_hidden_states=True)
    with outputs_of(model.encoder.layers) as inside:
        encoded = model.encode(tokens, mask[:, None, None], types)
    close_inside(inside, found.hidden_states, mask)
    close(encoded[mask], found.hidden_states[-1][mask])
    if kind is BertModel and not more:
        close(model.pooled(encoded), found.pooler_output)
    if model.masked_head:
        logits = found.logits if kind is BertForMaskedLM else found.prediction_logits
        close(model.masked_head(encoded)[mask], logits[mask])
    if model.next_sentence_head:
        logits = found.seq_relationship_logits if kind is BertForPreTraining else found.logits
        close(model.next_sentence_head(model.pooled(encoded)), logits)
    if model.label_head:
        close(model.label_logits(tokens, mask[:, None, None], types), found.logits)
        assert bundle.config.model_dump()["labels"] == ("no", "maybe", "yes")
    assert [bool(x) for x in (model.masked_head, model.next_sentence_head, model.label_head)] == [
        "masked" in name, "next" in name, "class" in name
    ]  # fmt: skip
    again = assert_round_trip(bundle, tmp_path, lambda folder: kind.from_pretrained(folder, **more))
    for ours, expected in zip(again(**given).to_tuple(), theirs(**given).to_tuple(), strict=True):
        close(ours, expected)


TEXTS = ["Hello, wörld!", "the cat\tsat  unaffable 中文 résumé", "x" * 120, "[MASK] is [SEP] text", ""]


@pytest.mark.parametrize("lowercase", [True, False])
def test_word_pieces_of_a_vocabulary_are_those_of_transformers(*, lowercase: bool, tmp_path: Path) -> None:
    """Catches another normalization, split or frame where a folder holds vocab.txt alone."""
    words = [*SPECIAL.values(), "hello", "Hello", ",", "!", "the", "cat", "sat", "un", "##aff", "##able", "resume",
             "résumé", "中", "文", "w", "##orld", "##ö", "wor", "##ld", "is", "text", "[", "]", "mask",
             "sep"]  # fmt: skip
    config = BertConfig(**{**SIZES, "vocab_size": len(words)})
    randomized(BertModel(config)).save_pretrained(tmp_path / "hf")
    (tmp_path / "hf" / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    theirs = BertTokenizerFast(vocab=str(tmp_path / "hf" / "vocab.txt"), do_lower_case=lowercase)
    facts = f'{{"do_lower_case": {str(lowercase).lower()}}}'
    (tmp_path / "hf" / "tokenizer_config.json").write_text(facts, encoding="utf-8")
    bundle = read_published(tmp_path / "hf")
    write_published(bundle, tmp_path / "again")
    again = AutoTokenizer.from_pretrained(tmp_path / "again")
    assert again.model_max_length == config.max_position_embeddings, "or longer texts reach the model, which fails"
    ours = bundle.tokenizers.source
    before, after = ours.boundary_tokens
    for text in TEXTS:
        expected = theirs(text, split_special_tokens=True)
        assert [*before, *ours.encode(text), *after] == expected["input_ids"]
        assert dict(again(text, split_special_tokens=True)) == dict(expected), "as transformers reads what we write"
    facts = facts.replace(str(lowercase).lower(), str(not lowercase).lower())
    (tmp_path / "again" / "tokenizer_config.json").write_text(facts, encoding="utf-8")
    with pytest.raises(BundleError, match=f"do_lower_case={not lowercase} in tokenizer_config.json is not what"):
        read_published(tmp_path / "again")
    assert ours.special_tokens.mask == theirs.mask_token_id
    assert ours.special_tokens.mask not in ours.encode("[MASK]")


@pytest.mark.parametrize(
    ("name", "head"),
    [("masked words", "cls.predictions"), ("masked words and next sentence", "cls.seq_relationship"),
     ("classification", "classifier")],
)  # fmt: skip
def test_a_head_that_is_missing_is_named(name: str, head: str, tmp_path: Path) -> None:
    """Catches a classifier without its classes that is read as an encoder."""
    kind, odd, more = MODELS[name]
    kind(BertConfig(**{**SIZES, **odd}), **more).save_pretrained(tmp_path / "hf")
    write_word_level(tmp_path / "hf", SIZE, SPECIAL, "[CLS] $A [SEP]")
    tensors = load_file(tmp_path / "hf" / "model.safetensors")
    left = {name: tensor for name, tensor in tensors.items() if not name.startswith(head)}
    assert len(left) < len(tensors)
    save_file(left, tmp_path / "hf" / "model.safetensors")
    with pytest.raises(BundleError, match=rf"{head}.*: missing, which a {kind.__name__} has"):
        read_published(tmp_path / "hf")


def test_what_the_format_does_not_hold_is_not_written(tmp_path: Path) -> None:
    """Catches a model whose texts are read from the pooler, and from the mean of positions when it comes back."""
    write_word_level(tmp_path / "hf", SIZE, SPECIAL, "[CLS] $A [SEP]")
    bundle = imported(BertModel(BertConfig(**SIZES)), tmp_path / "hf")
    pooled = replace(bundle, config=bundle.config.model_copy(update={"embedding": "pooled"}))
    with pytest.raises(BundleError, match="the pooler's output stands for a text; keep the bundle"):
        write_published(pooled, tmp_path / "out")


def test_what_is_not_known_is_refused(tmp_path: Path) -> None:
    """Catches a setting, a module over the model or a parameter that is passed over."""
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
