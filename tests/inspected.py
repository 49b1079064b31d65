"""Tiny models of every family with random parameters and inputs, for tests of the inspector."""

from functools import cache
from typing import Any

import torch

from transformer.blocks import causal_mask, padding_mask
from transformer.bundle import Bundle
from transformer.inspection.passes import Example, Pass, Picture
from transformer.models import family

FAMILIES = ["transformer", "transformer-post", "marian", "t5", "gpt", "llama", "bert", "vit"]
NARROW: dict[str, dict[str, Any]] = {
    "transformer": {"src_vocab_size": 23, "tgt_vocab_size": 29, "d_model": 12, "N": 2, "h": 3, "d_ff": 10,
                    "share_embeddings": "none"},
    "marian": {"src_vocab_size": 23, "tgt_vocab_size": 23, "d_model": 12, "N": 2, "h": 3, "d_ff": 10},
    "t5": {"vocab_size": 23, "d_model": 12, "N": 2, "h": 3, "d_k": 4, "d_ff": 10},
    "gpt": {"vocab_size": 23, "d_model": 12, "N": 2, "h": 3, "d_ff": 10},
    "llama": {"vocab_size": 23, "d_model": 12, "N": 2, "h": 6, "kv_heads": 3, "d_ff": 10},
    "bert": {"vocab_size": 23, "d_model": 12, "N": 2, "h": 3, "d_ff": 10, "labels": ("no", "yes")},
    "vit": {"image_size": (6, 6), "patch_size": (3, 3), "channels": 2, "d_model": 12, "N": 2, "h": 3, "d_ff": 10,
            "labels": ("a", "b", "c")},
}  # fmt: skip


def names(ids: Any) -> list[str]:
    return [str(token) for token in ids]


def tiny(name: str, **changes: Any) -> Bundle:
    """Returns a tiny model with random parameters, in float64."""
    kind, _, order = name.partition("-")
    model_family = family(kind)
    sizes = {**NARROW[kind], **({"norm_order": order} if order else {}), **changes}
    config = model_family.config.model_validate({**model_family.presets()["tiny"], **sizes})
    torch.manual_seed(5)
    model = model_family.build(config).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return Bundle(config, model, None)


def example(bundle: Bundle, length: int = 7) -> Example:
    """Returns random inputs for a model of any family."""
    generator = torch.Generator().manual_seed(7)
    source, target = (torch.randint(4, 23, (1, size), generator=generator) for size in (length, 5))
    src_mask = padding_mask(source)
    kind = family(bundle.family).kind
    if kind == "encoder-decoder":
        return Example(
            compute=lambda model, inputs: model(inputs["source"], inputs["target"], src_mask, causal_mask(5))[0],
            inputs={"source": source, "target": target}, axes={"source": ("B", "S"), "target": ("B", "T")},
            tokens={"S": names(source[0]), "T": names(target[0])},
            labels=torch.randint(0, 20, (5,), generator=generator), names=names,
        )  # fmt: skip
    text: dict[str, Any] = {"inputs": {"text": source}, "axes": {"text": ("B", "T")}, "tokens": {"T": names(source[0])}}
    if kind == "image encoder":
        image = torch.randn(1, 2, 6, 6, generator=generator).double().requires_grad_(True)
        return Example(
            compute=lambda model, inputs: model.label_logits(inputs["image"]),
            inputs={"image": image},
            axes={"image": ("B", "channels", "height", "width")},
            tokens={"T": ["[class]", "1,1", "1,2", "2,1", "2,2"]},
            labels=torch.tensor([1]),
            names=names,
            picture=Picture((0.25,), (0.5,), (3, 3)),
        )
    if kind == "encoder":
        return Example(
            compute=lambda model, inputs: model.label_logits(inputs["text"], src_mask),
            labels=torch.tensor([1]),
            names=names,
            **text,
        )
    labels = torch.randint(0, 20, (length,), generator=generator)
    return Example(compute=lambda model, inputs: model(inputs["text"])[0], labels=labels, names=names, **text)


@cache
def recorded(name: str) -> Pass:
    bundle = tiny(name)
    return Pass.record(bundle, example(bundle))
