"""Packs the tensors of a page into one text, whole parts of the model at a time."""

import re
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from transformer.errors import ConfigError

Numbers = NDArray[np.float32]
Facts = dict[str, Any]
"""JSON that the scripts of a page read beside the numbers of the tensors, which are named by their ids."""

ALPHABET: Final = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;,=>?@^_`{|}~"
LAYER: Final = re.compile(r"(.+) layer (\d+)")
"""Title of a section that is a layer: its stack and its number."""
ALL_LAYERS: Final = "all"


def pack_tensors(
    facts: Facts, numbers: Callable[[int], Numbers], limit: int, layers: Sequence[int] | None = None
) -> tuple[str, list[int]]:
    """Returns tensors in base 85, and the offset of each among the numbers; -1 for those left out.

    A part of the model is packed whole or left out: first what is in no layer, then the attention weights, the first
    and the last layer of each stack, and the others. The bytes of all numbers are stored plane by plane, which
    compresses better, and deflated; tensors of the same numbers in other shapes are stored once.

    Args:
        facts: Facts of the page.
        numbers: Function that returns the numbers of a tensor.
        limit: Size in bytes, once compressed, up to which parts are packed.
        layers: Numbers of the layers to pack, whatever their size; default: those that fit.
    """
    known: dict[bytes, int] = {}
    offsets = [-1] * len(facts["tensors"])
    chunks: list[Numbers] = []
    size = total = 0
    for name, members in _group_tensors(facts).items() if limit > 0 or layers else ():
        layer = LAYER.fullmatch(name)
        if layers is not None and layer and int(layer[2]) not in layers:
            continue
        contents = {index: numbers(index).tobytes() for index in members}
        new = {content: np.frombuffer(content, np.float32) for content in contents.values() if content not in known}
        group = np.concatenate([np.zeros(0, np.float32), *new.values()])
        cost = len(_deflate(group, 9)) if layers is None and group.nbytes <= 2 * limit else group.nbytes
        if layers is None and size + cost > limit:
            continue
        size += cost
        chunks.append(group)
        for content, values in new.items():
            known[content] = total
            total += values.size
        for index, content in contents.items():
            offsets[index] = known[content]
    data = _deflate(np.concatenate([np.zeros(0, np.float32), *chunks]), 9)
    return encode_base85(data), offsets


def encode_base85(data: bytes) -> str:
    """Encodes four bytes as five characters, a quarter more, where base64 takes a third.

    The characters are those of RFC 1924, but `,` instead of `<`, so that no text can end or comment out an element.
    """
    padding = -len(data) % 4
    words = np.frombuffer(data + bytes(padding), ">u4").astype(np.uint64)
    digits = np.stack([words // 85**power % 85 for power in range(4, -1, -1)], axis=1)
    text = np.frombuffer(ALPHABET, np.uint8)[digits.astype(np.intp)].tobytes().decode()
    return text[: len(text) - padding]


def parse_layers(text: str, facts: Facts) -> list[int]:
    """Returns the numbers of the layers that a text such as `1,6` or `all` names.

    Raises:
        ConfigError: It is something else, or names a layer that the model does not have.
    """
    every = [int(match[2]) for part in facts["parts"] if (match := LAYER.fullmatch(part["title"]))]
    if text == ALL_LAYERS:
        return every
    if not re.fullmatch(r"\d{1,6}(,\d{1,6})*", text):
        raise ConfigError(f"layers={text} is not a list of numbers such as 1,6; give one, or {ALL_LAYERS}")
    layers = [int(number) for number in text.split(",")]
    if not set(layers) <= set(every):
        raise ConfigError(f"layers={text} is not within the layers 1 to {max(every)}; choose others, or {ALL_LAYERS}")
    return layers


def _group_tensors(facts: Facts) -> dict[str, list[int]]:
    """Returns the tensors of each part of the model, in the order of their importance."""
    sections: dict[str, set[int]] = {}
    for step in facts["steps"]:
        sections.setdefault(step["section"], set()).update(_tensors_of(step, facts["steps"]))
    tables = {figure["tensor"] for figure in (facts["picture"], facts["positions"]) if figure}
    layers = {name: match for name in sections if (match := LAYER.fullmatch(name))}
    last = {match[1]: int(match[2]) for match in layers.values()}
    ends = [name for name, match in layers.items() if int(match[2]) in (1, last[match[1]])]
    others = [name for name in sections if name not in layers]
    ordered = [*ends, *(name for name in layers if name not in ends)]
    groups = {"tables": tables, **{name: sections[name] for name in others}}
    groups |= {f"attention {weights['module']}": {weights["tensor"]} for weights in facts["attention"]}
    groups |= {name: sections[name] for name in ordered}
    return {name: sorted(members) for name, members in groups.items()}


def _tensors_of(step: Facts, steps: list[Facts]) -> set[int]:
    """Returns the tensors on the page of a step, and the gradients along all paths to it."""
    operands = [*step["inputs"], step["output"]]
    if len(step["readers"]) > 1:
        read = [part for reader in step["readers"] for part in steps[reader]["inputs"]]
        operands += [part for part in read if part["tensor"] == step["output"]["tensor"]]
    members = {part[key] for part in operands for key in ("tensor", "gradient")}
    return {number for number in (*members, step["attributes"].get("origin")) if isinstance(number, int)}


def _deflate(numbers: Numbers, level: int) -> bytes:
    planes = numbers.view(np.uint8).reshape(-1, 4).T.copy()
    deflated = zlib.compressobj(level, wbits=-15)
    return deflated.compress(planes.tobytes()) + deflated.flush()
