"""ViT: reads published folders written by the transformers package and compares the computations."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import (
    BitImageProcessorPil,
    DeiTImageProcessorPil,
    ViTConfig,
    ViTForImageClassification,
    ViTForMaskedImageModeling,
    ViTImageProcessorPil,
    ViTModel,
)

from parity.published import assert_round_trip, close, close_inside, imported, outputs_of, randomized
from transformer.bundle import Bundle
from transformer.bundle.huggingface import read_published, write_published
from transformer.errors import BundleError
from transformer.models import family
from transformer.models.vit.model import Vit
from transformer.pipelines.classification import image_processor

SIZES: dict[str, Any] = {
    "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 37, "image_size": 12,
    "patch_size": 4,
}  # fmt: skip
MODELS: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "plain": (ViTModel, {}, {}),
    "without pooler, no biases": (ViTModel, {"qkv_bias": False, "layer_norm_eps": 1e-3}, {"add_pooling_layer": False}),
    "another pooler": (ViTModel, {"pooler_output_size": 7, "pooler_act": "relu"}, {}),
    "grey, oblong": (ViTModel, {"num_channels": 1, "image_size": [10, 15], "patch_size": [3, 5]}, {}),
    "classification": (ViTForImageClassification, {"id2label": {0: "cat", 1: "dog"}, "hidden_act": "gelu_new"}, {}),
}


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_hidden_states_and_heads_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    """Catches patches in another order, a misnamed matrix, and a wrong activation, epsilon or pooler."""
    model_class, overrides, load_options = MODELS[name]
    reference = randomized(model_class(ViTConfig(**{**SIZES, **overrides}), **load_options))
    bundle = imported(reference, tmp_path / "hf")
    model, config = bundle.model, bundle.config.model_dump()
    assert isinstance(model, Vit)
    images = torch.randn(3, config["channels"], *config["image_size"])
    expected = reference(pixel_values=images, output_hidden_states=True)
    with outputs_of(model.encoder.layers) as layer_outputs:
        encoded = model.encode(images)
    close_inside(layer_outputs, expected.hidden_states)
    if model_class is ViTModel:
        close(encoded, expected.last_hidden_state)
    else:
        close(model.label_logits(images), expected.logits)
        assert config["labels"] == ("cat", "dog")
    if model.pooler:
        close(model.pooled(encoded), expected.pooler_output)
    reloaded = assert_round_trip(bundle, tmp_path, lambda folder: model_class.from_pretrained(folder, **load_options))
    actual = reloaded(pixel_values=images)
    for actual_output, expected_output in zip(actual.to_tuple(), expected.to_tuple(), strict=False):
        if isinstance(actual_output, torch.Tensor):
            close(actual_output, expected_output)


@pytest.mark.parametrize(
    ("settings", "reference"),
    [
        ({"mean": (0.5,)}, ViTImageProcessorPil),
        ({"mean": (0.485, 0.456, 0.406), "resampling": "lanczos"}, ViTImageProcessorPil),
        ({"resized": (14, 20), "resampling": "bicubic"}, DeiTImageProcessorPil),
        ({"resized": 17, "resampling": "bicubic"}, BitImageProcessorPil),
    ],
    ids=["stretched", "by channel", "center", "center by the shorter edge"],
)
def test_images_are_made_ready_as_by_transformers(settings: dict[str, Any], reference: Any, tmp_path: Path) -> None:
    """Catches another size, filter, crop, scale, mean or order of channels in an export, or after a round trip."""
    model_family = family("vit")
    config = model_family.config.model_validate(
        {"image_size": (10, 15), "patch_size": (5, 5), "channels": 3, "d_model": 8, "N": 2, "h": 2, **settings}
    )
    write_published(Bundle(config, model_family.build(config), None), tmp_path / "hf")
    pixels = np.random.default_rng(1).integers(0, 256, (40, 31, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "photo.png")
    restored = read_published(tmp_path / "hf").config
    assert restored.model_dump() == config.model_dump()
    processor = image_processor(restored)
    expected = reference.from_pretrained(tmp_path / "hf")(Image.open(tmp_path / "photo.png"), return_tensors="pt")
    close(processor.normalize([processor.read(tmp_path / "photo.png")]), expected["pixel_values"])


def test_nested_settings_of_images_are_read(tmp_path: Path) -> None:
    """Catches processor_config.json, which transformers 5 reads, ignored, and faults in it unnoticed."""
    ViTModel(ViTConfig(**SIZES)).save_pretrained(tmp_path)
    means = [0.1] * SIZES.get("num_channels", 3)
    settings = {"image_processor_type": "ViTImageProcessor", "image_mean": means, "image_std": [0.2] * len(means)}
    nested = tmp_path / "processor_config.json"
    nested.write_text(json.dumps({"image_processor": settings}), encoding="utf-8")
    (tmp_path / "preprocessor_config.json").write_text('{"image_mean": [9], "image_std": [9]}', encoding="utf-8")
    config = read_published(tmp_path).config.model_dump()
    assert (config["mean"], config["deviation"]) == ((0.1,), (0.2,))
    nested.write_text(json.dumps({"image_processor": {**settings, "do_pad": True}}), encoding="utf-8")
    with pytest.raises(BundleError, match=r"[ /]processor_config.json: do_pad=True is not known"):
        read_published(tmp_path)


def test_what_is_not_known_is_refused(tmp_path: Path) -> None:
    """Catches a head that is silently ignored, and pickled weights."""
    with pytest.raises(BundleError, match="architectures='ViTForMaskedImageModeling' is not known"):
        imported(ViTForMaskedImageModeling(ViTConfig(**SIZES, encoder_stride=4)), tmp_path / "hf")
    model = ViTModel(ViTConfig(**SIZES))
    model.save_pretrained(tmp_path / "other")
    for name, value in (("image_processor_type", "CLIPImageProcessor"), ("do_pad", True), ("rescale_offset", True)):
        (tmp_path / "other" / "preprocessor_config.json").write_text(json.dumps({name: value}), encoding="utf-8")
        with pytest.raises(BundleError, match=f"{name}=.* is not known"):
            imported_from(tmp_path / "other")
    model.save_pretrained(tmp_path / "pickled")
    (tmp_path / "pickled" / "model.safetensors").rename(tmp_path / "pickled" / "pytorch_model.bin")
    with pytest.raises(BundleError, match="pickled weights alone"):
        imported_from(tmp_path / "pickled")


def test_shards_are_read(tmp_path: Path) -> None:
    """Catches a part of the weights that is left out."""
    reference = randomized(ViTModel(ViTConfig(**SIZES)))
    bundle = imported(reference, tmp_path / "hf", max_shard_size="20KB")
    assert len(list((tmp_path / "hf").glob("*.safetensors"))) > 1
    images = torch.randn(2, 3, 12, 12)
    with torch.no_grad():
        close(bundle.model.encode(images), reference(pixel_values=images).last_hidden_state)  # pyright: ignore[reportCallIssue]


def imported_from(folder: Path) -> Any:
    """Reads the model of a folder."""
    from transformer.bundle.huggingface import read_published

    return read_published(folder)
