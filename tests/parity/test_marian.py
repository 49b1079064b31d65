"""Marian models: reads published folders written by the transformers package and compares the computations."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import MarianConfig, MarianMTModel, MarianTokenizer

from parity.published import close_inside, outputs_of
from samples import digit_pairs, tiny_recipe
from transformer.blocks import causal_mask, halved_sinusoid, padding_mask
from transformer.bundle import load_bundle, save_bundle
from transformer.bundle.huggingface import read_published, write_published
from transformer.decoding import Search, length_normalization
from transformer.errors import BundleError
from transformer.models.marian.weights import published_order
from transformer.pipelines.auto import load, make_translator
from transformer.pipelines.translation.terminology import Terminology
from transformer.run.recipe import parse_recipe
from transformer.run.train import train
from transformer.tokenizers.special_tokens import BOS_ID, PAD_ID

pytestmark = pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
CONFIG_OVERRIDES: dict[str, dict[str, Any]] = {
    "as most are": {"activation_function": "swish"},
    "of unequal sides": {
        "encoder_layers": 3, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 6,
        "encoder_ffn_dim": 37, "decoder_ffn_dim": 53, "activation_function": "gelu",
    },
    "unscaled, relu": {"scale_embedding": False, "activation_function": "relu"},
    "gelu by tanh, output of its own": {"activation_function": "gelu_new", "tie_word_embeddings": False},
    "two vocabularies": {"share_encoder_decoder_embeddings": False, "activation_function": "silu"},
}  # fmt: skip


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with source.spm, target.spm and vocab.json."""
    folder = tmp_path_factory.mktemp("pieces")
    vocabulary = {"</s>": 0, "<unk>": 1}
    for side, name in enumerate(("source", "target")):
        lines = [pair[side] for pair in digit_pairs(400)] + ["Ein {Satz} mit % Zeichen, über Ähren."] * 3
        (folder / f"{name}.txt").write_text("\n".join(lines), encoding="utf-8")
        sentencepiece.SentencePieceTrainer.train(
            input=str(folder / f"{name}.txt"), model_prefix=str(folder / name), vocab_size=70, character_coverage=1.0,
            hard_vocab_limit=False, minloglevel=2,
        )  # fmt: skip
        (folder / f"{name}.model").rename(folder / f"{name}.spm")
        processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{name}.spm"))
        for token in range(processor.get_piece_size()):
            vocabulary.setdefault(processor.id_to_piece(token), len(vocabulary))
    vocabulary |= {">>deu<<": len(vocabulary), "<pad>": len(vocabulary) + 1}
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    return folder


def published(pieces: Path, folder: Path, eos_bias: float = 2.0, **overrides: Any) -> MarianMTModel:
    """Writes and returns a model whose parameters and bias are random and whose predictions are sharp."""
    tokenizer = MarianTokenizer(*(str(pieces / name) for name in ("source.spm", "target.spm", "vocab.json")))
    size = len(json.loads((pieces / "vocab.json").read_text(encoding="utf-8")))
    settings: dict[str, Any] = {
        "vocab_size": size, "max_position_embeddings": 48, "d_model": 24, "encoder_layers": 2, "decoder_layers": 2,
        "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 40, "decoder_ffn_dim": 40,
        "scale_embedding": True, "pad_token_id": size - 1, "decoder_start_token_id": size - 1, "eos_token_id": 0,
        "forced_eos_token_id": None, "dropout": 0.1,
    }  # fmt: skip
    torch.manual_seed(2)
    model = MarianMTModel(MarianConfig(**settings | overrides)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name:
                parameter.normal_(std=0.1 if "bias" in name else 0.4).add_(float("norm.weight" in name))
        model.final_logits_bias.normal_()
        model.final_logits_bias[0, 0] = eos_bias
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model


@pytest.mark.parametrize("name", CONFIG_OVERRIDES)
@torch.no_grad()
def test_logits_and_hidden_states_are_those_of_transformers(name: str, pieces: Path, tmp_path: Path) -> None:
    """Catches a misnamed matrix, and a wrong epsilon, activation, scale, order of positions, mask or bias."""
    reference = published(pieces, tmp_path / "hf", **CONFIG_OVERRIDES[name])
    bundle = read_published(tmp_path / "hf")
    model, config = bundle.model, bundle.config
    order = torch.tensor(published_order(config, reference.config.vocab_size))  # pyright: ignore[reportArgumentType]
    src, tgt = torch.randint(4, len(order), (3, 9)), torch.randint(4, len(order), (3, 7))
    src[1, 5:], tgt[:, 0] = PAD_ID, BOS_ID
    mask = padding_mask(src)
    expected = reference(
        input_ids=order[src], attention_mask=(src != PAD_ID).long(), decoder_input_ids=order[tgt],
        output_hidden_states=True,
    )  # fmt: skip
    is_token = src != PAD_ID
    with outputs_of(model.encoder.layers) as encoder_outputs, outputs_of(model.decoder.layers) as decoder_outputs:
        encoded = model.encode(src, mask)
        decoded = model.decode(encoded, mask, tgt, causal_mask(7))
    close_inside(encoder_outputs, expected.encoder_hidden_states, is_token)
    close_inside(decoder_outputs, expected.decoder_hidden_states)
    torch.testing.assert_close(encoded[is_token], expected.encoder_hidden_states[-1][is_token], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(decoded, expected.decoder_hidden_states[-1], atol=1e-4, rtol=1e-4)
    logits = model.project(decoded)
    for token in range(len(order)):
        if token != BOS_ID:
            torch.testing.assert_close(logits[..., token], expected.logits[..., order[token]], atol=1e-4, rtol=1e-4)
    assert (logits.log_softmax(-1)[..., BOS_ID] < -50).all()


@pytest.mark.parametrize("n_shards", [1, 2])
def test_pickled_weights_are_read_like_safetensors(n_shards: int, pieces: Path, tmp_path: Path) -> None:
    """Catches an unknown name of the shared matrix, a computed buffer that is not left out, and a lost shard."""
    folder = tmp_path / "hf"
    state = published(pieces, folder).state_dict()
    expected = read_published(folder).model.state_dict()
    (folder / "model.safetensors").unlink()
    if n_shards == 1:
        torch.save(state, folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)  # as most are published
    else:
        shard_of = {name: f"pytorch_model-{1 + name.startswith('model.decoder')}-of-2.bin" for name in state}
        for shard in set(shard_of.values()):
            torch.save({name: tensor for name, tensor in state.items() if shard_of[name] == shard}, folder / shard)
        (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": shard_of}), encoding="utf-8")
    actual = read_published(folder, unpickle_in=tmp_path).model.state_dict()
    assert actual.keys() == expected.keys()
    assert all(torch.equal(actual[name], expected[name]) for name in expected)
    assert [path.name for path in tmp_path.iterdir()] == ["hf"]


def test_every_piece_of_a_long_line_has_its_language(pieces: Path, tmp_path: Path) -> None:
    """Catches segments after the first that lose their language code and are translated into a default language."""
    published(pieces, tmp_path / "hf", 6.0)
    translator = make_translator(read_published(tmp_path / "hf"))
    encode = translator.tokenizers.source.encode_batch
    (line,) = translator.segmenter.segment([">>deu<< " + "one two three. " * 40])
    segments = line.segments
    assert len(line.split.pieces) == len(segments) > 1
    assert all(text.startswith(">>deu<< one") for text in line.split.pieces)
    language = encode([">>deu<<"])[0][0]
    assert all(segment.tokens[0] == language and segment.tokens.count(language) == 1 for segment in segments)
    assert all(len(segment.tokens) <= translator.max_source_tokens for segment in segments)


LINES = ["one two three", "seven", "nine {Satz} über", ">>deu<< eight four one", "a % word ☃", ""]


SLOWER = [pytest.param(*values, marks=pytest.mark.slow) for values in [(1, 1.0, 6.0), (3, 0.6, 5.6), (4, 1.0, 2.0)]]


@pytest.mark.parametrize(("beam", "alpha", "eos_bias"), [(4, 1.0, 6.0), *SLOWER])
@torch.no_grad()
def test_translations_are_those_of_transformers(
    beam: int, alpha: float, eos_bias: float, pieces: Path, tmp_path: Path
) -> None:
    """Catches text that is split or joined differently, a wrong first token, and unknown pieces that shift others."""
    model = published(pieces, tmp_path / "hf", eos_bias, activation_function="swish")
    tokenizer = MarianTokenizer.from_pretrained(tmp_path / "hf")
    save_bundle(tmp_path / "ours", read_published(tmp_path / "hf"))
    search = Search(beam, length_normalization(alpha), retry_degenerate=False, allow_unknown=True)
    keeps_nothing = Terminology(protected=())
    plain = make_translator(load_bundle(tmp_path / "ours"), search=search, terminology=keeps_nothing)
    packed = load(tmp_path / "ours", search=search, terminology=keeps_nothing, precision="float32", workers=1)
    has_finished: list[bool] = []
    for line in LINES:
        inputs = tokenizer([line], return_tensors="pt")
        result = plain.translations([line])[0]
        is_truncated = not result.alternatives[0].finished  # and therefore lacks EOS
        limit = min(inputs.input_ids.size(1) + 50, 48) - is_truncated
        expected = model.generate(
            **inputs, num_beams=beam, do_sample=False, max_new_tokens=limit, length_penalty=alpha, bad_words_ids=None,
            suppress_tokens=[model.config.pad_token_id], early_stopping=beam > 1,
        )[0]  # fmt: skip
        if not line:
            assert result.text == ""
        elif result.alternatives[0].finished == (model.config.eos_token_id in expected):
            has_finished.append(result.alternatives[0].finished)
            assert result.text == tokenizer.decode(expected, skip_special_tokens=True)
            assert packed.translations([line])[0].text == result.text
    assert len(has_finished) >= 4
    assert any(has_finished) == (eos_bias > 5), "whether any translation finishes before the limit"


@pytest.mark.slow
def test_an_imported_model_is_fine_tuned_and_goes_on(
    pieces: Path, digit_corpus: tuple[Path, Path], tmp_path: Path
) -> None:
    """Catches another tokenizer, weights not loaded, a failed resume, and a loss inflated by suppressed tokens."""
    published(pieces, tmp_path / "hf")
    save_bundle(tmp_path / "ours", read_published(tmp_path / "hf"))
    settings = tiny_recipe(digit_corpus, start_from=str(tmp_path / "ours"), learning_rate=0.001, precision="float32")
    recipe = {section: settings[section] for section in ("data", "training")}
    first = train(parse_recipe(recipe), tmp_path / "run", quiet=True)
    longer_recipe = {**recipe, "training": {**recipe["training"], "max_steps": 30}}
    resumed = train(parse_recipe(longer_recipe), tmp_path / "run", quiet=True)
    assert (first.progress.step, resumed.progress.step) == (12, 30)
    assert resumed.progress.validations[30]["loss"] < resumed.progress.validations[6]["loss"]
    assert resumed.progress.validations[30]["loss"] < math.log(resumed.progress.validations[30]["perplexity"]) + 5
    tuned = load_bundle(resumed.model)
    assert tuned.tokenizers.to_files() == load_bundle(tmp_path / "ours").tokenizers.to_files()
    write_published(tuned, tmp_path / "again")
    reference = MarianMTModel.from_pretrained(tmp_path / "again")
    tokenizer = MarianTokenizer.from_pretrained(tmp_path / "again")
    search = Search(1, retry_degenerate=False, allow_unknown=True, no_repeat_ngram=1)
    translator = make_translator(tuned, search=search, max_target_tokens=29, terminology=Terminology(protected=()))
    for line in LINES[:3]:
        (actual,) = translator.translations([line])
        expected = reference.generate(
            **tokenizer([line], return_tensors="pt"),
            num_beams=1,
            do_sample=False,
            max_new_tokens=30,
            no_repeat_ngram_size=1,
        )
        assert actual.text == tokenizer.decode(expected[0], skip_special_tokens=True)


def test_an_import_from_the_command_line(pieces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches an imported model that cannot be described, quantized or used for translation."""
    from transformer.cli.import_model import import_model
    from transformer.cli.info import info

    published(pieces, tmp_path / "hf")
    import_model(tmp_path / "hf", tmp_path / "ours")
    assert "marian model of" in capsys.readouterr().out
    info(tmp_path / "ours")
    assert "marian" in capsys.readouterr().out
    for precision in ("int8", "bf16"):
        assert load(tmp_path / "ours", precision=precision, workers=1).translations(["one two"])[0].text


def change(name: str, **values: Any) -> Callable[[Path], None]:
    """Returns a function that updates keys of a JSON file of a folder."""

    def apply(folder: Path) -> None:
        content = json.loads((folder / name).read_text(encoding="utf-8"))
        (folder / name).write_text(json.dumps(content | values), encoding="utf-8")

    return apply


def rewrite(folder: Path, drop: str = "", **extra: torch.Tensor) -> None:
    tensors = {name: tensor for name, tensor in load_file(folder / "model.safetensors").items() if name != drop}
    save_file(tensors | extra, folder / "model.safetensors", {"format": "pt"})


def other_target(folder: Path) -> None:
    """Writes a second vocabulary in which <unk> has another token ID."""
    vocabulary = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    names = {token: piece for piece, token in vocabulary.items()}
    swapped = vocabulary | {"<unk>": 2, names[2]: vocabulary["<unk>"]}
    (folder / "target_vocab.json").write_text(json.dumps(swapped), encoding="utf-8")


BROKEN: dict[str, tuple[Callable[[Path], Any], str]] = {
    "another type": (change("config.json", model_type="whisper"), "model_type='whisper' is not known; only"),
    "pre-norm": (change("config.json", normalize_before=True), "normalize_before=True is not known"),
    "an activation": (change("config.json", activation_function="mish"), "activation_function='mish' is not known"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "has no model.safetensors"),
    "pickled": (
        lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"), "pickled weights alone"
    ),
    "a parameter too few": (
        lambda folder: rewrite(folder, "model.encoder.layers.1.fc1.bias"),
        "missing: model.encoder.layers.1.fc1.bias",
    ),
    "a parameter too many": (lambda folder: rewrite(folder, extra=torch.zeros(3)), "unknown: extra"),
    "learned positions": (
        lambda folder: rewrite(folder, **{"model.encoder.embed_positions.weight": torch.randn(48, 24)}),
        "is not the table of sinusoids",
    ),
    "a forced first token": (
        change("generation_config.json", forced_bos_token_id=5), "forced_bos_token_id=5 in generation_config.json"
    ),
    "tokens ruled out": (change("generation_config.json", suppress_tokens=[4]), r"suppress_tokens=\[4\] in generation"),
    "words ruled out": (change("config.json", bad_words_ids=[[4]]), "rules out more than what is never written"),
    "another begin": (change("generation_config.json", decoder_start_token_id=3), "decoder_start_token_id=3 in gener"),
    "another end": (change("generation_config.json", eos_token_id=[0, 3]), r"is \[0\] in config\.json and \[0, 3\]"),
    "another unknown token": (
        lambda folder: other_target(folder), "<unk> is 2 in target_vocab.json, 1 in vocab.json; it must be one"
    ),
    "a list for a configuration": (
        lambda folder: (folder / "config.json").write_text("[1]"), "is not a JSON object"
    ),
    "half a configuration": (
        lambda folder: (folder / "config.json").write_text('{"model_type": "mar'), "does not read such a model"
    ),
    "half of the weights": (
        lambda folder: (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:9999]),
        "is not a safetensors file",
    ),
    "more layers than there is memory": (
        change("config.json", encoder_layers=10**9), "encoder_layers=1000000000 is not a size of a model"
    ),
    "more tokens than there is memory": (change("config.json", vocab_size=10**12), "=1000000000000 is not a size"),
    "more of the target": (change("config.json", decoder_vocab_size=10**12), "=1000000000000 is not a size"),
    "more positions than there is time": (
        change("config.json", max_position_embeddings=4 * 10**6), "max_position_embeddings=4000000 is not a size"
    ),
    "no begin": (change("config.json", decoder_start_token_id=None), "decoder_start_token_id must all be there"),
    "a flat bias": (
        lambda folder: rewrite(folder, final_logits_bias=torch.zeros(9)), "final_logits_bias has the shape"
    ),
    "a bias for all": (
        lambda folder: rewrite(folder, final_logits_bias=torch.zeros(())), "final_logits_bias has the shape"
    ),
    "no vocabulary": (lambda folder: (folder / "vocab.json").unlink(), "vocab.json is missing"),
    "a token that the model lacks": (
        change("vocab.json", zzz=2000), "'zzz' is 2000 in vocab.json, none of the"
    ),
    "no pieces": (lambda folder: (folder / "source.spm").write_bytes(b"x"), "not a SentencePiece model"),
    "a token too far": (change("config.json", vocab_size=50), "is none of the 50 tokens of the model"),
    "another size": (change("config.json", decoder_vocab_size=90), "rows, not the 90 of the configuration"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_not_known_is_refused_by_name(name: str, pieces: Path, tmp_path: Path) -> None:
    """Catches a setting or parameter that is ignored, a pickle that is read, and a traceback."""
    published(pieces, tmp_path / "hf")
    damage, message = BROKEN[name]
    damage(tmp_path / "hf")
    with pytest.raises(BundleError, match=message):
        read_published(tmp_path / "hf")


def test_what_is_never_written_may_be_ruled_out(pieces: Path, tmp_path: Path) -> None:
    """Catches a refusal of all OPUS-MT folders, which rule out padding, and of position tables in half precision."""
    size = published(pieces, tmp_path / "hf").config.vocab_size
    change("generation_config.json", bad_words_ids=[[size - 1]], num_beams=6, renormalize_logits=True)(tmp_path / "hf")
    change("config.json", extra_pos_embeddings=size)(tmp_path / "hf")  # opus-mt-en-vi has this unused setting
    table = halved_sinusoid(48, 24).half()
    rewrite(tmp_path / "hf", **{"model.encoder.embed_positions.weight": table})
    write_published(read_published(tmp_path / "hf"), tmp_path / "again")
    generation_config = json.loads((tmp_path / "again" / "generation_config.json").read_text())
    assert (generation_config["bad_words_ids"], generation_config["max_length"]) == ([[size - 1]], 49)


def test_shards_are_read_as_one(pieces: Path, tmp_path: Path) -> None:
    """Catches a shard that is left out, and a shard outside the folder."""
    published(pieces, tmp_path / "hf")
    shutil.copytree(tmp_path / "hf", tmp_path / "parts")
    tensors = load_file(tmp_path / "parts" / "model.safetensors")
    (tmp_path / "parts" / "model.safetensors").unlink()
    weight_map: dict[str, str] = {}
    for number, name in enumerate(sorted(tensors)):
        weight_map[name] = f"model-{number % 2}.safetensors"
    for shard in set(weight_map.values()):
        save_file({name: tensors[name] for name in weight_map if weight_map[name] == shard}, tmp_path / "parts" / shard)
    index = tmp_path / "parts" / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}), encoding="utf-8")
    whole, parts = (read_published(tmp_path / name).model.state_dict() for name in ("hf", "parts"))
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    index.write_text(json.dumps({"weight_map": {**weight_map, "x": "../hf/model.safetensors"}}), encoding="utf-8")
    with pytest.raises(BundleError, match="a part of the weights, is missing"):
        read_published(tmp_path / "parts")


def test_every_parameter_is_read(pieces: Path, tmp_path: Path) -> None:
    """Catches a parameter that is left uninitialized."""
    published(pieces, tmp_path / "hf")
    first, second = (read_published(tmp_path / "hf").model for _ in range(2))
    assert isinstance(first, nn.Module)
    for name, parameter in first.named_parameters():
        assert torch.equal(parameter, second.get_parameter(name))
        assert parameter.isfinite().all()


@pytest.mark.parametrize("name", CONFIG_OVERRIDES)
@torch.no_grad()
def test_what_is_exported_is_what_was_imported(name: str, pieces: Path, tmp_path: Path) -> None:
    """Catches a parameter, a token ID or a setting that changes in a round trip."""
    reference = published(pieces, tmp_path / "hf", **CONFIG_OVERRIDES[name])
    bundle = read_published(tmp_path / "hf")
    write_published(bundle, tmp_path / "out")
    exported = MarianMTModel.from_pretrained(tmp_path / "out").eval()
    src, tgt = torch.randint(2, 60, (2, 8)), torch.randint(2, 60, (2, 6))
    inputs = {"input_ids": src, "decoder_input_ids": tgt}
    assert torch.equal(exported(**inputs).logits, reference(**inputs).logits)
    tokenizers = [MarianTokenizer.from_pretrained(tmp_path / folder) for folder in ("hf", "out")]
    encoded = [tokenizer(LINES)["input_ids"] for tokenizer in tokenizers]
    assert encoded[0] == encoded[1]
    restored = read_published(tmp_path / "out")
    assert restored.config == bundle.config
    assert restored.tokenizers.to_files() == bundle.tokenizers.to_files()
    expected, actual = bundle.model.state_dict(), restored.model.state_dict()
    assert all(torch.equal(actual[name], tensor) for name, tensor in expected.items())
    with pytest.raises(BundleError, match="is not empty"):
        write_published(bundle, tmp_path / "out")


@pytest.mark.slow
def test_what_the_vocabulary_lacks_is_told_and_nothing_is_lost(pieces: Path, tmp_path: Path) -> None:
    """Catches a term outside the vocabulary that is lost or changes the search, and a line that becomes empty."""
    published(pieces, tmp_path / "hf", 6.0)
    save_bundle(tmp_path / "ours", read_published(tmp_path / "hf"))
    lines = ["one {Satz} \u2603 three"]
    free = load(tmp_path / "ours", search=Search(4), precision="float32").translations(lines)[0]
    terminology = Terminology(glossary=[("one", "Schnee\u2603")])
    translator = load(tmp_path / "ours", search=Search(4), terminology=terminology, precision="float32")
    with_term = translator.translations(lines)[0]
    assert with_term.text.replace("Schnee\u2603", "").split() == free.text.split()
    assert "Schnee\u2603" in with_term.text
    assert with_term.alternatives[0].tokens == free.alternatives[0].tokens
    prefixed = load(tmp_path / "ours", precision="float32").translations(lines, prefixes=["eins \u2603 zwei"])[0]
    assert any("has characters outside the vocabulary" in flag for flag in prefixed.flags)
    assert prefixed.text
