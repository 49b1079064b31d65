"""Runs that are fitted into a time, by a clock that advances with every reading."""

from pathlib import Path

import pytest

from samples import digit_pairs, tiny_recipe, write_lines
from transformer.bundle import load_bundle
from transformer.errors import CheckpointError, ConfigError
from transformer.models.transformer.config import PRESETS
from transformer.run.defaults import CorpusSize, complete, corpus_defaults
from transformer.run.recipe import Recipe, load_recipe, parse_recipe
from transformer.run.resume import continue_recipe
from transformer.run.train import RunResult, train
from transformer.runtime.stopwatch import Stopwatch
from transformer.storage.checkpoint_paths import resolve_model

FITTED = ("max_steps", "warmup_steps", "validate_every", "save_every")
TICK = 0.2
"""Seconds by which the clock advances; an update takes a few readings more than in the trial."""
WIDTHS = {"mini": 16, "small": 24}


def ticking(seconds: float) -> Stopwatch:
    """Returns a stopwatch whose clock advances by some seconds whenever it is read."""
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += seconds
        return now

    return Stopwatch(clock)


@pytest.fixture
def corpus(tmp_path: Path) -> tuple[Path, Path]:
    """Returns the files of a small corpus."""
    source, target = zip(*digit_pairs(300), strict=True)
    return write_lines(tmp_path / "c.en", source), write_lines(tmp_path / "c.de", target)


def fitted_recipe(corpus: tuple[Path, Path], **training: object) -> Recipe:
    tree = tiny_recipe(corpus, **{"minutes": 0.6, "patience": 0, **training})
    tree["training"] = {key: value for key, value in tree["training"].items() if key not in FITTED or key in training}
    return parse_recipe(tree)


def settings_of(result: RunResult) -> Recipe:
    return load_recipe(result.folder / "recipe.toml")


def test_a_run_is_fitted_and_ends_with_its_best_model(tmp_path: Path, corpus: tuple[Path, Path]) -> None:
    """Catches a run that is longer than its time, and one without the model of its best validation."""
    stopwatch = ticking(TICK)
    result = train(fitted_recipe(corpus), tmp_path / "run", quiet=True, stopwatch=stopwatch)
    training = settings_of(result).training
    assert stopwatch.seconds <= 36
    assert result.progress.finished in ("max_steps", "max_seconds")
    assert result.progress.step >= 10
    assert resolve_model(result.folder).exists()
    assert training.minutes == 0.6
    assert training.max_steps is not None
    assert training.decay_steps == training.max_steps
    assert training.warmup_steps == max(1, round(0.1 * training.max_steps))
    assert result.progress.best_step is not None
    assert training.max_seconds is not None
    assert training.max_seconds < 36


def test_keys_that_are_set_stay(tmp_path: Path, corpus: tuple[Path, Path]) -> None:
    """Catches a key of the recipe that is fitted although it is set."""
    recipe = fitted_recipe(corpus, max_steps=7, warmup_steps=3, learning_rate=0.002)
    result = train(recipe, tmp_path / "run", quiet=True, stopwatch=ticking(TICK))
    training = settings_of(result).training
    assert (training.max_steps, training.warmup_steps, training.learning_rate) == (7, 3, 0.002)
    assert result.progress.step == 7


def test_a_resumed_run_keeps_its_plan(tmp_path: Path, corpus: tuple[Path, Path]) -> None:
    """Catches a resumed run that measures again, by the same command or without the time."""
    first = train(fitted_recipe(corpus), tmp_path / "run", quiet=True, stopwatch=ticking(TICK))
    before = settings_of(first)
    for minutes in (0.6, None):
        again = train(fitted_recipe(corpus, minutes=minutes), tmp_path / "run", quiet=True, stopwatch=ticking(9.0))
        assert again.progress.step == first.progress.step
        assert settings_of(again) == before


def test_minutes_change_only_if_allowed(tmp_path: Path, corpus: tuple[Path, Path]) -> None:
    """Catches a longer time that is ignored in silence."""
    first = train(fitted_recipe(corpus), tmp_path / "run", quiet=True, stopwatch=ticking(TICK))
    before, longer = settings_of(first).training.max_seconds, fitted_recipe(corpus, minutes=1)
    with pytest.raises(CheckpointError, match=r"training.minutes was 0.6, now 1.0"):
        train(longer, tmp_path / "run", quiet=True, stopwatch=ticking(TICK))
    again = train(longer, tmp_path / "run", quiet=True, allow_changed=["training.minutes"], stopwatch=ticking(TICK))
    assert before is not None
    assert settings_of(again).training.max_seconds == pytest.approx(before + 24)


def test_too_short_a_time_is_refused(tmp_path: Path, corpus: tuple[Path, Path]) -> None:
    """Catches a run that cannot be validated once, and a hint with which it is refused again."""
    with pytest.raises(ConfigError, match=r"training.minutes=0.1 is too short: .* give at least (\d+\.?\d*)$") as error:
        train(fitted_recipe(corpus, minutes=0.1), tmp_path / "run", quiet=True, stopwatch=ticking(0.5))
    enough = float(str(error.value).rpartition(" ")[2])
    train(fitted_recipe(corpus, minutes=enough), tmp_path / "run", quiet=True, stopwatch=ticking(0.5))


def test_no_time_changes_nothing() -> None:
    """Catches a recipe without the key that is planned in another way, or that records more keys."""
    recipe = parse_recipe({"data": {"source": "a", "target": "b"}})
    completed = complete(recipe, corpus_defaults(recipe, 200_000))
    assert completed.recipe.training.minutes is completed.recipe.training.max_seconds is None
    resumed = continue_recipe(recipe, completed.recipe)
    assert resumed.training.minutes is resumed.training.max_seconds is None
    assert resumed.model is None


def test_sizes_up_to_that_of_the_corpus_are_tried() -> None:
    """Catches a large model for a small corpus, and a choice where the recipe has made it."""

    def sizes(pairs: int, **sections: object) -> list[str]:
        recipe = parse_recipe({"data": {"source": "a", "target": "b"}, **sections})
        return list(complete(recipe, corpus_defaults(recipe, pairs)).sizes)

    assert sizes(4_000) == sizes(60_000) == ["mini"]
    assert sizes(500_000) == ["mini", "small"]
    assert sizes(5_000_000) == ["mini", "small", "base"]
    assert sizes(5_000_000, model={"dropout": 0.2}) == ["mini", "small", "base"]
    assert sizes(5_000_000, model={"preset": "tiny"}) == sizes(5_000_000, model={"d_ff": 64}) == []


@pytest.mark.parametrize("chosen", ["mini", "small"])
def test_the_chosen_size_is_trained_and_kept(
    chosen: str, tmp_path: Path, corpus: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a plan of another model than the one that was chosen, and a resumed run with the default one."""
    for preset, d_model in WIDTHS.items():
        monkeypatch.setitem(PRESETS, preset, {"d_model": d_model, "N": 1, "h": 2, "d_ff": 24})
    small = CorpusSize(below_pairs=1e9, preset="small", dropout=0.1, vocab_size=300, epochs=5)
    sizes = small.model_copy(update={"preset": "mini", "below_pairs": 10.0}), small
    monkeypatch.setattr("transformer.run.defaults.SIZES", sizes)
    monkeypatch.setattr("transformer.run.time_fit.best_size", lambda sizes: chosen if chosen in sizes else "mini")
    recipe = fitted_recipe(corpus, minutes=0.6).model_copy(update={"model": None})
    for speed in (TICK, 9.0):
        result = train(recipe, tmp_path / "run", quiet=True, stopwatch=ticking(speed))
        model = settings_of(result).model
        assert model is not None
        assert model.d_model == load_bundle(result.model).config.d_model == WIDTHS[chosen]
