"""Language models: reads published folders written by the transformers package and compares the computations."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers.pre_tokenizers import ByteLevel
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GPT2Config,
    GPT2LMHeadModel,
    GPT2Model,
    LlamaConfig,
    LlamaForCausalLM,
)

import transformer
from parity.published import assert_round_trip, close, close_inside, imported, outputs_of, randomized, write_word_level
from transformer.bundle.huggingface import read_published, write_published
from transformer.decoding import Request, Search, length_normalization, search_all
from transformer.errors import BundleError
from transformer.pipelines.text_generation import Generator
from transformer.tokenizers.huggingface import HuggingFaceTokenizer
from transformer.tokenizers.special_tokens import SpecialTokenIds

SIZE = 53
SIZES: dict[str, Any] = {"vocab_size": SIZE, "n_positions": 40, "n_embd": 24, "n_layer": 3, "n_head": 4}
SPECIAL_TOKENS: dict[str, Any] = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None}
GPTS: dict[str, dict[str, Any]] = {
    "as published": {},
    "relu, inner width": {"activation_function": "relu", "n_inner": 37},
    "exact gelu, other epsilon": {"activation_function": "gelu", "layer_norm_epsilon": 1e-3},
    "scaled by layer": {"scale_attn_by_inverse_layer_idx": True, "reorder_and_upcast_attn": True},
    "not scaled, fast gelu": {"scale_attn_weights": False, "activation_function": "gelu_fast"},
    "untied": {"tie_word_embeddings": False, "activation_function": "silu"},
}
LLAMA: dict[str, Any] = {
    "vocab_size": SIZE, "hidden_size": 24, "intermediate_size": 37, "num_hidden_layers": 3, "num_attention_heads": 4,
    "max_position_embeddings": 40,
}  # fmt: skip
LLAMAS: dict[str, dict[str, Any]] = {
    "as published": {},
    "shared key heads": {"num_key_value_heads": 2},
    "one key head, wide": {"num_key_value_heads": 1, "head_dim": 10, "rms_norm_eps": 1e-3},
    "biases, tied, another base": {
        "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 500.0},
    },
    "slowed down for long texts": {
        "rope_parameters": {
            "rope_type": "llama3", "rope_theta": 20.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 24,
        },
    },
}  # fmt: skip


def gpt(**overrides: Any) -> Any:
    return randomized(GPT2LMHeadModel(GPT2Config(**{**SIZES, **SPECIAL_TOKENS, **overrides})))


def llama(**overrides: Any) -> Any:
    return randomized(LlamaForCausalLM(LlamaConfig(**{**LLAMA, **SPECIAL_TOKENS, **overrides})))


MODELS = {f"gpt: {name}": (gpt, overrides) for name, overrides in GPTS.items()} | {
    f"llama: {name}": (llama, overrides) for name, overrides in LLAMAS.items()
}


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_logits_and_hidden_states_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    """Catches a misnamed or transposed matrix, and a wrong activation, scale, epsilon, rotation or mask."""
    make_reference, overrides = MODELS[name]
    reference = make_reference(**overrides)
    write_word_level(tmp_path / "hf", SIZE, {"eos_token": "<end>"})
    bundle = imported(reference, tmp_path / "hf")
    model = bundle.model
    tokens = torch.randint(0, SIZE, (3, 11))
    mask = torch.ones(3, 11, dtype=torch.bool)
    mask[1, 6:] = False
    expected = reference(input_ids=tokens, attention_mask=mask.long(), output_hidden_states=True)
    with outputs_of(model.decoder.layers) as layer_outputs:
        hidden = model.decode(tokens, mask[:, None, None])
    close_inside(layer_outputs, expected.hidden_states, mask)
    close(hidden[mask], expected.hidden_states[-1][mask])
    close(model.project(hidden)[mask], expected.logits[mask])
    reloaded = assert_round_trip(bundle, tmp_path, type(reference).from_pretrained)
    close(reloaded(input_ids=tokens).logits, reference(input_ids=tokens).logits)


@torch.no_grad()
def test_positions_may_begin_anywhere_and_a_headless_model_is_read(tmp_path: Path) -> None:
    """Catches ignored position offsets, and parameter names without their prefix."""
    with_head = gpt()
    write_word_level(tmp_path / "hf", SIZE, {"eos_token": "<end>"})
    reference = GPT2Model(with_head.config).eval()
    reference.load_state_dict(with_head.transformer.state_dict())
    model = imported(reference, tmp_path / "hf").model
    tokens, first = torch.randint(0, SIZE, (2, 5)), torch.tensor([3, 17])
    positions = first[:, None] + torch.arange(5)
    close(model.decode(tokens, None, first), reference(input_ids=tokens, position_ids=positions).last_hidden_state)


@pytest.mark.parametrize("beam", [1, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("kind", "ends"), [("gpt", [0]), ("llama", [0]), ("llama", [0, 41, 17])])
@torch.no_grad()
def test_what_is_written_is_what_generate_writes(kind: str, ends: list[int], beam: int, tmp_path: Path) -> None:
    """Catches a cache that differs from the full forward pass, a wrong EOS, and padding that shifts positions."""
    reference = gpt(n_layer=2, tie_word_embeddings=False) if kind == "gpt" else llama(num_key_value_heads=2)
    reference.lm_head.weight.normal_(std=0.6, generator=torch.Generator().manual_seed(3))
    reference.lm_head.weight[0] *= 4.0  # so that some sequences end
    reference.generation_config.eos_token_id = ends
    write_word_level(tmp_path / "hf", SIZE, {"eos_token": "<end>"})
    bundle = imported(reference, tmp_path / "hf")
    generator = torch.Generator().manual_seed(1)
    prompts = [torch.randint(1, SIZE, (n,), generator=generator).tolist() for n in (5, 1, 9, 3, 2, 7, 4, 8)]
    search = Search(beam, length_normalization(1.0), limit_ends=True)
    requests = [Request(prompt[:-1], 25, decoder_start_token_id=prompt[-1]) for prompt in prompts]
    actual = search_all(bundle.model, requests, search, special_tokens=bundle.tokenizers.source.special_tokens)  # pyright: ignore[reportArgumentType]
    ended: list[bool] = []
    distinct_tokens: set[int] = set()
    for prompt, (best,) in zip(prompts, actual, strict=True):
        expected = reference.generate(
            torch.tensor([prompt]), num_beams=beam, do_sample=False, max_new_tokens=25, length_penalty=1.0,
            early_stopping=True, pad_token_id=0,
        )[0, len(prompt) :].tolist()  # fmt: skip
        end = next((position for position, token in enumerate(expected) if token in ends), None)
        ended.append(end is not None)
        assert best.tokens == expected[:end]
        assert best.finished == ended[-1]
        distinct_tokens |= {*best.tokens}
    assert len(distinct_tokens) > 10, "the model only repeats a few tokens"
    assert True in ended
    assert False in ended


REPETITIONS: dict[str, dict[str, Any]] = {
    "penalty": {"repetition_penalty": 1.4}, "reward": {"repetition_penalty": 0.8},
    "bigrams": {"no_repeat_ngram_size": 2},
    "both": {"repetition_penalty": 1.2, "no_repeat_ngram_size": 3},
}  # fmt: skip


@pytest.mark.parametrize("name", REPETITIONS)
@pytest.mark.parametrize("beam", [1, 3])
@torch.no_grad()
def test_repetitions_of_prompt_and_text_are_those_of_transformers(name: str, beam: int, tmp_path: Path) -> None:
    """Catches a penalty on log-probabilities, a prompt that does not count, and settings of a folder that are ignored.

    Without an end, all texts have the same length, so that nothing depends on how lengths are compared.
    """
    reference = gpt(eos_token_id=None, bos_token_id=None)
    write_word_level(tmp_path / "hf", SIZE, {"unk_token": "<unk>"})
    reference.save_pretrained(tmp_path / "hf")
    prompts = [[5, 9, 7, 5, 9], [11], [8, 8, 30]]
    texts = [" ".join(f"w{token - 1}" for token in prompt) for prompt in prompts]
    (tmp_path / "hf" / "generation_config.json").write_text(json.dumps(REPETITIONS[name]))
    search = Search(beam, length_normalization(0.0), "exhaustive")
    asked = search.with_defaults(**{key.removesuffix("_size"): value for key, value in REPETITIONS[name].items()})
    generator = transformer.load(tmp_path / "hf", search=search, precision="float32")
    plain = transformer.load(tmp_path / "hf", search=search.with_defaults(1, 0), precision="float32")
    assert isinstance(generator, Generator)
    assert isinstance(plain, Generator)
    assert generator.search.repetition_penalty == asked.repetition_penalty
    expected: list[list[int]] = []
    for prompt in prompts:
        output = reference.generate(
            torch.tensor([prompt]), num_beams=beam, do_sample=False, max_new_tokens=20, length_penalty=0.0,
            early_stopping="never" if beam > 1 else None, suppress_tokens=[0], **REPETITIONS[name],
        )  # fmt: skip
        expected.append(output[0, len(prompt) :].tolist())
    assert [list(best.tokens) for best, *_ in generator.generate(texts, max_tokens=20)] == expected
    assert [list(best.tokens) for best, *_ in plain.generate(texts, max_tokens=20)] != expected
    if beam == 1:
        assert (
            "".join(generator.stream(texts[0], max_tokens=20))
            == generator.generate(texts[:1], max_tokens=20)[0][0].text
        )
        again = tmp_path / "again"
        write_published(read_published(tmp_path / "hf"), again)
        written = json.loads((again / "generation_config.json").read_text())
        assert REPETITIONS[name].items() <= written.items()


@pytest.mark.parametrize("prefix", [False, True])
def test_byte_pairs_of_two_files_are_those_of_transformers(*, prefix: bool, tmp_path: Path) -> None:
    """Catches a missing or surplus leading space, and added tokens that are split into pieces."""
    merges = ["t h", "th e", "Ġ the", "Ġ c", "a t", "Ġc at"]
    pieces = [*sorted(ByteLevel.alphabet()), *(pair.replace(" ", "") for pair in merges), "<|endoftext|>"]
    config = GPT2Config(**{**SIZES, **SPECIAL_TOKENS, "vocab_size": len(pieces) + 2})
    randomized(GPT2LMHeadModel(config)).save_pretrained(tmp_path)
    vocabulary = {piece: token for token, piece in enumerate(pieces)}
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n", encoding="utf-8")
    settings = {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": prefix}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    reference, tokenizer = AutoTokenizer.from_pretrained(tmp_path), read_published(tmp_path).tokenizers.source
    for text in ("the cat", " the cat", "", "Ähre\n the"):
        assert tokenizer.encode(text) == reference(text)["input_ids"]
    added = {"<|user|>": len(pieces), "<|model|>": len(pieces) + 1}
    (tmp_path / "added_tokens.json").write_text(json.dumps(added), encoding="utf-8")
    reference, tokenizer = AutoTokenizer.from_pretrained(tmp_path), read_published(tmp_path).tokenizers.source
    assert tokenizer.encode("<|user|>the cat<|model|> a") == reference("<|user|>the cat<|model|> a")["input_ids"]
    for overrides, message in (({"add_bos_token": True}, "add_bos_token in"), (
        {"added_tokens_decoder": {"300": {"content": "<|user|>"}}}, "would be token 263, but is 300"
    )):  # fmt: skip
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({**settings, **overrides}), encoding="utf-8")
        with pytest.raises(BundleError, match=message):
            read_published(tmp_path)


@pytest.mark.parametrize("make_reference", [gpt, llama])
def test_what_is_exported_writes_on_as_far_as_positions_reach(make_reference: Any, tmp_path: Path) -> None:
    """Catches an export for which `generate` stops after 20 tokens or does not know the EOS token."""
    write_word_level(tmp_path / "hf", SIZE, {"eos_token": "<end>"})
    write_published(imported(make_reference(), tmp_path / "hf"), tmp_path / "out")
    generation_config = AutoModelForCausalLM.from_pretrained(tmp_path / "out").generation_config
    assert (generation_config.max_length, generation_config.eos_token_id, generation_config.bos_token_id) == (40, 0, 0)


@pytest.mark.slow
@torch.no_grad()
def test_what_is_never_written_here_is_not_written_after_an_export(tmp_path: Path) -> None:
    """Catches an export for which `generate` produces padding or the token that begins texts."""
    reference = gpt(bos_token_id=7, pad_token_id=5, tie_word_embeddings=False)
    reference.lm_head.weight.normal_(std=0.6, generator=torch.Generator().manual_seed(3))
    write_word_level(tmp_path / "hf", SIZE, {"eos_token": "<end>"})
    bundle = imported(reference, tmp_path / "hf")
    write_published(bundle, tmp_path / "out")
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    bad_words_ids, n_with_bad_words = exported.generation_config.bad_words_ids, 0
    for start in range(8, 40):
        prompt = torch.tensor([[start]])
        request, special_tokens = Request([], 20, decoder_start_token_id=start), SpecialTokenIds(5, 7, 0, None)
        (hypotheses,) = search_all(bundle.model, [request], Search(), special_tokens=special_tokens)  # pyright: ignore[reportArgumentType]
        expected = exported.generate(prompt, do_sample=False, max_new_tokens=20)[0, 1:].tolist()
        assert hypotheses[0].tokens == (expected[: expected.index(0)] if 0 in expected else expected)
        unsuppressed = exported.generate(prompt, max_new_tokens=20, bad_words_ids=None)[0].tolist()
        n_with_bad_words += bool({5, 7} & {*unsuppressed})
    assert sorted(bad_words_ids) == [[5], [7]]
    assert n_with_bad_words, "the suppressed tokens would not have been generated anyway"


def test_generation_settings_decide_what_ends_a_text(tmp_path: Path) -> None:
    """Catches ends that only one of two files names, an export that loses them, and EOS that a text goes on after."""
    gpt().save_pretrained(tmp_path)
    write_word_level(tmp_path, SIZE, {"eos_token": "<end>"})
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    for in_config, in_generation, expected in [
        (0, [0, 41], (0, 41)), (0, [41, 0], (0, 41)), ([0, 41], None, (0, 41)), (0, [41, 17], (41, 17)), (0, None, (0,))
    ]:  # fmt: skip
        (tmp_path / "config.json").write_text(json.dumps({**config, "eos_token_id": in_config}), encoding="utf-8")
        (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": in_generation}), encoding="utf-8")
        bundle = read_published(tmp_path)
        assert bundle.tokenizers.source.special_tokens.ends == expected
        restored = HuggingFaceTokenizer.from_json(bundle.tokenizers.source.to_json())
        assert restored.special_tokens.ends == expected
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        write_published(bundle, tmp_path / "out")
        assert read_published(tmp_path / "out").tokenizers.source.special_tokens.ends == expected


def test_a_setting_that_nothing_looks_at_is_refused(tmp_path: Path) -> None:
    """Catches an unknown setting that changes the computation; settings that are off or for training only pass."""
    gpt().save_pretrained(tmp_path)
    write_word_level(tmp_path, SIZE, {"eos_token": "<end>"})
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    harmless = {"scaled_residual": False, "layer_scale": None, "_note": "x", "initializer_range": 0.5}
    for extra, is_harmless in ((harmless, True), ({"scaled_residual": True}, False), ({"layer_scale": 0.1}, False)):
        (tmp_path / "config.json").write_text(json.dumps(config | extra), encoding="utf-8")
        if is_harmless:
            read_published(tmp_path)
            continue
        ((name, value),) = extra.items()
        with pytest.raises(BundleError, match=rf"settings that are not known here: {name}={value}; remove those that"):
            read_published(tmp_path)


def test_what_is_not_known_is_refused(tmp_path: Path) -> None:
    """Catches a setting that is silently ignored, so that the model would compute something else."""
    for number, (model, message) in enumerate((
        (gpt(add_cross_attention=True), "add_cross_attention=True is not known"),
        (llama(rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}), "rope_type='linear' is not"),
        (llama(hidden_act="relu"), "hidden_act='relu' is not known"),
        (llama(is_causal=False), "is_causal=False is not known"),
        (llama(sliding_window=8), "sliding_window=8 is not known"),
        (llama(layer_types=["sliding_attention"] * 3), "layer_types=.* are not known"),
        (gpt(quantization_config={"bits": 4}), "quantization_config=.* is not known"),
    )):  # fmt: skip
        write_word_level(tmp_path / str(number), SIZE, {"eos_token": "<end>"})
        with pytest.raises(BundleError, match=message):
            imported(model, tmp_path / str(number))
