"""T5: reads published folders written by the transformers package and compares the computations."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

import transformer
from parity.published import assert_round_trip, close, close_inside, imported, outputs_of, randomized, write_word_level
from transformer.blocks import causal_mask, padding_mask
from transformer.bundle.huggingface import read_published
from transformer.decoding import Request, Search, length_normalization, search_all
from transformer.errors import BundleError, ConfigError
from transformer.pipelines.auto import make_translator
from transformer.pipelines.translation.terminology import Terminology
from transformer.pipelines.translation.translator import Translator
from transformer.tokenizers.huggingface import read_tokenizer
from transformer.tokenizers.special_tokens import SpecialTokenIds
from transformer.transformer import Transformer

SIZE = 53
SIZES: dict[str, Any] = {
    "vocab_size": SIZE, "d_model": 24, "d_kv": 6, "num_heads": 4, "d_ff": 37, "num_layers": 3,
    "decoder_start_token_id": 0,
}  # fmt: skip
CONFIG_OVERRIDES: dict[str, dict[str, Any]] = {
    "plain": {},
    "gated, untied": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "heads wider than the model": {"d_kv": 10, "num_heads": 3, "layer_norm_epsilon": 1e-3},
    "few near buckets": {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 12},
    "another depth, gated silu": {"num_decoder_layers": 1, "feed_forward_proj": "gated-silu"},
}
SPECIAL = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}


def published(**overrides: Any) -> Any:
    """Returns a model with random weights, which include the output layer if it is not tied."""
    model = T5ForConditionalGeneration(T5Config(**{**SIZES, **overrides}))
    if overrides.get("tie_word_embeddings") is False:
        model.lm_head.weight = torch.nn.Parameter(torch.zeros(SIZE, 24))
    return randomized(model)


@pytest.mark.parametrize("name", CONFIG_OVERRIDES)
@torch.no_grad()
def test_logits_and_hidden_states_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    """Catches a wrong bucket, scale or head width, a gate on the wrong side, and an output that is tied by mistake."""
    reference = published(**CONFIG_OVERRIDES[name])
    write_word_level(tmp_path / "hf", SIZE, SPECIAL, "$A </s>")
    bundle = imported(reference, tmp_path / "hf")
    model = bundle.model
    assert isinstance(model, Transformer)
    src, tgt = torch.randint(3, SIZE, (3, 41)), torch.randint(3, SIZE, (3, 29))
    src[1, 17:], tgt[:, 0] = 0, 0
    mask = padding_mask(src)
    inputs = {"input_ids": src, "attention_mask": (src != 0).long(), "decoder_input_ids": tgt}
    expected = reference(**inputs, output_hidden_states=True)
    with outputs_of(model.encoder.layers) as encoder_outputs, outputs_of(model.decoder.layers) as decoder_outputs:
        encoded = model.encode(src, mask)
        decoded = model.decode(encoded, mask, tgt, causal_mask(29))
    close_inside(encoder_outputs, expected.encoder_hidden_states, src != 0)
    close_inside(decoder_outputs, expected.decoder_hidden_states)
    close(encoded[src != 0], expected.encoder_last_hidden_state[src != 0])
    scale = 24**-0.5 if bundle.config.model_dump()["scale_output"] else 1.0
    close(decoded, expected.decoder_hidden_states[-1] * scale)
    close(model.project(decoded), expected.logits)
    state = model.begin(src, mask, 29)
    for position in range(29):
        logits, state = model.step(tgt[:, position], state)
        close(logits, expected.logits[:, position])
    reloaded = assert_round_trip(bundle, tmp_path, T5ForConditionalGeneration.from_pretrained)
    close(reloaded(**inputs).logits, reference(**inputs).logits)


@pytest.mark.parametrize("name", ["gated, untied", "heads wider than the model", "another depth, gated silu"])
@pytest.mark.parametrize("beam", [1, pytest.param(4, marks=pytest.mark.slow)])
@torch.no_grad()
def test_what_is_written_is_what_generate_writes(beam: int, name: str, tmp_path: Path) -> None:
    """Catches wrong start or end tokens of the decoder, and caches of the wrong width or depth."""
    reference = published(**{**CONFIG_OVERRIDES[name], "tie_word_embeddings": False})
    reference.lm_head.weight *= 4
    reference.lm_head.weight[1] *= 0.5
    write_word_level(tmp_path / "hf", SIZE, SPECIAL, "$A </s>")
    bundle = imported(reference, tmp_path / "hf")
    assert_round_trip(bundle, tmp_path, T5ForConditionalGeneration.from_pretrained)
    special_tokens = bundle.tokenizers.source.special_tokens
    generator = torch.Generator().manual_seed(1)
    sources = [[*torch.randint(3, SIZE, (n,), generator=generator).tolist(), 1] for n in (5, 1, 9, 3)]
    requests = [Request(source, 20, decoder_start_token_id=special_tokens.bos) for source in sources]
    search = Search(beam, length_normalization(1.0))
    actual = search_all(bundle.model, requests, search, special_tokens=special_tokens)
    for source, (best,) in zip(sources, actual, strict=True):
        expected = reference.generate(
            torch.tensor([source]), num_beams=beam, do_sample=False, max_new_tokens=20, length_penalty=1.0,
            early_stopping=True, bad_words_ids=[[0], [2]],
        )[0, 1:].tolist()  # fmt: skip
        assert best.tokens == (expected[: expected.index(1)] if 1 in expected else expected)


def test_what_is_not_known_is_refused(tmp_path: Path) -> None:
    """Catches a kind of feed-forward network that is silently ignored."""
    write_word_level(tmp_path / "hf", SIZE, SPECIAL, "$A </s>")
    with pytest.raises(BundleError, match="feed_forward_proj='gated-tanh' is not known"):
        imported(published(feed_forward_proj="gated-tanh"), tmp_path / "hf")
    for overrides in ({"dense_act_fn": "gelu"}, {"is_gated_act": True}):
        published().save_pretrained(tmp_path / "hf")
        config = json.loads((tmp_path / "hf" / "config.json").read_text())
        (tmp_path / "hf" / "config.json").write_text(json.dumps({**config, **overrides}))
        with pytest.raises(BundleError, match=f"{next(iter(overrides))}=.* is not known"):
            read_published(tmp_path / "hf")


def test_a_missing_output_is_told(tmp_path: Path) -> None:
    """Catches a missing output layer that the embeddings replace, and a model that has only an encoder."""
    write_word_level(tmp_path / "hf", SIZE, SPECIAL, "$A </s>")
    published(tie_word_embeddings=False).save_pretrained(tmp_path / "hf")
    weights = tmp_path / "hf" / "model.safetensors"
    tensors = load_file(weights)
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    (tmp_path / "hf" / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))
    save_file({name: tensor for name, tensor in tensors.items() if name != "lm_head.weight"}, weights)
    with pytest.raises(BundleError, match=r"missing: lm_head\.weight"):
        read_published(tmp_path / "hf")
    (tmp_path / "hf" / "config.json").write_text(json.dumps({**config, "architectures": ["T5EncoderModel"]}))
    with pytest.raises(BundleError, match="architectures='T5EncoderModel' is not known"):
        read_published(tmp_path / "hf")


@pytest.mark.parametrize("special_tokens", [False, True])
def test_a_language_token_is_read_in_the_task(tmp_path: Path, *, special_tokens: bool) -> None:
    """Catches `<2de>` that becomes unknown text, and notes on the characters of its name."""
    write_word_level(tmp_path / "hf", SIZE, {**SPECIAL, "extra": "<2de>"}, "$A </s>")
    published().save_pretrained(tmp_path / "hf")
    reference = PreTrainedTokenizerFast.from_pretrained(tmp_path / "hf")("<2de> w1 w2").input_ids
    task, line = ("", "<2de> w1 w2") if special_tokens else ("<2de> ", "w1 w2")
    translator = transformer.load(tmp_path / "hf", task=task, special_tokens=special_tokens, precision="float32")
    assert isinstance(translator, Translator)
    (translation,) = translator.translations([line])
    assert translation.sources == (tuple(reference),)
    assert 3 in reference
    assert not [flag for flag in translation.flags if "<" in flag]


def test_a_task_stands_before_every_part(tmp_path: Path) -> None:
    """Catches parts of a long line that silently lack the task prefix."""
    write_word_level(tmp_path / "hf", SIZE, SPECIAL, "$A </s>")
    published(n_positions=12).save_pretrained(tmp_path / "hf")
    translator = make_translator(read_published(tmp_path / "hf"))
    line = "w1 w2 w3 w4 w5 w6 w7 . " * 3
    encode = translator.tokenizers.source.encode
    (plain,) = translator.translations([line.strip()], terminology=Terminology(protected=()))
    assert any("a prefix for the model only precedes its first part" in flag for flag in plain.flags)

    def with_task(task: str, **options: Any) -> Translator:
        limit = translator.max_source_tokens
        return Translator(translator.model, translator.tokenizers, task=task, max_source_tokens=limit, **options)

    (split, empty, unsplit) = with_task("w8 w9 ").translations([line.strip(), "", "w1"])
    assert len(split.sources) > 1
    assert all(list(tokens[:2]) == encode("w8 w9") for tokens in (*split.sources, *unsplit.sources))
    assert not any("only precedes its first part" in flag for flag in split.flags)
    assert empty.text == ""
    with pytest.raises(ConfigError, match="leaves 2 of 11 tokens for the text"):
        with_task("w8 " * 9).translations([line])
    with pytest.raises(ConfigError, match="which a task shifts"):
        with_task("w8 ", terminology=Terminology(protected=("tags",)))


def test_a_sentencepiece_model_alone_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches other pieces than those of transformers, lost normalization, and sentinels in the wrong order."""
    (tmp_path / "text").write_text("\n".join(f"Ein Haus für {n} Ähren, der Hund lief." for n in range(300)))
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "text"), model_prefix=str(tmp_path / "spiece"), vocab_size=60, hard_vocab_limit=False,
        pad_id=0, eos_id=1, unk_id=2, bos_id=-1, minloglevel=2,
    )  # fmt: skip
    sentinels = [f"<extra_id_{number}>" for number in range(10)]
    options = {"tokenizer_class": "T5Tokenizer", "extra_ids": 10, **SPECIAL}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(options))
    files = {name: (tmp_path / name).read_bytes() for name in ("spiece.model", "tokenizer_config.json")}
    special_tokens = SpecialTokenIds(pad=0, bos=0, eos=1, unk=2)
    tokenizer, reference = read_tokenizer(files, special_tokens), AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer.boundary_tokens == ((), (1,))
    for text in ("der Hund lief.", "  ein  Haus ﬁ und １２\t\n ", "", "中文"):
        assert [*tokenizer.encode(text), 1] == reference(text)["input_ids"]
    assert tokenizer.pieces(reference.convert_tokens_to_ids(sentinels)) == sentinels
    with pytest.raises(BundleError, match=r"spiece\.model is damaged; copy it again"):
        read_tokenizer({**files, "spiece.model": files["spiece.model"][:-9]}, special_tokens)
    monkeypatch.setitem(sys.modules, "sentencepiece.sentencepiece_model_pb2", None)
    with pytest.raises(ConfigError, match=r"pip install 'transformer\[marian\]'"):
        read_tokenizer(files, special_tokens)
