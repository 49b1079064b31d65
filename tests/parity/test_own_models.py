"""Our own models exported to published formats: the transformers package computes the same with them."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, MarianMTModel, PegasusForConditionalGeneration

from parity.published import close
from samples import fast_first
from transformer.blocks import causal_mask, padding_mask
from transformer.bundle import Bundle
from transformer.bundle.huggingface import read_published, write_published
from transformer.decoding import Search, length_normalization
from transformer.errors import BundleError
from transformer.models import family
from transformer.pipelines.auto import make_translator
from transformer.tokenizers.config import TokenizerConfig
from transformer.tokenizers.pair import TokenizerPair
from transformer.transformer import Transformer

TEXT = ["one two three", "seven eight", "Ein Satz, mit Ähren!", "a b c d e f", "[EOS] typed, x\ty"]
LINES = ["one two", "seven Ähren! c", "three  eight", "d"]


def make_bundle(kind: str = "bpe", **settings: Any) -> Bundle:
    """Returns a translation model with random weights whose predictions are sharp."""
    joint = settings.get("share_embeddings", "all") == "all"
    tokenizer_config = TokenizerConfig(kind=kind, vocab_size=280, joint=joint)
    tokenizers = TokenizerPair.train(lambda: TEXT * 3, lambda: TEXT[1:] * 3, tokenizer_config)
    sizes = {"src_vocab_size": tokenizers.source.vocab_size, "tgt_vocab_size": tokenizers.target.vocab_size}
    model_family = family("transformer")
    small = {"d_model": 24, "N": 2, "h": 4, "d_ff": 37, "src_seq_len": 64, "tgt_seq_len": 70, "decoder_layers": 3}
    config = model_family.config.model_validate({**small, **sizes, **settings})
    torch.manual_seed(3)
    model = model_family.build(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(mean=float(name.endswith("alpha")), std=0.3)
    return Bundle(config, model.eval(), tokenizers, {"max_source_tokens": 64})


SMALL: dict[str, Any] = {"d_model": 24, "N": 2, "h": 4, "d_ff": 37, "seq_len": 32}
KINDS: dict[str, tuple[dict[str, Any], Any]] = {
    "post-norm": ({"norm_order": "post"}, MarianMTModel),
    "post-norm, characters": ({"norm_order": "post", "kind": "characters"}, MarianMTModel),
    "post-norm, two vocabularies": ({"norm_order": "post", "share_embeddings": "none"}, MarianMTModel),
    "post-norm, output tied": ({"norm_order": "post", "share_embeddings": "target"}, MarianMTModel),
    "pre-norm": ({"norm_order": "pre"}, PegasusForConditionalGeneration),
}


@pytest.mark.parametrize("name", fast_first(KINDS, 1))
@torch.no_grad()
def test_logits_and_translations_are_the_same(name: str, tmp_path: Path) -> None:
    """Catches an axis that is not reordered, a missing last norm, a bias, and wrong boundary tokens."""
    settings, model_class = KINDS[name]
    bundle = make_bundle(**settings)
    write_published(bundle, tmp_path / "hf")
    reference = model_class.from_pretrained(tmp_path / "hf").eval()
    source, target = bundle.tokenizers.source, bundle.tokenizers.target
    src = torch.randint(4, source.vocab_size, (3, 11))
    tgt = torch.randint(4, target.vocab_size, (3, 7))
    src[1, 6:], tgt[:, 0] = 0, 1
    mask, model = padding_mask(src), bundle.model
    assert isinstance(model, Transformer)
    expected_logits = reference(input_ids=src, attention_mask=(src != 0).long(), decoder_input_ids=tgt).logits
    close(model(src, tgt, mask, causal_mask(7)), expected_logits)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "hf")
    target_tokenizer = AutoTokenizer.from_pretrained(tmp_path / "hf" / "target") if source is not target else tokenizer
    for line in [*LINES, "[EOS] typed", "x\ty"]:
        expected = tokenizer(line, split_special_tokens=True)["input_ids"]
        assert [*source.encode(line), 2] == expected
        assert target_tokenizer.decode(target.encode(line)) == line
    translator = make_translator(bundle, search=Search(4, length_normalization(1.0), retry_degenerate=False))
    for line, actual in zip(LINES, translator.translations(LINES), strict=True):
        ids = torch.tensor([[*source.encode(line), 2]])
        expected = reference.generate(
            ids, num_beams=4, do_sample=False, max_new_tokens=ids.size(1) + 49, length_penalty=1.0, early_stopping=True,
            bad_words_ids=[[0], [1], [3]],  # our limit of + 50 counts EOS, which a truncated output lacks
        )[0]  # fmt: skip
        assert actual.text == target_tokenizer.decode(expected, skip_special_tokens=True).replace("\n", " ").replace(
            "\r", " "
        )


@pytest.mark.parametrize("kind", ["bpe", "bytes", "characters"])
def test_a_language_model_reads_running_text(kind: str, tmp_path: Path) -> None:
    """Catches a space before every text, which the model was not trained on, in the export or after a round trip."""
    text = ["".join(f" {line}\n" for line in TEXT)]
    tokenizers = TokenizerPair.train(lambda: text, lambda: text, TokenizerConfig(kind=kind, vocab_size=280))
    model_family = family("gpt")
    config = model_family.config.model_validate({**SMALL, "vocab_size": tokenizers.source.vocab_size})
    write_published(Bundle(config, model_family.build(config), tokenizers), tmp_path / "hf")
    reference = AutoTokenizer.from_pretrained(tmp_path / "hf")
    tokenizer = read_published(tmp_path / "hf").tokenizers.source
    for line in [*LINES, " one\n two", "", "[EOS] typed"]:
        (expected,) = tokenizers.source.encode_running([line])
        actual = reference(line, split_special_tokens=True)
        assert actual.keys() == {"input_ids", "attention_mask"}, "GPT-2 takes only these"
        assert actual["input_ids"] == expected
        assert tokenizer.encode_running([line])[0] == expected
        assert reference.decode(expected) == tokenizer.decode_running(expected) == line


def test_a_pre_norm_model_of_several_matrices_is_refused(tmp_path: Path) -> None:
    """Catches an export that would be read with other weights."""
    with pytest.raises(BundleError, match="share_embeddings='target'"):
        write_published(make_bundle(norm_order="pre", share_embeddings="target"), tmp_path / "hf")
