import base64
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inspected import example, tiny
from transformer.errors import ConfigError
from transformer.inspection.packing import (
    LAYER,
    PackedTensors,
    encode_base85,
    pack_tensors,
    parse_layers,
    quantize_rows,
)  # fmt: skip
from transformer.inspection.page_data import PageData, page_data
from transformer.inspection.passes import Pass


@pytest.fixture(scope="module")
def data() -> PageData:
    bundle = tiny("transformer", N=4)
    bundle.model.float()
    return page_data(Pass.record(bundle, example(bundle)))


def shown(data: PageData, places: list[int | list[int]]) -> dict[str, bool | None]:
    """Returns for each part whether all its tensors are there; None if only some are."""
    parts: dict[str, list[bool]] = {}
    for step in data.facts["steps"]:
        for part in (*step["inputs"], step["output"]):
            parts.setdefault(step["section"], []).append(places[part["tensor"]] != -1)
            if part["gradient"] is not None:
                parts[step["section"]].append(places[part["gradient"]] != -1)
    return {name: all(there) for name, there in parts.items()}


def deflated(packed: PackedTensors) -> bytes:
    return base64.b85decode(packed.text.replace(",", "<"))


def unpacked(packed: PackedTensors, data: PageData) -> list[Any]:
    """Returns the numbers of all tensors; None for those that were left out."""
    raw = np.frombuffer(zlib.decompress(deflated(packed), wbits=-15), np.uint8)
    floats = raw[: 4 * packed.count].reshape(4, -1).T.copy().view(np.float32).ravel()
    matrices = raw[4 * packed.count :].view(np.int8)
    tensors: list[Any] = []
    for index, place in enumerate(packed.places):
        size = data.numbers(index).size
        if isinstance(place, list):
            start, scales, columns = place
            rows = matrices[start : start + size].reshape(-1, columns).astype(np.float32)
            tensors.append((rows * floats[scales : scales + len(rows), None]).ravel())
        else:
            tensors.append(floats[place : place + size] if place != -1 else None)
    return tensors


def test_packed_numbers_are_those_of_the_tensors(data: PageData) -> None:
    """Catches wrong offsets, e.g. where equal tensors of two shapes are stored once, and numbers that are rounded."""
    packed = pack_tensors(data.facts, data.numbers, 1 << 30)
    assert not packed.is_rounded
    for index, values in enumerate(unpacked(packed, data)):
        np.testing.assert_array_equal(values, data.numbers(index))


def test_numbers_are_rounded_before_parts_are_left_out() -> None:
    """Catches a page without half of the layers of a model, rounding without a word, and scales of other rows."""
    bundle = tiny("transformer", d_model=24, d_ff=32)
    bundle.model.float()
    data = page_data(Pass.record(bundle, example(bundle)))
    exact = len(deflated(pack_tensors(data.facts, data.numbers, 1 << 30)))
    packed = pack_tensors(data.facts, data.numbers, exact * 95 // 100)
    assert packed.is_rounded
    assert len(deflated(packed)) <= exact * 95 // 100
    for index, values in enumerate(unpacked(packed, data)):
        expected = data.numbers(index)
        largest = np.abs(expected[np.isfinite(expected)]).max(initial=0)
        np.testing.assert_allclose(values, expected, rtol=0, atol=largest / 250)
    assert all(shown(data, packed.places).values())


@pytest.mark.parametrize("seed", range(5))
def test_weights_in_int8_are_packed_as_they_are_stored(seed: int) -> None:
    """Catches scales that are recovered with an error, so that numbers of a quantized model are not its own."""
    generator = np.random.default_rng(seed)
    stored = generator.integers(-127, 128, (200, 24)).astype(np.int8)
    stored[:, 3], stored[7] = 127, 0
    scales = generator.uniform(1e-4, 1, 200).astype(np.float32)
    matrix = stored * scales[:, None]
    quantized = quantize_rows(matrix, may_round=False)
    assert quantized is not None
    np.testing.assert_array_equal(quantized[0], stored)
    np.testing.assert_array_equal(quantized[0] * quantized[1][:, None], matrix)
    matrix[0, 0] += matrix[0, 3] / 500
    assert quantize_rows(matrix, may_round=False) is None
    assert quantize_rows(np.where(matrix == 0, -np.inf, matrix), may_round=True) is None


def test_layers_that_fit_are_packed_from_both_ends(data: PageData) -> None:
    """Catches layers of which a half is packed, and a limit that leaves out the ends of the stacks first."""
    whole = len(deflated(pack_tensors(data.facts, data.numbers, 1 << 30)))
    packed = pack_tensors(data.facts, data.numbers, whole * 3 // 4)
    parts = shown(data, packed.places)
    assert len(deflated(packed)) <= whole * 3 // 4
    assert all(there for name, there in parts.items() if not LAYER.fullmatch(name))
    assert all(parts[f"{stack} layer {layer}"] for stack in ("Encoder", "Decoder") for layer in (1, 4))
    assert not all(parts.values())
    assert all(packed.places[one["tensor"]] != -1 for one in data.facts["attention"])


def test_chosen_layers_are_packed_whatever_their_size(data: PageData) -> None:
    """Catches layers numbered from 0, and chosen layers that a limit leaves out."""
    parts = shown(data, pack_tensors(data.facts, data.numbers, 1, parse_layers("2,3", data.facts)).places)
    assert {name for name, there in parts.items() if not there} == {
        f"{stack} layer {layer}" for stack in ("Encoder", "Decoder") for layer in (1, 4)
    }
    assert all(shown(data, pack_tensors(data.facts, data.numbers, 1, parse_layers("all", data.facts)).places).values())


@pytest.mark.parametrize(("text", "message"), [("0", "1 to 4"), ("2,5", "1 to 4"), ("first", "1,6"), ("", "1,6")])
def test_other_layers_are_refused(data: PageData, text: str, message: str) -> None:
    """Catches an empty page for layers that do not exist."""
    with pytest.raises(ConfigError, match=message):
        parse_layers(text, data.facts)


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("runs/first/checkpoints/step-00001450/model", "first, step 1,450"), ("runs/first/average", "first, average"),
        ("models/en-de", "en-de"), ("models/en-de/transformer_model_en_de/bundle", "en-de"), (None, ""),
    ],
)  # fmt: skip
def test_title_names_the_run_of_a_checkpoint(folder: str | None, name: str) -> None:
    """Catches a page called "model", as the last folder of every checkpoint is."""
    bundle = replace(tiny("transformer"), folder=Path(folder) if folder else None)
    bundle.model.float()
    assert page_data(Pass.record(bundle, example(bundle))).facts["model"]["folder"] == name


@pytest.mark.parametrize("size", range(9))
def test_base_85_is_that_of_python_with_another_sign(size: int) -> None:
    """Catches a lost byte at the end, and a text that could end the element it stands in."""
    data = np.random.default_rng(size).bytes(size * 101)
    assert encode_base85(data) == base64.b85encode(data).decode().replace("<", ",")
