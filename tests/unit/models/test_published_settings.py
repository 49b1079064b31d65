"""Settings, special token ids and parameter names of published folders, as other tools write them."""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, GPT2Config, LlamaConfig, MarianConfig, T5Config, ViTConfig

from transformer.bundle import Bundle
from transformer.bundle.huggingface import infer_model_type, read_published, write_published
from transformer.errors import BundleError
from transformer.models import family
from transformer.models.huggingface.config_audit import AuditedConfig
from transformer.models.huggingface.key_mapping import unwrap
from transformer.tokenizers.config import TokenizerConfig
from transformer.tokenizers.pair import TokenizerPair, train_tokenizer

NOTED: dict[str, Any] = {
    "is_llama_config": True, "max_sequence_length": 64, "unsloth_fixed": True, "unsloth_version": "2024.9",
    "transformers.js_config": {"dtype": "q4"}, "loss_type": "ForCausalLM", "condition_on_chain": True,
    "condition_on_species": True, "sbert_ce_default_activation_function": "torch.nn.Sigmoid", "neftune_noise_alpha": 5,
    "original_max_position_embeddings": 8192, "attn_implementation_internal": "eager",
}  # fmt: skip
CHANGING: dict[str, Any] = {
    "sliding_window_size": 8, "rope_interleaved": True, "rotary_pct": 0.25, "partial_rotary_factor": 0.5,
    "embedding_multiplier": 12.0, "residual_multiplier": 0.2, "logits_scaling": 8.0, "logit_scale": 0.06,
    "final_logit_softcapping": 30.0, "attn_logit_softcapping": 50.0, "query_pre_attn_scalar": 256, "clip_qkv": 8.0,
    "scale_emb": 12, "scale_depth": 1.4, "use_qk_norm": True, "qk_layernorm": True, "alibi": True, "use_alibi": True,
    "position_embedding_type": "relative_key", "relative_attention": True, "attention_type": "block_sparse",
    "attention_window": [64], "no_rope_layers": [1, 0], "num_local_experts": 8, "moe_intermediate_size": 8,
    "use_bidirectional_attention": True, "hidden_activation": "gelu_pytorch_tanh", "use_parallel_residual": True,
    "normalize_before": True, "layer_scale": 0.1, "scaled_residual": True,  "mup_base_shapes": "x",
    "pruned_heads": {"1": [0]},
    "quantization_config": {"bits": 4}, "auto_map": {"AutoModel": "modeling.Model"}, "token_dropout": True,
    "num_register_tokens": 4, "use_swiglu_ffn": True, "multi_query": True, "prefix": "translate: ",
}  # fmt: skip
NEUTRAL: dict[str, Any] = {
    "rope_interleaved": False, "sliding_window_size": None, "embedding_multiplier": 1.0, "ssm_multipliers": [1.0, 1.0],
    "logit_scale": 1, "position_embedding_type": "absolute", "attention_type": "full", "pruned_heads": {},
    "num_local_experts": 0, "partial_rotary_factor": 1.0,
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a published GPT with a vocabulary of characters."""
    tokenizer = train_tokenizer(["abcdefgh \n"], TokenizerConfig(kind="characters"))
    gpt = family("gpt")
    config = gpt.config.model_validate(
        {"vocab_size": tokenizer.vocab_size, "d_model": 8, "N": 1, "h": 2, "seq_len": 8, "bos_id": 1, "eos_id": 2}
    )
    torch.manual_seed(1)
    folder = tmp_path_factory.mktemp("published") / "gpt"
    write_published(Bundle(config, gpt.build(config), TokenizerPair(tokenizer, tokenizer)), folder)
    return folder


def changed(folder: Path, copy: Path, file: str = "config.json", **settings: Any) -> Path:
    """Copies a published folder with other settings; those that are `...` are removed."""
    copy.mkdir(exist_ok=True)
    for path in folder.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    content = json.loads((copy / file).read_text()) | settings
    (copy / file).write_text(json.dumps({name: value for name, value in content.items() if value is not ...}))
    return copy


@pytest.mark.parametrize("name", NOTED)
def test_settings_that_nothing_computes_with_are_noted(name: str) -> None:
    """Catches a folder that is refused for a setting of another tool."""
    assert AuditedConfig({name: NOTED[name]}).check_all_read() == [name]


@pytest.mark.parametrize("name", CHANGING)
def test_settings_that_change_the_computation_are_refused(name: str) -> None:
    """Catches a model that silently computes something else."""
    with pytest.raises(BundleError, match=rf"settings that are not known here: {name}=.*; remove those that do not"):
        AuditedConfig({name: CHANGING[name]}).check_all_read()
    read = AuditedConfig({name: CHANGING[name]})
    assert read[name] == CHANGING[name]
    assert read.check_all_read() == []


@pytest.mark.parametrize("name", NEUTRAL)
def test_settings_that_are_off_are_silent(name: str) -> None:
    """Catches a note, or a refusal, for every setting that another family leaves off."""
    assert [unread for unread in AuditedConfig({name: NEUTRAL[name]}).check_all_read() if unread != name] == []


@pytest.mark.parametrize("name", ["bert", "gpt", "llama", "marian", "t5", "vit"])
def test_settings_of_every_family_are_no_news(name: str) -> None:
    """Catches a note about a setting that our own export writes."""
    published = family(name).weights()
    config = family(name).config.model_validate({"vocab_size": 9} if name in ("bert", "gpt", "llama", "t5") else {})
    if name == "marian":
        config = config.model_copy(update={"src_vocab_size": 58_102, "tgt_vocab_size": 58_102})
    audited = AuditedConfig(published.write_config(config))
    files = {"vocab.json": b'{"<unk>": 1}'}
    published.read_config(type(config), audited, files, [])
    assert audited.check_all_read() == []


def test_a_note_names_file_and_settings(folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Catches settings that are passed over silently, in more than a line, or with control characters."""
    copy = changed(folder, tmp_path / "copy", unsloth_version="x", **{"a\x1b[2J\nb": 1})
    with caplog.at_level(logging.WARNING, "transformer"):
        read_published(copy)
    (message,) = [record.getMessage() for record in caplog.records]
    assert message == (
        f"note: {copy / 'config.json'} has settings that nothing here computes with: unsloth_version, a\\x1b[2J b"
    )


@pytest.mark.parametrize("settings", [{"eos_token_id": 50256, "bos_token_id": 50256}, {"eos_token_id": -1},
                                      {"eos_token_id": [50256, 50257]}, {"pad_token_id": -1}])  # fmt: skip
def test_ids_beyond_the_vocabulary_are_no_tokens(
    settings: dict[str, Any], folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Catches a small GPT-2 that is refused for 50256, which its configuration inherited."""
    copy = changed(folder, tmp_path / "copy", **settings)
    (copy / "generation_config.json").write_text(json.dumps(settings))
    config = read_published(copy).config.model_dump()
    for name, value in settings.items():
        assert config[name.replace("token_", "")] is None
        assert f"{name}={value} in config.json is none of the" in caplog.text
    (copy / "generation_config.json").write_text('{"eos_token_id": [50256, 7]}')
    assert read_published(copy).config.model_dump()["eos_id"] == 7


def test_one_end_of_several_is_in_the_vocabulary(folder: Path, tmp_path: Path) -> None:
    """Catches a list that is refused although only one of its tokens exists."""
    copy = changed(folder, tmp_path / "copy", eos_token_id=[2, 50256])
    assert read_published(copy).config.model_dump()["eos_id"] == 2


def test_a_decoder_needs_the_token_it_starts_with() -> None:
    """Catches a translator that starts with a token it lacks."""
    t5 = family("t5")
    with pytest.raises(
        BundleError, match=r"decoder_start_token_id=300 is none of the 200 tokens of the model, which n"
    ):
        t5.weights().read_config(t5.config, {"vocab_size": 200, "decoder_start_token_id": 300}, {}, [])


def test_the_type_follows_from_the_architecture(folder: Path, tmp_path: Path) -> None:
    """Catches a folder that is refused although its class says what it is."""
    assert read_published(changed(folder, tmp_path / "copy", model_type=...)).family == "gpt"
    for name, model_type in (("BertForMaskedLM", "bert"), ("LlamaForCausalLM", "llama"), ("MarianMTModel", "marian"),
                             ("T5ForConditionalGeneration", "t5"), ("ViTModel", "vit")):  # fmt: skip
        assert infer_model_type({"architectures": [name]}) == model_type
    assert infer_model_type({"architectures": ["BertModel"], "model_type": "gpt2"}) == "gpt2"
    with pytest.raises(BundleError, match="no model_type, and architectures='WhisperModel' is not known; only Bert"):
        infer_model_type({"architectures": ["WhisperModel"]})
    older = {"hidden_size": 256, "num_hidden_layers": 12, "type_vocab_size": 2, "layer_norm_eps": 1e-12}
    with pytest.raises(BundleError, match=r'neither model_type nor architectures; add "model_type": "bert" to it if'):
        infer_model_type(older)
    with pytest.raises(BundleError, match="neither model_type nor architectures; add a model_type to it, one of bert"):
        infer_model_type({"sampling_rate": 16000})


@pytest.mark.parametrize("wrap", ["_orig_mod.{}", "module.{}", "module._orig_mod.{}"])
def test_names_of_wrapped_models_are_unwrapped(wrap: str, folder: Path, tmp_path: Path) -> None:
    """Catches weights of a compiled or distributed model that are refused by their prefix."""
    copy = changed(folder, tmp_path / "copy")
    tensors = load_file(copy / "model.safetensors")
    save_file({wrap.format(name): tensor for name, tensor in tensors.items()}, copy / "model.safetensors")
    expected, actual = (read_published(path).model.state_dict() for path in (folder, copy))
    assert all(torch.equal(actual[name], tensor) for name, tensor in expected.items())


def test_wrappers_inside_a_name_and_doubled_names() -> None:
    """Catches a part of a model that was compiled, and two values for one parameter."""
    ones, zeros = torch.ones(1), torch.zeros(1)
    assert unwrap({"model._orig_mod.layers.0.weight": ones}) == {"model.layers.0.weight": ones}
    assert unwrap({"submodule.weight": ones}) == {"submodule.weight": ones}
    with pytest.raises(BundleError, match=r"module\.a and a are the same parameter"):
        unwrap({"a": zeros, "module.a": ones})
    with pytest.raises(BundleError, match=r"module\.a and _orig_mod\.a are the same parameter"):
        unwrap({"_orig_mod.a": zeros, "module.a": ones})


def test_a_refusal_names_commands_folder_file_and_remedy(folder: Path, tmp_path: Path) -> None:
    """Catches a message that leaves the reader to guess which folder, and what still works."""
    copy = changed(folder, tmp_path / "copy", sliding_window=8)
    with pytest.raises(BundleError) as refusal:
        read_published(copy)
    assert str(refusal.value) == (
        f"none of generate, perplexity, info and import can read {copy}: config.json: sliding_window=8 is not known; "
        "only None is; run this model with another program, e.g. transformers"
    )
    (copy / "model.safetensors").unlink()
    with pytest.raises(BundleError, match=rf"can read {copy}: it has no model\.safetensors; copy the whole folder"):
        read_published(copy)


@pytest.mark.parametrize(("name", "is_causal"), [("bert", True), ("vit", True), ("gpt", False), ("llama", False)])
def test_attention_of_the_other_direction_is_refused(name: str, *, is_causal: bool) -> None:
    """Catches an encoder that attends to the left alone, and a language model that looks ahead."""
    published = family(name).weights()
    published.read_config(family(name).config, {"is_causal": not is_causal}, {}, [])
    with pytest.raises(BundleError, match=f"is_causal={is_causal} is not known"):
        published.read_config(family(name).config, {"is_causal": is_causal}, {}, [])


CLASSES: dict[str, type[Any]] = {
    "bert": BertConfig, "gpt": GPT2Config, "llama": LlamaConfig, "marian": MarianConfig, "t5": T5Config,
    "vit": ViTConfig,
}  # fmt: skip
HEADS = {
    "bert": ["bert.pooler.dense.weight", "classifier.weight"],
    "vit": ["vit.pooler.dense.weight", "classifier.weight"],
}
"""Names of parameters that make a reader read all of its settings."""
LEFT_OUT = {
    "gpt": {"d_ff": lambda config: 4 * config["d_model"]},
    "llama": {"kv_heads": lambda config: config["h"], "d_k": lambda config: config["d_model"] // config["h"]},
    "t5": {"decoder_layers": lambda config: config["N"]},
}
"""What the settings are that a configuration may leave to others of it."""
LESS_PUBLISHED = {"llama": {"dropout"}, "t5": {"n_positions"}}
"""Settings with a default here that `transformers` does not know, or no longer."""


class Asked(dict[str, Any]):
    """A configuration that records which settings a reader asks for."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        super().__init__(content)
        self.names: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        """Returns a setting and records its name."""
        self.names.add(name)
        return super().get(name, default)


def read_settings(name: str, published: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what is read from a configuration, with the settings that it leaves to others filled in."""
    files = {"vocab.json": b'{"<unk>": 1}'}
    config = family(name).weights().read_config(family(name).config, published, files, HEADS.get(name, [])).model_dump()
    filled = {our_name: value(config) for our_name, value in LEFT_OUT.get(name, {}).items() if config[our_name] is None}
    return config | filled


@pytest.mark.parametrize("name", CLASSES)
def test_defaults_are_those_of_transformers(name: str) -> None:
    """Catches a setting that is absent from config.json and read as another value than its writer meant."""
    asked, reference = Asked({}), CLASSES[name]()
    ours = read_settings(name, asked)
    known = {setting for setting in asked.names if hasattr(reference, setting)}
    fmt = family(name).weights()
    assert {hf_name for hf_name, _ in {**fmt.settings, **fmt.ids}.values()} - known <= (
        LESS_PUBLISHED.get(name, set()) | {"decoder_start_token_id"}
    )
    for setting in sorted(known):
        assert read_settings(name, {setting: getattr(reference, setting)}) == ours, setting
    assert read_settings(name, {setting: getattr(reference, setting) for setting in known}) == ours


def test_defaults_by_hand() -> None:
    """Catches a default changed here and in `transformers` alike: published folders of all years rely on these."""
    assert read_settings("bert", {})["eps"] == 1e-12
    assert read_settings("llama", {})["eps"] == 1e-6
    assert read_settings("gpt", {})["eps"] == 1e-5
    assert read_settings("marian", {})["scale_embedding"] is False
    assert read_settings("t5", {})["max_distance"] == 128
    assert read_settings("t5", {})["start_id"] == 0
