"""Published models that cannot be imported are refused, with the reason and a remedy."""

import json
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from transformer.bundle import Bundle
from transformer.bundle.huggingface import read_published, read_tensors, write_published
from transformer.errors import BundleError
from transformer.models import family
from transformer.models.bert.weights import FORMAT as BERT
from transformer.models.huggingface.config_audit import AuditedConfig
from transformer.models.huggingface.key_mapping import (
    ParameterMapping,
    check_size,
    from_published,
    map_choice,
    read_labels,
)
from transformer.models.llama.weights import FORMAT as LLAMA
from transformer.models.vit.weights import FORMAT as VIT


def test_published_settings_and_parameters_out_of_bounds() -> None:
    """Catches a damaged configuration that exhausts memory, and two matrices that are loaded as one."""
    with pytest.raises(BundleError, match="hidden_size=-3 is not a size of a model"):
        check_size({"hidden_size": -3}, "hidden_size", 10)
    for name, value in (("hidden_size", 10**8), ("num_hidden_layers", 10**4), ("head_dim", 10**9)):
        with pytest.raises(BundleError, match=f"{name}={value} is not a size"):
            LLAMA.read_config(family("llama").config, {name: value}, {}, [])
    with pytest.raises(BundleError, match="hidden_act='sine' is not known; only relu are"):
        map_choice({"hidden_act": "sine"}, "hidden_act", {"relu": "relu"}, "relu")
    table = [ParameterMapping("a", ("x",), aliases=("b",))]
    with pytest.raises(BundleError, match="a, b differ"):
        from_published(table, {"a": torch.zeros(2), "b": torch.ones(2)})
    for rope in ({"rope_type": "llama3"}, {"rope_type": "llama3", "factor": 8.0}):
        with pytest.raises(BundleError, match=r"needs .*original_max_position_embeddings"):
            LLAMA.read_config(family("llama").config, {"rope_parameters": rope}, {}, [])
    many = {f"p{number:02d}": torch.zeros(1) for number in range(12)}
    with pytest.raises(BundleError, match=r"missing: a; unknown: p00, .*p07 and 4 more"):
        from_published(table, many)
    with pytest.raises(BundleError, match="rescale_factor=2 is not known"):
        VIT.read_settings({}, [], {"preprocessor_config.json": b'{"rescale_factor": 2}'})
    for wrong, message in (
        (b'{"do_normalize": false}', "do_normalize=False is not known"),
        (b'{"do_center_crop": true, "crop_size": 99}', "crop_size=99 in .* is not image_size=224"),
        (b'{"resample": 9}', "resample=9 is not known"),
        (b'{"size": 99}', "size=99 in .* is not image_size=224"),
        (b'{"size": {"shortest_edge": 256}}', "size=.* is not image_size=224"),
        (b'{"size": {"longest_edge": 256}, "do_center_crop": true}', "only height and width or shortest_edge"),
        (b'{"image_processor_type": "DeiTImageProcessor", "resample": 3}', "crop_size, do_center_crop, .* missing"),
    ):
        with pytest.raises(BundleError, match=message):
            VIT.read_settings({}, [], {"preprocessor_config.json": wrong})
    with pytest.raises(BundleError, match="architectures='BertForTokenClassification' is not known"):
        BERT.read_settings({"architectures": ["BertForTokenClassification"]}, [], {})
    with pytest.raises(BundleError, match="num_labels=1: a model with one output"):
        BERT.read_settings({"num_labels": 1}, ["classifier.weight"], {})
    modules = b'[{"type": "sentence_transformers.models.Pooling"}]'
    with pytest.raises(BundleError, match=r"1_Pooling/config\.json, which modules\.json names, is missing"):
        BERT.read_settings({}, [], {"modules.json": modules})
    newer = {"modules.json": modules, "1_Pooling/config.json": b'{"pooling_mode": "cls"}'}
    assert BERT.read_settings({}, [], newer)["embedding"] == "first"
    with pytest.raises(BundleError, match=r"asks for lasttoken"):
        BERT.read_settings({}, [], {**newer, "1_Pooling/config.json": b'{"pooling_mode": "lasttoken"}'})
    with pytest.raises(BundleError, match="lower-cases texts beside the tokenizer"):
        BERT.read_settings({}, [], {"sentence_bert_config.json": b'{"do_lower_case": true}'})
    with pytest.raises(ValueError, match="text_tokens=600 exceeds the 512 positions"):
        family("bert").config.model_validate({"text_tokens": 600})
    pooling = {"1_Pooling/config.json": b'{"pooling_mode_max_tokens": true}'}
    with pytest.raises(BundleError, match="asks for pooling_mode_max_tokens"):
        BERT.read_settings({}, [], pooling)
    config = family("bert").config(vocab_size=9, labels=("a", "b"), labels_read="embedding", pooler=False)
    with pytest.raises(BundleError, match="published models tell labels from the pooler"):
        BERT.write_config(config)
    with pytest.raises(ValueError, match="set pooler=true"):
        family("bert").config(labels=("a", "b"), pooler=False)
    for wrong, message in (
        ({"patch_size": (9, 9)}, "does not fit into image_size"),
        ({"mean": (0.1, 0.2)}, "one of each of the 1 channels"),
        ({"deviation": (0.0,)}, "is not above 0"), ({"h": 5}, "does not divide"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            family("vit").config.model_validate({"image_size": (8, 8), "patch_size": (4, 4), "channels": 1, **wrong})


def test_what_a_folder_says_twice_or_otherwise_is_refused() -> None:
    """Catches two labels with one name, one tensor under two names, and rotary settings that are partly ignored."""
    assert read_labels({"id2label": {"0": "crane", "1": "b", "2": "crane"}}) == ("crane", "b", "crane (2)")
    doubled = {"pooler.dense.weight": torch.zeros(1), "bert.pooler.dense.weight": torch.zeros(1)}
    with pytest.raises(BundleError, match=r"bert\.pooler\.dense\.weight is there twice"):
        BERT.read_weights(family("bert").config(vocab_size=9), doubled)
    rope_settings = {"rope_parameters": {"rope_theta": 1.0}, "rope_scaling": {"rope_theta": 2.0}}
    assert LLAMA.read_settings(rope_settings, [], {})["base"] == 2.0  # like in `transformers`
    for rope in ({"factor": 2.0, "rope_theta": 1.0}, {"partial_rotary_factor": 0.5}):
        with pytest.raises(BundleError, match="factor"):
            LLAMA.read_settings({"rope_parameters": rope}, [], {})
    for generation_config in (b'{"forced_bos_token_id": 3}', b'{"bad_words_ids": [[7]]}'):
        with pytest.raises(BundleError, match=r"in generation_config\.json"):
            LLAMA.read_config(family("llama").config, {}, {"generation_config.json": generation_config}, [])


@pytest.mark.parametrize("name", ["bert", "gpt", "llama", "marian", "t5", "vit"])
def test_models_of_other_classes_are_refused(name: str) -> None:
    """Catches a model that computes another function with the same parameters, or with custom code."""
    published = family(name).weights()
    with pytest.raises(BundleError, match="architectures='BidirectionalModel' is not known"):
        published.read_config(family(name).config, {"architectures": ["BidirectionalModel"]}, {}, [])
    audited = AuditedConfig({"auto_map": {"AutoModel": "modeling.BidirectionalModel"}})
    with pytest.raises(BundleError, match="not known here: auto_map="):
        audited.check_all_read()


@pytest.mark.parametrize("name", ["bert", "gpt", "llama", "t5", "vit"])
def test_null_is_the_default(name: str) -> None:
    """Catches a traceback for settings that are null, which other tools write."""
    config_class, published = family(name).config, family(name).weights()
    names = [published_name for published_name, default in published.settings.values() if not isinstance(default, bool)]
    null_settings = dict.fromkeys([*names, "n_positions", "image_size", "patch_size"])
    assert published.read_config(config_class, null_settings, {}, []) == published.read_config(config_class, {}, {}, [])


def test_weights_that_are_none_are_refused(tmp_path: Path) -> None:
    """Catches NaN, which spreads to every output, and a tensor that is hidden by another part of the weights."""
    index = {"weight_map": {"a": "a.safetensors", "b": "b.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    for part, tensors in (("a", {"a": torch.ones(2)}), ("b", {"b": torch.tensor([1.0, torch.nan])})):
        save_file(tensors, tmp_path / f"{part}.safetensors")
    with pytest.raises(BundleError, match="b holds numbers that are not finite"):
        read_tensors(tmp_path)
    save_file({"a": torch.zeros(2)}, tmp_path / "b.safetensors")
    with pytest.raises(BundleError, match="has a, which another part has too"):
        read_tensors(tmp_path)


def test_tensors_of_other_sizes_than_the_settings_are_named_as_published(tmp_path: Path) -> None:
    """Catches a message that names parameters which the folder lacks; some folders leave out the prefix."""
    kind, folder = family("vit"), tmp_path / "hf"
    config = kind.config(image_size=(8, 8), patch_size=(4, 4), channels=1, d_model=12, N=1, h=2, d_ff=20)
    write_published(Bundle(config, kind.build(config), None), folder)
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {"intermediate_size": 24}))
    tensors = load_file(folder / "model.safetensors")
    for prefix in ("", "vit."):
        save_file({name.removeprefix(prefix): tensor for name, tensor in tensors.items()}, folder / "model.safetensors")
        where = ("vit." if not prefix else "") + "encoder.layer.0.intermediate.dense"
        with pytest.raises(
            BundleError, match=re.escape(f"{where}.bias is (20,), by config.json (24,); {where}.weight")
        ):
            read_published(folder)


def test_labels_beyond_counting_are_refused() -> None:
    """Catches a configuration of a few bytes whose labels exhaust memory."""
    with pytest.raises(BundleError, match="num_labels=10000000000 is not a size of a model"):
        read_labels({"num_labels": 10**10})
