"""Tasks refuse data and models that cannot be used, with the reason and a remedy."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer as Library
from tokenizers import models, pre_tokenizers

from inspected import tiny
from samples import digit_pairs, idx, write_lines
from transformer.bundle import Bundle, load_bundle, save_bundle
from transformer.data.images import ImageFolder, ImageProcessor
from transformer.data.labelled import label_ids
from transformer.data.windows import check_is_text
from transformer.errors import BundleError, ConfigError, DataError
from transformer.models import family
from transformer.run.fine_tuning import load_pretrained
from transformer.run.plan import prepare_data
from transformer.run.recipe import parse_recipe
from transformer.run.train import train
from transformer.tokenizers.huggingface import HuggingFaceTokenizer
from transformer.tokenizers.pair import TokenizerPair
from transformer.tokenizers.special_tokens import SpecialTokenIds


def refused(tmp_path: Path, data: dict[str, Any], message: str, error: type[Exception], **sections: Any) -> None:
    training = {"max_steps": 2, "threads": 1, **sections.pop("training", {})}
    recipe = parse_recipe({"data": data, "training": training, **sections})
    with pytest.raises(error, match=message):
        train(recipe, tmp_path / "run", quiet=True)


def test_texts_that_cannot_be_trained_on(tmp_path: Path) -> None:
    """Catches a run that starts and fails later, or trains on nothing."""
    text = write_lines(tmp_path / "text", ["abc def ghi"] * 40)
    base = {"task": "language-model", "text": str(text)}
    small = {"family": "gpt", "d_model": 16, "N": 2, "h": 2, "seq_len": 32}
    refused(tmp_path, {**base, "window": 64}, "window=64 exceeds the model's 32", ConfigError, model=small)
    one = write_lines(tmp_path / "one", ["ab"])
    refused(tmp_path, {**base, "text": str(one)}, "has no window of 33|leaves nothing", DataError, model=small,
            tokenizer={"kind": "characters"})  # fmt: skip
    refused(tmp_path, {**base, "text": str(tmp_path / "missing")}, "No such file", DataError, model=small)


def test_special_tokens_in_training_texts(tmp_path: Path) -> None:
    """Catches names that are tokens in texts of strangers, or characters in spite of the recipe."""
    library = Library(models.WordLevel({"<unk>": 0, "</s>": 1, "a": 2}, unk_token="<unk>"))
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    library.add_special_tokens(["<unk>", "</s>", "[E1]"])
    tokenizer = HuggingFaceTokenizer(library.to_str(), SpecialTokenIds(None, None, 1, 0))
    start = tiny("gpt", vocab_size=4)
    save_bundle(tmp_path / "start", Bundle(start.config, start.model.float(), TokenizerPair(tokenizer, tokenizer)))
    text = write_lines(tmp_path / "text", ["[E1] a a"] * 90)
    data = {"task": "language-model", "text": str(text), "window": 8}
    read: dict[bool, set[int]] = {}
    for special_tokens in (False, True):
        training = {"max_steps": 1, "start_from": str(tmp_path / "start")}
        recipe = parse_recipe({"data": {**data, "special_tokens": special_tokens}, "training": training})
        windows: Any = prepare_data(recipe, tmp_path / f"{special_tokens}", quiet=True).train
        read[special_tokens] = set(windows.fetch(np.arange(9)).tokens.ravel().tolist())
    assert read == {False: {0, 2}, True: {2, 3}}
    untrained = parse_recipe({"data": {**data, "special_tokens": True}, "model": {"family": "gpt"}})
    with pytest.raises(ConfigError, match="special_tokens needs a published model"):
        prepare_data(untrained, tmp_path / "own", quiet=True)


def test_examples_that_cannot_be_trained_on(tmp_path: Path) -> None:
    """Catches a single label, no rows, and labels that only occur in the validation data."""
    same = write_lines(tmp_path / "same.tsv", ["a\tx"] * 30)
    two = write_lines(tmp_path / "two.tsv", ["a\tx", "b\ty"] * 15)
    other = write_lines(tmp_path / "other.tsv", ["a\tz"])
    empty = write_lines(tmp_path / "empty.tsv", [])
    base = {"task": "classification"}
    kind = {"tokenizer": {"kind": "characters"}}
    refused(tmp_path, {**base, "examples": str(same)}, "has 1 label", DataError, **kind)
    header = write_lines(tmp_path / "header.tsv", ["sentence\tlabel", *(f"one {n}\t{n % 2}" for n in range(40))])
    refused(tmp_path, {**base, "examples": str(header)}, "the label 'label' occurs once", DataError, **kind)
    refused(
        tmp_path, {**base, "examples": str(empty), "validation_examples": str(two)}, "leaves nothing", DataError, **kind
    )
    refused(tmp_path, {**base, "examples": str(two), "validation_examples": str(other)}, "label 'z'", DataError, **kind)


def test_labels_that_are_not_classes(tmp_path: Path) -> None:
    """Catches hundreds of numbers in a message, ratings that are refused, and several labels in one."""
    numbers = write_lines(tmp_path / "numbers.tsv", [f"text {n}\t{n / 7:.3f}" for n in range(60)])
    data: dict[str, Any] = {"task": "classification", "examples": str(numbers)}
    kind = {"tokenizer": {"kind": "characters"}}
    refused(tmp_path, data, r"numbers as labels, .* \(regression\) is not known; give classes", DataError, **kind)
    with pytest.raises(DataError, match=r"not one of the model's 40 \(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, \.\.\.\)"):
        label_ids(["x"], [str(n) for n in range(40)], "here")
    joined = [f"a {n}\t{('1.5', 'b', '1.5,b', 'c, d')[n % 4]}" for n in range(80)]
    data["examples"] = str(write_lines(tmp_path / "joined.tsv", joined))
    notes = prepare_data(parse_recipe({"data": data, **kind}), tmp_path / "prepared", quiet=True).notes
    assert [note for note in notes if "'1.5,b' is learned as a label of its own" in note]
    assert not [note for note in notes if "c, d" in note]


def test_chats_are_not_learned_as_text(tmp_path: Path) -> None:
    """Catches a model that learns to write JSON, and other JSON that is refused."""
    chat = write_lines(tmp_path / "chat.jsonl", [json.dumps({"messages": [{"role": "user", "content": "Hi"}]})] * 40)
    data = {"task": "language-model", "text": str(chat)}
    refused(tmp_path, data, "holds chats as JSON .*apply_chat_template", DataError, model={"family": "gpt"})
    check_is_text(write_lines(tmp_path / "other", ['{"a": 1}']))
    check_is_text(write_lines(tmp_path / "list", ["[1]"]))


def test_images_that_cannot_be_trained_on(tmp_path: Path) -> None:
    """Catches an IDX file without labels, and validation folders with other labels."""
    import numpy as np
    from PIL import Image

    images = idx(tmp_path / "images", np.zeros((4, 8, 8), np.uint8))
    small = {"family": "vit", "image_size": [8, 8], "patch_size": [4, 4], "d_model": 16, "N": 2, "h": 2}
    refused(tmp_path, {"task": "images", "images": str(images)}, "set data.labels too", DataError, model=small)
    for folder, name in (("a", "cat"), ("a", "dog"), ("a", "dog/.hidden"), ("b", "cow")):
        (tmp_path / folder / name).mkdir(parents=True)
        Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / folder / name / "1.png")
    data = {"task": "images", "images": str(tmp_path / "a"), "validation_images": str(tmp_path / "b")}
    refused(tmp_path, data, "has labels that", DataError, model={**small, "channels": 1})
    with_names = {"task": "images", "images": str(tmp_path / "a"), "label_names": ["x", "y"]}
    refused(
        tmp_path, with_names, "data.label_names apply to IDX files only", ConfigError, model={**small, "channels": 1}
    )
    (tmp_path / "a" / "cat" / "notes.txt").write_text("")
    image_folder = ImageFolder(tmp_path / "a", ImageProcessor((8, 8), 1, (0.5,), (0.5,)))
    assert (len(image_folder.labels), image_folder.n_skipped_files) == (2, 1)
    with pytest.raises(ConfigError, match="a model of 4 channels cannot read image files"):
        ImageProcessor((8, 8), 4, (0.5,), (0.5,)).read(tmp_path / "a" / "cat" / "1.png")
    (tmp_path / "b" / "config.json").write_text('{"model_type": "vit"}')
    refused(tmp_path, data, "is a published folder; make a model of it: transformer import", BundleError,
            training={"start_from": str(tmp_path / "b")})  # fmt: skip
    with pytest.raises(ConfigError, match=r"validation_labels is given without"):
        parse_recipe({"data": {"task": "images", "images": "a", "validation_labels": "b"}})


def test_larger_images_start_from_interpolated_positions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a ViT that cannot be trained further on larger images, and positions that move to other places."""
    from PIL import Image

    for label in ("cat", "dog"):
        (tmp_path / "a" / label).mkdir(parents=True)
        for number in range(4):
            Image.fromarray(np.full((12, 12), 40 * number, np.uint8)).save(tmp_path / "a" / label / f"{number}.png")
    sizes = {"family": "vit", "image_size": [8, 12], "patch_size": [4, 4], "channels": 1, "d_model": 16, "N": 1, "h": 2}
    data = {"task": "images", "images": str(tmp_path / "a"), "validation_share": 0.25}
    training = {"max_steps": 1, "threads": 1, "learning_rate": 1e-9, "precision": "float32", "weight_decay": 0}
    first = train(parse_recipe({"data": data, "model": sizes, "training": training}), tmp_path / "1", quiet=True)
    again = {**training, "start_from": str(first.model)}
    wanted = {"family": "vit", "image_size": [16, 12], "patch_size": [4, 4]}
    result = train(parse_recipe({"data": data, "model": wanted, "training": again}), tmp_path / "2")
    assert "positions interpolated from 2 x 3 patches to 4 x 3" in capsys.readouterr().err
    before, after = (load_bundle(run.model).model.positions.embedding.weight for run in (first, result))
    rows = after[1:].view(4, 3, 16)
    upper, lower = before[1:].view(2, 3, 16)
    expected = torch.stack([upper, 0.75 * upper + 0.25 * lower, 0.25 * upper + 0.75 * lower, lower])
    assert torch.allclose(rows, expected, atol=1e-5)
    assert torch.allclose(after[0], before[0], atol=1e-5)


def test_models_and_data_that_do_not_go_together(tmp_path: Path) -> None:
    """Catches two vocabularies for a model with one."""
    pairs = digit_pairs(60)
    sides = [write_lines(tmp_path / str(side), [pair[side] for pair in pairs]) for side in range(2)]
    data = {"source": str(sides[0]), "target": str(sides[1])}
    small = {"family": "t5", "d_model": 16, "N": 2, "h": 2, "d_ff": 16}
    refused(tmp_path, data, "joint=false does not work with a model of one", ConfigError, model=small,
            tokenizer={"joint": False, "vocab_size": 300})  # fmt: skip


@pytest.mark.parametrize("task", ["language-model", "classification"])
def test_files_of_every_task_stay_as_they_are(task: str, tmp_path: Path) -> None:
    """Catches data of an edited file that is stored under the fingerprint of the original and used on resumption."""
    from transformer.run.tasks import make_task

    path = write_lines(tmp_path / "a.tsv", ["x\tneutral", "y\tnegative"] * 30)
    key = "text" if task == "language-model" else "examples"
    recipe = parse_recipe({"data": {"task": task, key: str(path)}, "tokenizer": {"kind": "characters"}})
    task = make_task(recipe.data, 1, tmp_path / "tokens", lambda *_: None)
    with path.open("a") as file:
        file.write("z\tneutral\n")
    with pytest.raises(DataError, match=r"a\.tsv was changed while it was prepared"):
        task.prepare(task.complete(recipe), None)


def test_labels_keep_the_order_of_the_start(tmp_path: Path) -> None:
    """Catches a classification head whose rows are assigned to other labels."""
    from transformer.run.tasks import make_task

    rows = write_lines(tmp_path / "a.tsv", ["x\tneutral", "y\tnegative", "z\tpositive"] * 9)
    recipe = parse_recipe(
        {"data": {"task": "classification", "examples": str(rows)}, "tokenizer": {"kind": "characters"}}
    )
    task = make_task(recipe.data, 1, tmp_path, lambda *_: None)
    filled = task.complete(recipe)
    first = task.prepare(filled, None)
    assert first.config.model_dump()["labels"] == ("negative", "neutral", "positive")
    config = first.config.model_copy(update={"labels": ("positive", "negative", "neutral")})
    known = Bundle(config, torch.nn.Identity(), first.text)
    again = make_task(recipe.data, 1, tmp_path, lambda *_: None).prepare(filled, known)
    assert again.config.model_dump()["labels"] == ("positive", "negative", "neutral")
    with pytest.raises(ConfigError, match=r"best_metric='bleu' is not measured for this task; choose accuracy"):
        task.complete(parse_recipe({**recipe.model_dump(exclude_none=True), "training": {"best_metric": "bleu"}}))


def test_a_start_of_other_sizes_is_refused() -> None:
    """Catches a layer that silently keeps its initial values."""
    kind = family("gpt")
    sizes = {"vocab_size": 20, "d_model": 16, "h": 2, "seq_len": 8}
    small, large = (kind.build(kind.config.model_validate({**sizes, "N": n})) for n in (2, 3))
    with pytest.raises(BundleError, match=r"decoder\.layers\.2.* do not match the recipe's model"):
        load_pretrained(large, small.state_dict())
