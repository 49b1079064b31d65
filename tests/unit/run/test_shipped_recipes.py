"""The recipes in `recipes/`: all load, and the paper's recipes have the paper's settings."""

from pathlib import Path

import pytest

from samples import ROOT, digit_pairs, write_lines
from transformer.run.recipe import load_recipe
from transformer.run.train import train

PAPER = {
    "en-de-base": (100_000, 0.1, 512, 5, 37_000),
    "en-de-big": (300_000, 0.3, 1024, 20, 37_000),
    "en-fr-big": (300_000, 0.1, 1024, 20, 32_000),
}
"""Steps, dropout, width, averaged checkpoints and tokens (Vaswani et al. 2017, Sec. 5.1 and 6.1, Table 3)."""


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").glob("*.toml")), ids=lambda path: path.stem)
def test_every_recipe_loads_and_says_what_to_expect(path: Path) -> None:
    """Catches a key that was renamed, and a recipe without expected score and time."""
    load_recipe(path)
    opening = path.read_text(encoding="utf-8").splitlines()[:3]
    assert all(line.startswith("#") for line in opening[:2])
    assert any(figure in " ".join(opening) for figure in ("BLEU", "% on", "nats"))


@pytest.mark.slow
@pytest.mark.parametrize("name", PAPER)
def test_the_papers_recipes_run_on_any_corpus(name: str, digit_corpus: tuple[Path, Path], tmp_path: Path) -> None:
    """Catches settings other than the paper's, and a recipe that needs the paper's data: a few steps, small sizes."""
    held_out = [write_lines(tmp_path / f"v{side}", [pair[side] for pair in digit_pairs(7)]) for side in (0, 1)]
    small: dict[str, object] = {
        "data.source": digit_corpus[0], "data.target": digit_corpus[1], "data.validation_source": held_out[0],
        "data.validation_target": held_out[1], "data.test_source": digit_corpus[0], "tokenizer.vocab_size": 300,
        "model.d_model": 16, "model.d_ff": 24, "model.h": 2, "model.N": 2, "training.batch_tokens": 300,
        "training.max_steps": 3, "training.save_every": 1, "training.threads": 1,
    }  # fmt: skip
    path = ROOT / "recipes" / f"wmt14-{name}.toml"
    recipe = load_recipe(path)
    training, model = recipe.training, recipe.model.model_dump()
    sizes = training.max_steps, model["dropout"], model["d_model"], training.average_last, recipe.tokenizer.vocab_size
    assert sizes == PAPER[name]
    assert (training.schedule, training.warmup_steps, training.label_smoothing) == ("paper", 4000, 0.1)
    assert (training.batch_tokens, model["norm_order"]) == (25_000, "post")
    result = train(load_recipe(path, [f"{key}={value}" for key, value in small.items()]), tmp_path / "run", quiet=True)
    assert result.progress.step == 3
    assert result.average_scores["loss"] > 0


def test_parsing_has_the_papers_settings() -> None:
    """Catches settings other than those of Sec. 6.3: 4 layers, d_model 1024, 16,000 tokens, all else as in base."""
    parsing, base = (load_recipe(ROOT / "recipes" / f"{name}.toml") for name in ("parsing", "wmt14-en-de-base"))
    model = {"N": 4, "d_model": 1024}
    assert parsing.model.model_dump() == base.model.model_dump() | model
    assert parsing.tokenizer.vocab_size == 16_000
    training = {"best_metric": "loss"}
    assert parsing.training.model_dump() == base.training.model_dump() | training


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").glob("*-en-de*.toml")), ids=lambda path: path.stem)
def test_recipes_of_published_scores_keep_their_metric(path: Path) -> None:
    """Catches a new default that changes which checkpoint a published figure is of."""
    training = load_recipe(path).training
    assert "best_metric" in training.model_fields_set
    assert training.best_metric == ("loss" if path.stem.endswith("wu2021") else "bleu")
