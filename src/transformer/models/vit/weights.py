"""Conversion between the Vision Transformer of this package and the published format."""

import json
from collections.abc import Collection, Mapping
from typing import Final

from transformer.config import JsonObject
from transformer.errors import BundleError
from transformer.models.huggingface.format import HuggingFaceFormat
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
    setting,
    write_labels,
)
from transformer.models.vit.config import VitConfig

ARCHITECTURES: Final = ("ViTModel", "ViTForImageClassification")
SETTINGS: Final = {
    "channels": ("num_channels", 3), "d_model": ("hidden_size", 768), "N": ("num_hidden_layers", 12),
    "h": ("num_attention_heads", 12), "d_ff": ("intermediate_size", 3072), "attention_bias": ("qkv_bias", True),
    "eps": ("layer_norm_eps", 1e-12), "dropout": ("hidden_dropout_prob", 0.0),
    "attention_dropout": ("attention_probs_dropout_prob", 0.0),
}  # fmt: skip
PROCESSOR: Final = "preprocessor_config.json"
NESTED_PROCESSOR: Final = "processor_config.json"
"""File that transformers 5 writes and reads instead, with the settings below `image_processor`."""
CHANNELS: Final = {"mean": "image_mean", "deviation": "image_std"}
EXTRACTORS: Final = ("ViTFeatureExtractor", "DeiTFeatureExtractor")
PROCESSORS: Final = tuple(
    f"{name}ImageProcessor{how}" for name in ("ViT", "DeiT", "Bit") for how in ("", "Fast", "Pil")
)
PROCESSED: Final[dict[str, tuple[object, ...]]] = {
    "do_convert_rgb": (None, True, False), "do_resize": (True,), "do_rescale": (True,), "do_normalize": (True,),
    "image_processor_type": (None, *EXTRACTORS, *PROCESSORS), "feature_extractor_type": (None, *EXTRACTORS),
    "rescale_offset": (False, None),
    "resample": (2, None, 0, 1, 3, 4, 5), "do_center_crop": (False, None, True),
    "rescale_factor": (1 / 255, 0.00392156862745098, None),
}  # fmt: skip
EXPLICIT: Final = {"size", "crop_size", "do_center_crop", "resample", *CHANNELS.values()}
"""Settings that a processor other than ViT's must name, since its defaults differ."""
RESAMPLING: Final = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
"""Names of the filters, by their numbers in Pillow."""
POOLED: Final = {"tanh": "tanh", "relu": "relu", "gelu": "gelu"}


def read_settings(published: JsonObject, names: Collection[str], files: Mapping[str, bytes]) -> dict[str, object]:
    """Reads the settings that need more than another name."""
    sizes = {
        our_name: setting(published, our_name, default)
        for our_name, default in (("image_size", 224), ("patch_size", 16))
    }
    nested: JsonObject = json.loads(files.get(NESTED_PROCESSOR, b"{}")).get("image_processor") or {}
    processor: JsonObject = nested or json.loads(files.get(PROCESSOR, b"{}"))
    place = NESTED_PROCESSOR if nested else PROCESSOR
    check_settings(published, {"problem_type": (None, "single_label_classification"), "is_causal": (False, None)})
    check_architectures(published, ARCHITECTURES)
    check_heads(published, names, {"ViTForImageClassification": ["classifier.weight"]})
    more = {name: (False, None) for name in processor if name.startswith("do_") and name not in PROCESSED}
    check_settings(processor, {**PROCESSED, **more}, place)
    kind = str(processor.get("image_processor_type") or processor.get("feature_extractor_type") or "ViT")
    if not kind.startswith("ViT") and (missing := EXPLICIT - processor.keys()):
        raise BundleError(f"{place}: {', '.join(sorted(missing))} of a {kind} are missing; name them")
    wanted = _pair(sizes["image_size"])
    size = processor.get("size", wanted)
    made = size.get("shortest_edge") if isinstance(size, dict) else None
    made = _pair(size) if made is None else made
    if made is None:
        raise BundleError(f"size={size!r} in {place} is not known; only height and width or shortest_edge are")
    if processor.get("do_center_crop"):
        if _pair(processor.get("crop_size", wanted)) != wanted:
            raise BundleError(
                f"crop_size={processor['crop_size']!r} in {place} is not image_size={sizes['image_size']!r}"
            )
    elif made != wanted:
        raise BundleError(f"size={size!r} in {place} is not image_size={sizes['image_size']!r}, which is not known")
    if "vit.embeddings.mask_token" in names:
        raise BundleError("embeddings.mask_token: models that guess masked patches are not known")
    has_pooler = "vit.pooler.dense.weight" in names
    pooler_size = published.get("pooler_output_size") or setting(published, "hidden_size", 768)
    return {
        **{name: (size, size) if isinstance(size, int) else size for name, size in sizes.items()},
        "resized": None if made == wanted else made,
        "resampling": RESAMPLING[2 if processor.get("resample") is None else processor["resample"]],
        "activation": map_choice(published, "hidden_act", ACTIVATION_NAMES, "gelu"),
        "pooler_size": pooler_size if has_pooler else None,
        "pooler_activation": map_choice(published, "pooler_act", POOLED, "tanh"),
        "labels": read_labels(published) if "classifier.weight" in names else (),
        **{
            our_name: _single_if_equal(processor[hf_name])
            for our_name, hf_name in CHANNELS.items()
            if hf_name in processor
        },
    }


def _pair(size: object) -> list[int] | None:
    """Returns the height and the width of a published size; None if it is another kind of size."""
    if isinstance(size, dict):
        return [size["height"], size["width"]] if {"height", "width"} <= size.keys() else None
    return list(size) if isinstance(size, list | tuple) else [size, size] if isinstance(size, int) else None


def _single_if_equal(numbers: list[float]) -> tuple[float, ...]:
    """Returns a single number if all channels have the same."""
    return tuple(numbers if len(set(numbers)) > 1 else numbers[:1])


def write_settings(config: VitConfig) -> dict[str, object]:
    """Returns the settings that `read_settings` reads."""
    return {
        "architectures": ["ViTForImageClassification" if config.labels else "ViTModel"],
        "image_size": _single_if_square(config.image_size), "patch_size": _single_if_square(config.patch_size),
        "hidden_act": PUBLISHED_ACTIVATIONS[config.activation],
        "pooler_output_size": config.pooler_size or config.d_model, "pooler_act": config.pooler_activation,
        **write_labels(config.labels),
    }  # fmt: skip


def write_files(config: VitConfig) -> dict[str, object]:
    """Returns the settings of image preprocessing."""
    height, width = config.image_size
    mean, deviation = (
        list(values if len(values) == config.channels else values * config.channels)
        for values in (config.mean, config.deviation)
    )
    facts = {"image_processor_type": "ViTImageProcessor", "do_resize": True, "do_rescale": True, "do_normalize": True}
    facts |= {"image_mean": mean, "image_std": deviation, "resample": RESAMPLING.index(config.resampling)}
    size = {"height": height, "width": width}
    if config.resized is None:
        return {PROCESSOR: {**facts, "size": size}}
    crop = {"do_center_crop": True, "crop_size": size}
    if isinstance(config.resized, int):
        by_edge = {"image_processor_type": "BitImageProcessor", "size": {"shortest_edge": config.resized}}
        return {PROCESSOR: {**facts, **crop, **by_edge}}
    stretched = dict(zip(size, config.resized, strict=True))
    return {PROCESSOR: {**facts, **crop, "image_processor_type": "DeiTImageProcessor", "size": stretched}}


def _single_if_square(size: tuple[int, int]) -> int | list[int]:
    """Returns a square size as a single number."""
    return size[0] if size[0] == size[1] else list(size)


def weight_names(config: VitConfig) -> list[ParameterMapping]:
    """Maps the weight names of ViT to the parameters here."""
    entries = [
        ParameterMapping("vit.embeddings.cls_token", ("first",), added_axes=2),
        ParameterMapping("vit.embeddings.position_embeddings", ("positions.embedding.weight",), added_axes=1),
        *linear("vit.embeddings.patch_embeddings.projection", "patches.projection"),
        *layer_norm("vit.layernorm", "encoder.norm"),
    ]
    for number in range(config.N):
        hf_name, our_name = f"vit.encoder.layer.{number}", f"encoder.layers.{number}"
        for name, matrix in (("query", "W_q"), ("key", "W_k"), ("value", "W_v")):
            place = f"{hf_name}.attention.attention.{name}", f"{our_name}.self_attention_block.{matrix}"
            entries += linear(*place, bias=config.attention_bias)
        entries += linear(f"{hf_name}.attention.output.dense", f"{our_name}.self_attention_block.W_o")
        for name, matrix in (("intermediate.dense", "linear_1"), ("output.dense", "linear_2")):
            entries += linear(f"{hf_name}.{name}", f"{our_name}.feed_forward_block.{matrix}")
        for place, name in enumerate(("layernorm_before", "layernorm_after")):
            entries += layer_norm(f"{hf_name}.{name}", f"{our_name}.residual_connections.{place}.norm")
    if config.pooler_size:
        entries += linear("vit.pooler.dense", "pooler.0")
    if config.labels:
        entries += linear("classifier", "label_head")
    return entries


FORMAT: Final = HuggingFaceFormat(
    ("vit",),
    ARCHITECTURES,
    SETTINGS,
    weight_names,
    read_settings,
    write_settings,
    prefix="vit.",
    heads=("classifier.",),
    write_files=write_files,
)
