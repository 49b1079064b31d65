"""Packs the tensors of a page into one text, whole parts of the model at a time."""

import re
import zlib
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from transformer.errors import ConfigError

Numbers = NDArray[np.float32]
Facts = dict[str, Any]
"""JSON that the scripts of a page read beside the numbers of the tensors, which are named by their ids."""

ALPHABET: Final = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;,=>?@^_`{|}~"
MIN_COLUMNS: Final = 16
"""Number of columns from which a matrix may be stored as int8, so that the scales of its rows take little."""
LAYER: Final = re.compile(r"(.+) layer (\d+)")
"""Title of a section that is a layer: its stack and its number."""
ALL_LAYERS: Final = "all"


@dataclass(frozen=True)
class PackedTensors:
    """Numbers of a page.

    Attributes:
        text: Float32 numbers plane by plane, then matrices of one byte an element, deflated, in base 85.
        count: Number of float32 numbers.
        places: Of each tensor: its offset among the float32 numbers; -1 if it was left out; or for one of bytes their
            offset, that of the scales of its rows among the float32 numbers, and the number of columns.
        is_rounded: Whether bytes and scales stand for other numbers than those of the pass.
    """

    text: str
    count: int
    places: list[int | list[int]]
    is_rounded: bool


def pack_tensors(
    facts: Facts, numbers: Callable[[int], Numbers], limit: int, layers: Sequence[int] | None = None
) -> PackedTensors:
    """Packs tensors into one text, deflated and in base 85.

    A part of the model is packed whole or left out: first what is in no layer, then the attention weights, the first
    layer of each stack, the last ones, and the others. Tensors of the same numbers in other shapes are stored once.
    Matrices that int8 with a scale for each row represents exactly, such as weights that are stored so, take one byte
    an element. If not everything fits, all weights are rounded to that, and if it still does not, all matrices are.

    Args:
        facts: Facts of the page.
        numbers: Function that returns the numbers of a tensor.
        limit: Size in bytes, once compressed, up to which parts are packed.
        layers: Numbers of the layers to pack, whatever their size and without rounding; default: those that fit.
    """
    groups = _group_tensors(facts) if limit > 0 or layers else {}
    parameters = {part["tensor"] for step in facts["steps"] for part in step["inputs"] if part["parameter"]}
    packed = PackedTensors(encode_base85(_Chunk().deflate()), 0, [-1] * len(facts["tensors"]), False)
    for rounded in ((), parameters, range(len(facts["tensors"]))) if groups else ():
        packed, is_complete = _pack(facts, groups, numbers, limit, layers, rounded)
        if is_complete or layers is not None:
            break
    return packed


def _pack(
    facts: Facts, groups: dict[str, list[int]], numbers: Callable[[int], Numbers], limit: int,
    layers: Sequence[int] | None, rounded: Container[int],
) -> tuple[PackedTensors, bool]:  # fmt: skip
    """Packs groups of tensors, some of which may be rounded; returns also whether none was left out."""
    places: list[int | list[int]] = [-1] * len(facts["tensors"])
    packed, size, is_complete = _Chunk(), 0, True
    for name, members in groups.items():
        layer = LAYER.fullmatch(name)
        if layers is not None and layer and int(layer[2]) not in layers:
            continue
        chunk = _Chunk(packed.count, packed.byte_count)
        contents = {index: numbers(index).tobytes() for index in members}
        for index, content in contents.items():
            if content not in packed.places:
                chunk.add(content, facts["tensors"][index]["shape"], may_round=index in rounded)
        cost = 4 * (chunk.count - packed.count) + chunk.byte_count - packed.byte_count
        if layers is None and cost <= 2 * limit:
            cost = len(chunk.deflate())
        if layers is None and size + cost > limit:
            is_complete = False
            continue
        size += cost
        packed.extend(chunk)
        for index, content in contents.items():
            places[index] = packed.places[content]
    return PackedTensors(encode_base85(packed.deflate()), packed.count, places, packed.is_rounded), is_complete


class _Chunk:
    """Numbers that are packed together.

    Args:
        count: Number of float32 numbers before.
        byte_count: Number of bytes of matrices before.
    """

    def __init__(self, count: int = 0, byte_count: int = 0) -> None:
        self.count, self.byte_count, self.is_rounded = count, byte_count, False
        self.places: dict[bytes, int | list[int]] = {}
        self._floats: list[Numbers] = []
        self._matrices: list[bytes] = []

    def add(self, content: bytes, shape: Sequence[int], *, may_round: bool) -> None:
        """Adds a tensor, as int8 with a scale for each row where that is the same or `may_round`."""
        if content in self.places:
            return
        values, columns = np.frombuffer(content, np.float32), shape[-1] if len(shape) > 1 else 0
        matrix = quantize_rows(values.reshape(-1, columns), may_round=may_round) if columns >= MIN_COLUMNS else None
        if matrix is None:
            self.places[content] = self.count
        else:
            elements, values, is_exact = matrix
            self.is_rounded |= not is_exact
            self.places[content] = [self.byte_count, self.count, columns]
            self._matrices.append(elements.tobytes())
            self.byte_count += elements.size
        self._floats.append(values)
        self.count += values.size

    def extend(self, other: "_Chunk") -> None:
        """Adds what another chunk has, which was begun at the end of this one."""
        self.count, self.byte_count = other.count, other.byte_count
        self.is_rounded |= other.is_rounded
        self.places |= other.places
        self._floats += other._floats
        self._matrices += other._matrices

    def deflate(self) -> bytes:
        """Deflates float32 numbers plane by plane, which compresses better, and the bytes after them."""
        deflated = zlib.compressobj(9, wbits=-15)
        planes = np.concatenate([np.zeros(0, np.float32), *self._floats]).view(np.uint8).reshape(-1, 4).T
        return deflated.compress(b"".join([planes.tobytes(), *self._matrices])) + deflated.flush()


def quantize_rows(matrix: Numbers, *, may_round: bool) -> tuple[NDArray[np.int8], Numbers, bool] | None:
    """Returns a matrix as int8 and the scales of its rows, and whether their product is the matrix exactly.

    Args:
        matrix: Shape (rows, columns).
        may_round: Whether the product may differ from the matrix, by up to a 254th of the largest number of a row.

    Returns:
        None if the product differs though it may not, or if the matrix has infinite numbers.
    """
    largest = np.abs(matrix).max(axis=1, initial=0)
    if not np.isfinite(largest).all():
        return None
    middle = (largest / np.float32(127)).astype(np.float32)
    best = middle.copy()
    is_exact = np.zeros(len(matrix), bool)
    for scales in (middle, np.nextafter(middle, np.float32(0)), np.nextafter(middle, np.float32(np.inf))):
        is_same = (_round_rows(matrix, scales) * scales[:, None] == matrix).all(axis=1)
        best[is_same & ~is_exact] = scales[is_same & ~is_exact]
        is_exact |= is_same
        if is_exact.all():
            break
        if not may_round and not is_same.any():
            return None
    if not may_round and not is_exact.all():
        return None
    return _round_rows(matrix, best).astype(np.int8), best, bool(is_exact.all())


def _round_rows(matrix: Numbers, scales: Numbers) -> Numbers:
    divisors = np.where(scales > 0, scales, np.float32(1))[:, None]
    return np.clip(np.rint(matrix / divisors), -127, 127)


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
    firsts = [name for name, match in layers.items() if int(match[2]) == 1]
    ends = firsts + [name for name, match in layers.items() if int(match[2]) == last[match[1]] > 1]
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
