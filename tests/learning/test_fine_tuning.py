"""Fine-tuning: a trained model learns a similar task faster than a new model does."""

import shutil
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from samples import digit_pairs, write_lines
from transformer.bundle import load_bundle
from transformer.errors import CheckpointError, ConfigError
from transformer.run.recipe import Recipe, parse_recipe
from transformer.run.train import RunResult, train
from transformer.storage.checkpoint_paths import checkpoint_folder

SHORT = {"max_steps": 40, "batch_tokens": 512, "validate_every": 40, "save_every": 40, "threads": 1}


def recipe(folder: Path, pairs: list[tuple[str, str]], training: dict[str, object], **sections: object) -> Recipe:
    """Writes the pairs into the folder and returns a recipe for them."""
    folder.mkdir(parents=True, exist_ok=True)
    data = {
        "source": str(write_lines(folder / "s", [source for source, _ in pairs])),
        "target": str(write_lines(folder / "t", [target for _, target in pairs])),
        "validation_pairs": 20,
    }
    return parse_recipe({"data": data, "training": {**SHORT, **training}, **sections})


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """Returns a run that has learned to reverse numbers of up to six digits."""
    folder = tmp_path_factory.mktemp("start")
    model = {"d_model": 48, "N": 2, "h": 4, "d_ff": 96, "dropout": 0.0, "tgt_seq_len": 64, "src_seq_len": 64}
    settings = {"max_steps": 160, "validate_every": 160, "learning_rate": 0.006, "warmup_steps": 40}
    tuning_recipe = recipe(folder, digit_pairs(600), settings, model=model, tokenizer={"vocab_size": 300})
    return train(tuning_recipe, folder / "run", quiet=True)


def longer_pairs() -> list[tuple[str, str]]:
    """Returns pairs whose lines hold two numbers of the digit language each."""
    pairs = digit_pairs(800, seed=19)
    return [(f"{s1} {s2}", f"{t2} {t1}") for (s1, t1), (s2, t2) in zip(pairs[::2], pairs[1::2], strict=True)]


def test_fine_tuning_beats_starting_anew(digits: RunResult, tmp_path: Path) -> None:
    """Catches pretrained weights that are not loaded, or that too high a learning rate destroys in the first steps."""
    tuned = train(recipe(tmp_path, longer_pairs(), {"start_from": str(digits.folder)}), tmp_path / "tuned", quiet=True)
    model = load_bundle(digits.folder).config.model_dump(exclude={"src_vocab_size", "tgt_vocab_size"})
    settings = {"learning_rate": 0.006, "warmup_steps": 20}
    scratch = train(
        recipe(tmp_path, longer_pairs(), settings, model=model, tokenizer={"vocab_size": 300}),
        tmp_path / "a",
        quiet=True,
    )
    assert tuned.progress.best_scores["perplexity"] < 0.7 * scratch.progress.best_scores["perplexity"]
    bundle = load_bundle(tuned.folder)
    assert bundle.provenance["start"]["sha256"] == load_bundle(digits.folder).fingerprint
    resolved_recipe = bundle.provenance["recipe"]
    assert resolved_recipe["training"]["learning_rate"] == pytest.approx(0.0006)
    assert resolved_recipe["training"]["warmup_steps"] == 50
    assert resolved_recipe["tokenizer"]["vocab_size"] == 300
    assert bundle.tokenizers.to_files() == load_bundle(digits.folder).tokenizers.to_files()


def test_going_on_does_not_read_the_start_again(digits: RunResult, tmp_path: Path) -> None:
    """Catches a resumed run that restarts from or needs the pretrained model, or differs from an uninterrupted run."""
    pretrained = tmp_path / "start"
    (digits.model).rename(pretrained)
    settings = {"start_from": str(pretrained), "decay_steps": 6}
    try:
        train(recipe(tmp_path, longer_pairs(), {**settings, "max_steps": 6}), tmp_path / "whole", quiet=True)
        train(recipe(tmp_path, longer_pairs(), {**settings, "max_steps": 3}), tmp_path / "parts", quiet=True)
    finally:
        pretrained.rename(digits.model)
    train(recipe(tmp_path, longer_pairs(), {"max_steps": 6}), tmp_path / "parts", quiet=True)
    expected, actual = (
        load_file(tmp_path / run / "checkpoints/step-00000006/model/model.safetensors") for run in ("whole", "parts")
    )
    assert all((expected[name] == actual[name]).all() for name in expected)
    assert load_bundle(tmp_path / "parts").provenance["start"]["model"] == str(pretrained)
    with pytest.raises(CheckpointError, match=r"training.start_from"):
        train(recipe(tmp_path, longer_pairs(), {"start_from": "other"}), tmp_path / "parts", quiet=True)


def test_a_worse_model_is_never_the_best(digits: RunResult, tmp_path: Path) -> None:
    """Catches a pretrained model that a few steps spoil, called the best, and a run that cannot go on from step 0."""
    training = {"start_from": str(digits.folder), "learning_rate": 0.3, "warmup_steps": 1, "ema_decay": 0.5}
    settings = recipe(tmp_path, digit_pairs(600), {**training, "max_steps": 2, "validate_every": 2, "save_every": 2})
    for _ in range(2):
        spoiled = train(settings, tmp_path / "run", quiet=True)
        assert sorted(spoiled.progress.validations) == [0, 2]
        assert spoiled.progress.best_step == 0
        expected, kept = (load_file(run.model / "model.safetensors") for run in (digits, spoiled))
        assert all((expected[name] == kept[name]).all() for name in expected)
        shutil.rmtree(checkpoint_folder(spoiled.folder, 2))


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        (
            {"model": {"d_model": 64, "dropout": 0.3}},
            r"another model than the recipe's: model.d_model=64 \(there 48\); ",
        ),
        ({"tokenizer": {"joint": False}}, r"tokenizer.joint=False \(there True\)"),
        ({"training": {"schedule": "paper"}}, r"training.schedule='paper' derives a learning rate"),
    ],
)
def test_another_architecture_is_refused(
    digits: RunResult, tmp_path: Path, sections: dict[str, dict[str, object]], message: str
) -> None:
    """Catches weights loaded into a model that they do not fit, and a recipe key that is silently ignored."""
    training = {"start_from": str(digits.folder), **sections.pop("training", {})}
    with pytest.raises(ConfigError, match=message):
        train(recipe(tmp_path, longer_pairs(), training, **sections), tmp_path / "run", quiet=True)


def test_dropout_may_differ(digits: RunResult, tmp_path: Path) -> None:
    """Catches a dropout that is silently replaced by that of the pretrained model."""
    tuning_recipe = recipe(
        tmp_path, longer_pairs(), {"start_from": str(digits.folder), "max_steps": 1}, model={"dropout": 0.25}
    )
    tuned = load_bundle(train(tuning_recipe, tmp_path / "run", quiet=True).folder)
    assert (tuned.config.model_dump()["dropout"], tuned.config.model_dump()["d_model"]) == (0.25, 48)
