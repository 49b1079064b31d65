"""Runs every task through the real training loop: it learns, resumes bit for bit, and yields a usable model."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from samples import idx, write_lines
from transformer.bundle import load_bundle, save_bundle
from transformer.bundle.huggingface import read_published, write_published
from transformer.decoding import Search
from transformer.errors import ConfigError, DataError
from transformer.pipelines.auto import load
from transformer.pipelines.classification import ImageClassifier, TextEncoder
from transformer.pipelines.text_generation import Generator
from transformer.run.recipe import parse_recipe
from transformer.run.train import RunResult, train
from transformer.storage.tensor_files import load_tensors

SMALL = {"d_model": 32, "N": 2, "h": 2, "dropout": 0.0}
SPEED = {"threads": 1, "precision": "float32", "log_every": 20, "patience": 0, "warmup_steps": 10}
DAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]


def run(folder: Path, data: dict[str, Any], **sections: Any) -> RunResult:
    """Trains a model; the `training` section overrides the quick default settings."""
    training = {**SPEED, "validate_every": 60, "save_every": 60, **sections.pop("training", {})}
    return train(parse_recipe({"data": data, "training": training, **sections}), folder, quiet=True)


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a text in which each word determines the next one."""
    lines = [" ".join(DAYS[(start + offset) % 7] for offset in range(9)) for start in range(160)]
    return write_lines(tmp_path_factory.mktemp("week") / "week.txt", lines)


def test_a_language_model_learns_writes_and_goes_on_to_the_bit(week: Path, tmp_path: Path) -> None:
    """Catches windows that are not contiguous, a resumed run with other windows, and a wrong perplexity."""
    data = {"task": "language-model", "text": str(week), "window": 32, "stride": 16}
    recipe = {
        "tokenizer": {"kind": "characters"},
        "model": {"family": "gpt", "seq_len": 32, **SMALL, "dropout": 0.1},
        "training": {"max_steps": 240, "learning_rate": 0.01, "batch_tokens": 768},
    }
    uninterrupted = run(tmp_path / "whole", data, **recipe)
    assert uninterrupted.progress.best_scores["perplexity"] < 1.4
    first_part = {**recipe, "training": {**recipe["training"], "max_steps": 100, "decay_steps": 240}}
    run(tmp_path / "halves", data, **first_part)
    continued = run(
        tmp_path / "halves", data, **{**first_part, "training": {**first_part["training"], "max_steps": 240}}
    )
    expected, actual = (load_tensors(result.model / "model.safetensors") for result in (uninterrupted, continued))
    assert all(torch.equal(expected[name], actual[name]) for name in expected)
    generator = load(uninterrupted.model, precision="float32")
    assert isinstance(generator, Generator)
    generation = generator.generate(["monday tues"], max_tokens=100)[0][0]
    assert generation.text.startswith("day wednesday thursday friday")
    assert len(generation.tokens) == 100  # far beyond the model's 32 positions
    assert "".join(generator.stream("monday tues", max_tokens=100)) == generation.text
    text = week.read_text(encoding="utf-8")
    held_out = text[len(text) - int(len(text) * 0.1) :]
    perplexity = generator.perplexity(held_out)
    assert perplexity.loss == pytest.approx(uninterrupted.progress.validations[240]["loss"], abs=1e-3)
    with pytest.raises(ConfigError, match="a beam is limited to the model's 32"):
        load(uninterrupted.model, search=Search(4)).generate(["mon"], max_tokens=100)


def test_several_held_out_texts_are_one(week: Path, tmp_path: Path) -> None:
    """Catches a list of files of which only the first is read."""
    lines = week.read_text(encoding="utf-8").splitlines()
    files = [write_lines(tmp_path / name, selected) for name, selected in (("a", lines[:9]), ("b", lines[40:80]))]
    model = {"family": "gpt", "seq_len": 32, **SMALL}
    result = run(
        tmp_path / "run",
        {"task": "language-model", "text": str(week), "validation_text": [str(file) for file in files], "window": 32},
        model=model,
        tokenizer={"kind": "characters"},
        training={"max_steps": 2, "batch_tokens": 768},
    )
    generator = load(result.model, precision="float32")
    assert isinstance(generator, Generator)
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    assert generator.perplexity(text).loss == pytest.approx(result.progress.validations[2]["loss"], abs=1e-4)


def test_masked_words_are_learned_and_filled_in(week: Path, tmp_path: Path) -> None:
    """Catches a model that sees the tokens that it should predict, and a typed `[MASK]` that is not recognized."""
    result = run(
        tmp_path / "run",
        {"task": "masked-words", "text": str(week), "window": 24, "stride": 3},
        tokenizer={"vocab_size": 340},
        model={"family": "bert", **SMALL, "d_model": 64, "d_ff": 128, "seq_len": 24, "attention_dropout": 0.0},
        training={"max_steps": 400, "learning_rate": 0.002, "batch_tokens": 1536, "warmup_steps": 50},
    )
    losses = [result.progress.validations[step]["loss"] for step in (60, 400)]
    assert losses[1] < 0.5 * losses[0]
    assert losses[1] < 1.5  # a random guess among the seven days has a loss of 1.95
    encoder = load(result.model)
    assert isinstance(encoder, TextEncoder)
    ((best, *_),) = encoder.fill("monday tuesday [MASK] thursday friday saturday")
    assert best.piece == "▁wednesday"
    assert best.text == "monday tuesday wednesday thursday friday saturday"
    with pytest.raises(DataError, match=r"the text has no \[MASK\]"):
        encoder.fill("monday")
    with pytest.raises(ConfigError, match="has no labels"):
        encoder.classify(["monday"])


def labelled(n: int, seed: int) -> list[str]:
    """Returns texts whose label says whether they name a day of the weekend."""
    generator = np.random.default_rng(seed)
    rows = [[DAYS[day] for day in generator.integers(0, 5, 6)] for _ in range(n)]
    for row in rows[::2]:
        row[int(generator.integers(6))] = DAYS[int(generator.integers(5, 7))]
    return [f"{' '.join(row)}\t{'work' if index % 2 else 'rest'}" for index, row in enumerate(rows)]


def test_labels_are_learned_from_a_pre_trained_model(week: Path, tmp_path: Path) -> None:
    """Catches a head that is not trained, pretrained weights that are not loaded, and labels in another order."""
    pretrained = run(
        tmp_path / "masked", {"task": "masked-words", "text": str(week), "window": 16},
        tokenizer={"vocab_size": 300}, model={"family": "bert", "d_ff": 64, "seq_len": 16, **SMALL},
        training={"max_steps": 60, "learning_rate": 0.01, "batch_tokens": 512},
    )  # fmt: skip
    examples, held_out = (
        write_lines(tmp_path / f"{name}.tsv", labelled(n, seed)) for name, n, seed in (("a", 300, 1), ("b", 100, 2))
    )
    data = {"task": "classification", "examples": str(examples), "validation_examples": str(held_out)}
    training = {"max_steps": 120, "learning_rate": 0.003, "batch_tokens": 512, "start_from": str(pretrained.model)}
    result = run(tmp_path / "run", data, training=training)
    assert result.progress.best_scores["accuracy"] > 95
    pretrained_bundle, config = load_bundle(pretrained.model), load_bundle(result.model).config.model_dump()
    assert config["labels"] == ("rest", "work")
    assert config["masked"] is False
    assert pretrained_bundle.config.model_dump()["masked"] is True
    rest, work = load(result.model).classify(["monday sunday tuesday", "friday monday monday"])
    assert (rest.name, work.name) == ("rest", "work")
    assert rest.probability == max(rest.probabilities.values()) > 0.5
    with pytest.raises(ConfigError, match="which this task cannot train"):
        run(tmp_path / "no", {"task": "language-model", "text": str(week)}, training={"start_from": str(result.model)})
    with pytest.raises(ConfigError, match=r"model\.family='gpt' .language model. does not support"):
        run(tmp_path / "no", data, model={"family": "gpt"})
    with pytest.raises(ConfigError, match=r"data\.task='poetry' is unknown"):
        parse_recipe({"data": {"task": "poetry"}})


def test_neighbours_are_put_near_each_other(tmp_path: Path) -> None:
    """Catches pairs that are mixed up: each word is paired with its number."""
    rows = [f"{day} {hour}\t{number} {hour}" for number, day in enumerate(DAYS) for hour in range(10, 30)]
    result = run(
        tmp_path / "run", {"task": "embeddings", "examples": str(write_lines(tmp_path / "a.tsv", rows))},
        tokenizer={"vocab_size": 300}, model={"family": "bert", "d_ff": 64, "seq_len": 16, **SMALL},
        training={"max_steps": 150, "learning_rate": 0.003, "batch_tokens": 256, "validate_every": 150},
    )  # fmt: skip
    assert result.progress.best_scores["accuracy"] > 90
    cosines = (vectors := load(result.model).embed(["monday 12", "0 12", "sunday 25"])) @ vectors.T
    assert cosines[0, 1] > cosines[0, 2]


def test_spans_that_were_learned_help_a_text_to_text_task(week: Path, tmp_path: Path) -> None:
    """Catches pretraining that does not help, and weights that are lost in an export followed by an import."""
    pretrained = run(
        tmp_path / "spans", {"task": "spans", "text": str(week), "window": 24, "stride": 4},
        tokenizer={"vocab_size": 300}, model={"family": "t5", "d_ff": 64, **SMALL},
        training={"max_steps": 240, "learning_rate": 0.005, "batch_tokens": 768, "validate_every": 240},
    )  # fmt: skip
    write_published(load_bundle(pretrained.model), tmp_path / "hf")
    imported = read_published(tmp_path / "hf")
    save_bundle(tmp_path / "imported", imported)
    rows = [f"{DAYS[day]} {DAYS[(day + 1) % 7]}\t{DAYS[(day + 2) % 7]} {DAYS[(day + 3) % 7]}" for day in range(7)]
    pairs = write_lines(tmp_path / "next.tsv", rows * 12)
    sides = [write_lines(tmp_path / f"{side}.txt", [row.split("\t")[side] for row in rows]) for side in range(2)]
    data = {"pairs": str(pairs), "drop_duplicates": False, "validation_source": str(sides[0]),
            "validation_target": str(sides[1])}  # fmt: skip
    losses: list[float] = []
    for name, start in (("begun", {"start_from": str(tmp_path / "imported")}), ("anew", {})):
        model = {} if start else {"model": {"family": "t5", "d_ff": 64, **SMALL}, "tokenizer": {"vocab_size": 300}}
        result = run(
            tmp_path / name, data, **model,
            training={"max_steps": 60, "learning_rate": 0.005, "batch_tokens": 256, "label_smoothing": 0.0, **start},
        )  # fmt: skip
        losses.append(result.progress.best_scores["loss"])
    assert losses[0] < 0.8 * losses[1]
    assert load(tmp_path / "begun", workers=1).translate(["monday tuesday"]) != [""]


def test_images_are_recognized(tmp_path: Path) -> None:
    """Catches labels of other images, validation images that are trained on, and swapped image dimensions."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, 300).astype(np.uint8)
    images = generator.integers(0, 60, (300, 8, 12), dtype=np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[2:6, 4 * label : 4 * label + 4] += 150
    files = idx(tmp_path / "images.gz", images), idx(tmp_path / "labels", labels)
    result = run(
        tmp_path / "run",
        {"task": "images", "images": str(files[0]), "labels": str(files[1]), "flip": False, "shift": 1,
         "label_names": ["left", "middle", "right"]},
        model={"family": "vit", "image_size": [8, 12], "patch_size": [4, 4], "d_ff": 64, **SMALL},
        training={"max_steps": 120, "learning_rate": 0.003, "batch_tokens": 448, "validate_every": 120},
    )  # fmt: skip
    assert result.progress.best_scores["accuracy"] > 95
    classifier = load(result.model)
    assert isinstance(classifier, ImageClassifier)
    from PIL import Image

    Image.fromarray(images[0]).save(tmp_path / "one.png")
    assert classifier.classify([tmp_path / "one.png"])[0].name == ("left", "middle", "right")[labels[0]]
    record = json.loads((result.model / "provenance.json").read_text(encoding="utf-8"))
    assert record["data"]["images"] + record["data"]["held_out"] == 300
    assert (tmp_path / "run" / "report.html").is_file()
