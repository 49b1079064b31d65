import base64
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inspected import example, tiny
from transformer.errors import ConfigError
from transformer.inspection.packing import LAYER, encode_base85, pack_tensors, parse_layers
from transformer.inspection.page import PageData, page_data
from transformer.inspection.passes import Pass


@pytest.fixture(scope="module")
def data() -> PageData:
    bundle = tiny("transformer", N=4)
    bundle.model.float()
    return page_data(Pass.record(bundle, example(bundle)))


def shown(data: PageData, offsets: list[int]) -> dict[str, bool | None]:
    """Returns for each part whether all its tensors are there; None if only some are."""
    parts: dict[str, list[bool]] = {}
    for step in data.facts["steps"]:
        for part in (*step["inputs"], step["output"]):
            parts.setdefault(step["section"], []).append(offsets[part["tensor"]] >= 0)
            if part["gradient"] is not None:
                parts[step["section"]].append(offsets[part["gradient"]] >= 0)
    return {name: all(there) for name, there in parts.items()}


def unpacked(text: str) -> Any:
    planes = np.frombuffer(zlib.decompress(base64.b85decode(text.replace(",", "<")), wbits=-15), np.uint8)
    return planes.reshape(4, -1).T.copy().view(np.float32).ravel()


def test_packed_numbers_are_those_of_the_tensors(data: PageData) -> None:
    """Catches wrong offsets, e.g. where equal tensors of two shapes are stored once."""
    text, offsets = pack_tensors(data.facts, data.numbers, 1 << 30)
    numbers = unpacked(text)
    assert min(offsets) >= 0
    for index, offset in enumerate(offsets):
        expected = data.numbers(index)
        np.testing.assert_array_equal(numbers[offset : offset + expected.size], expected)


def test_layers_that_fit_are_packed_from_both_ends(data: PageData) -> None:
    """Catches layers of which a half is packed, and a limit that leaves out the ends of the stacks first."""
    whole = len(base64.b85decode(pack_tensors(data.facts, data.numbers, 1 << 30)[0].replace(",", "<")))
    text, offsets = pack_tensors(data.facts, data.numbers, whole * 3 // 4)
    parts = shown(data, offsets)
    assert len(base64.b85decode(text.replace(",", "<"))) <= whole * 3 // 4
    assert all(there for name, there in parts.items() if not LAYER.fullmatch(name))
    assert all(parts[f"{stack} layer {layer}"] for stack in ("Encoder", "Decoder") for layer in (1, 4))
    assert not all(parts.values())
    assert all(offsets[one["tensor"]] >= 0 for one in data.facts["attention"])


def test_chosen_layers_are_packed_whatever_their_size(data: PageData) -> None:
    """Catches layers numbered from 0, and chosen layers that a limit leaves out."""
    parts = shown(data, pack_tensors(data.facts, data.numbers, 1, parse_layers("2,3", data.facts))[1])
    assert {name for name, there in parts.items() if not there} == {
        f"{stack} layer {layer}" for stack in ("Encoder", "Decoder") for layer in (1, 4)
    }
    assert all(shown(data, pack_tensors(data.facts, data.numbers, 1, parse_layers("all", data.facts))[1]).values())


@pytest.mark.parametrize(("text", "message"), [("0", "1 to 4"), ("2,5", "1 to 4"), ("first", "1,6"), ("", "1,6")])
def test_other_layers_are_refused(data: PageData, text: str, message: str) -> None:
    """Catches an empty page for layers that do not exist."""
    with pytest.raises(ConfigError, match=message):
        parse_layers(text, data.facts)


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("runs/first/checkpoints/step-00001450/model", "first, step 1,450"), ("runs/first/average", "first, average"),
        ("models/en-de", "en-de"), (None, ""),
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
