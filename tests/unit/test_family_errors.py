"""What cannot be trained on or read is refused, with the reason and the way out."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from conftest import digit_pairs, write_lines
from transformer.bundle import Bundle
from transformer.errors import BundleError, ConfigError, DataError
from transformer.fine_tuning import place_start
from transformer.models import family
from transformer.models.bert.weights import FORMAT as BERT
from transformer.models.renaming import Renamed, chosen, read_renamed, refuse_beyond
from transformer.models.vit.weights import FORMAT as VIT
from transformer.recipe import parse_recipe
from transformer.run import train
from transformer.text.control import OURS
from transformer.text.published import PublishedTokenizer, published_ids, read_tokenizer, write_tokenizer
from transformer.text.tokenizer import Tokenizer
from unit.test_task_data import idx

TEXT = ["abc def ghi"] * 40


def refused(tmp_path: Path, data: dict[str, Any], message: str, error: type[Exception], **sections: Any) -> None:
    recipe = parse_recipe({"data": data, "training": {"max_steps": 2, "threads": 1}, **sections})
    with pytest.raises(error, match=message):
        train(recipe, tmp_path / "run", quiet=True)


def test_texts_that_cannot_be_trained_on(tmp_path: Path) -> None:
    """Catches a run that begins and fails later, or learns from nothing."""
    text = write_lines(tmp_path / "text", TEXT)
    base = {"task": "language-model", "text": str(text)}
    small = {"family": "gpt", "d_model": 16, "N": 2, "h": 2, "seq_len": 32}
    refused(tmp_path, {**base, "window": 64}, "window=64 exceeds the model's 32", ConfigError, model=small)
    one = write_lines(tmp_path / "one", ["ab"])
    refused(tmp_path, {**base, "text": str(one)}, "has no window of 33|leaves nothing", DataError, model=small,
            tokenizer={"kind": "characters"})  # fmt: skip
    refused(tmp_path, {**base, "text": str(tmp_path / "missing")}, "No such file", DataError, model=small)


def test_examples_that_cannot_be_trained_on(tmp_path: Path) -> None:
    """Catches one label, no rows, and labels that validation alone has."""
    same = write_lines(tmp_path / "same.tsv", ["a\tx"] * 30)
    two = write_lines(tmp_path / "two.tsv", ["a\tx", "b\ty"] * 15)
    other = write_lines(tmp_path / "other.tsv", ["a\tz"])
    empty = write_lines(tmp_path / "empty.tsv", [])
    base = {"task": "classification"}
    kind = {"tokenizer": {"kind": "characters"}}
    refused(tmp_path, {**base, "examples": str(same)}, "has 1 label", DataError, **kind)
    refused(
        tmp_path, {**base, "examples": str(empty), "validation_examples": str(two)}, "leaves nothing", DataError, **kind
    )
    refused(tmp_path, {**base, "examples": str(two), "validation_examples": str(other)}, "label 'z'", DataError, **kind)


def test_images_that_cannot_be_trained_on(tmp_path: Path) -> None:
    """Catches an IDX file without labels, and validation folders with labels of their own."""
    import numpy as np
    from PIL import Image

    images = idx(tmp_path / "images", np.zeros((4, 8, 8), np.uint8))
    small = {"family": "vit", "image_size": [8, 8], "patch_size": [4, 4], "d_model": 16, "N": 2, "h": 2}
    refused(tmp_path, {"task": "images", "images": str(images)}, "give the labels too", DataError, model=small)
    for folder, name in (("a", "cat"), ("a", "dog"), ("b", "cow")):
        (tmp_path / folder / name).mkdir(parents=True)
        Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / folder / name / "1.png")
    data = {"task": "images", "images": str(tmp_path / "a"), "validation_images": str(tmp_path / "b")}
    refused(tmp_path, data, "has labels that", DataError, model={**small, "channels": 1})
    with pytest.raises(ConfigError, match=r"validation_labels is given without"):
        parse_recipe({"data": {"task": "images", "images": "a", "validation_labels": "b"}})


def test_models_and_data_that_do_not_go_together(tmp_path: Path) -> None:
    """Catches two vocabularies for a model of one."""
    pairs = digit_pairs(60)
    sides = [write_lines(tmp_path / str(side), [pair[side] for pair in pairs]) for side in range(2)]
    data = {"source": str(sides[0]), "target": str(sides[1])}
    small = {"family": "t5", "d_model": 16, "N": 2, "h": 2, "d_ff": 16}
    refused(tmp_path, data, "joint=false does not go with a model of one", ConfigError, model=small,
            tokenizer={"joint": False, "vocab_size": 300})  # fmt: skip


def test_a_start_of_other_sizes_is_refused() -> None:
    """Catches a layer that keeps its first values unnoticed."""
    kind = family("gpt")
    sizes = {"vocab_size": 20, "d_model": 16, "h": 2, "seq_len": 8}
    small, large = (kind.build(kind.config.model_validate({**sizes, "N": n})) for n in (2, 3))
    with pytest.raises(BundleError, match=r"decoder\.layers\.2.* do not go with the recipe's model"):
        place_start(large, small.state_dict())


def test_published_settings_and_parameters_out_of_bounds() -> None:
    """Catches a damaged configuration that is built until memory is full, and two matrices that are taken for one."""
    with pytest.raises(BundleError, match="hidden_size=-3 is no size of a model"):
        refuse_beyond({"hidden_size": -3}, ["hidden_size"])
    with pytest.raises(BundleError, match="hidden_size=100000000 is no size"):
        refuse_beyond({"hidden_size": 10**8}, ["hidden_size"])
    with pytest.raises(BundleError, match="hidden_act='sine' is not known; only relu are"):
        chosen({"hidden_act": "sine"}, "hidden_act", {"relu": "relu"}, "relu")
    table = [Renamed("a", ("x",), aliases=("b",))]
    with pytest.raises(BundleError, match="a, b differ"):
        read_renamed(table, {"a": torch.zeros(2), "b": torch.ones(2)})
    many = {f"p{number:02d}": torch.zeros(1) for number in range(12)}
    with pytest.raises(BundleError, match=r"missing: a; unknown: p00, .*p07 and 4 more"):
        read_renamed(table, many)
    with pytest.raises(BundleError, match="rescale_factor=2 is not known"):
        VIT.read({}, [], {"preprocessor_config.json": b'{"rescale_factor": 2}'})
    pooling = {"1_Pooling/config.json": b'{"pooling_mode_max_tokens": true}'}
    with pytest.raises(BundleError, match="asks for pooling_mode_max_tokens"):
        BERT.read({}, [], pooling)
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


class Strange(Tokenizer):
    """A tokenizer of a kind that no published format knows."""

    kind = "strange"
    vocab_size = 4
    encode_batch = decode = fallback_bytes = to_json = _piece = None  # pyright: ignore[reportAssignmentType]


def test_tokenizers_that_are_none() -> None:
    """Catches a folder without a tokenizer, a damaged one, and one that cannot be written."""
    with pytest.raises(BundleError, match=r"there is no tokenizer\.json, nor vocab\.txt"):
        published_ids({}, {})
    with pytest.raises(BundleError, match=r"lacks \[UNK\], \[CLS\] or \[SEP\]"):
        read_tokenizer({"vocab.txt": b"a\nb\n"}, OURS)
    with pytest.raises(DataError, match=r"not a tokenizer\.json"):
        PublishedTokenizer("{}", OURS)
    with pytest.raises(DataError, match="not a tokenizer of this package"):
        PublishedTokenizer.from_json(json.dumps({"published": 3}))
    from transformer.text.settings import NormalizationSettings

    with pytest.raises(BundleError, match="a Strange has no published form"):
        write_tokenizer(Strange(NormalizationSettings()), "X")
    kind = family("gpt")
    for name, sizes in (("gpt", {}), ("llama", {}), ("t5", {}), ("bert", {})):
        with pytest.raises(ConfigError, match=r"model\.vocab_size is not set"):
            family(name).build(family(name).config(**sizes))
    assert Bundle(kind.config(vocab_size=4), torch.nn.Identity(), None).family == "gpt"
