"""Tests of torch.compile, which run in a separate process because the shape checks cannot be traced."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from samples import tiny_recipe
from transformer.data.dataset import pair_batch
from transformer.errors import ConfigError
from transformer.run.recipe import parse_recipe
from transformer.run.train import train
from transformer.training.objectives.translation import TranslationObjective
from transformer.transformer import build_transformer


@pytest.mark.filterwarnings("ignore")
def test_compiled_objective_gives_the_same_loss_and_gradients() -> None:
    """Catches code in the model that tracing changes: Python state, data-dependent shapes."""
    torch.manual_seed(3)
    model = build_transformer(17, 17, 12, 12, d_model=16, N=1, h=2, d_ff=24, dropout=0.0, share_embeddings="all")
    objective = TranslationObjective(model, label_smoothing=0.1)
    generator = np.random.default_rng(1)
    rows = [generator.integers(4, 17, n).astype(np.int32) for n in (3, 7, 5)]
    batch = pair_batch(rows, rows[::-1])
    results = []
    for run in (objective, torch.compile(objective, backend="aot_eager")):
        objective.zero_grad()
        result = run(batch)
        result.loss_sum.backward()
        results.append((result.loss_sum.detach(), [parameter.grad for parameter in objective.parameters()]))
    torch.testing.assert_close(results[1], results[0], atol=1e-4, rtol=1e-4)


@pytest.mark.filterwarnings("ignore")
def test_a_run_with_compiled_layers_learns_the_same(digit_corpus: tuple[Path, Path], tmp_path: Path) -> None:
    """Catches a setting that compiles nothing, kernels that `torch.compile` cannot trace, and different losses."""
    losses: list[list[float]] = []
    for compiled in (False, True):
        settings = {"max_steps": 4, "log_every": 1, "precision": "float32", "compile": compiled}
        recipe = tiny_recipe(digit_corpus, **settings)
        recipe["model"] |= {"dropout": 0.0, "N": 1}
        torch._dynamo.utils.counters.clear()
        train(parse_recipe(recipe), tmp_path / str(compiled), quiet=True)
        assert bool(torch._dynamo.utils.counters["stats"]["unique_graphs"]) == compiled
        lines = (tmp_path / str(compiled) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        losses.append([record["loss"] for record in map(json.loads, lines) if record["kind"] == "train"])
    assert len(losses[0]) == 4
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


def test_compiled_layers_are_not_computed_again(digit_corpus: tuple[Path, Path]) -> None:
    """Catches a setting that is silently ignored: layers with activation checkpointing are not compiled."""
    with pytest.raises(ConfigError, match=r"training\.compile and training\.activation_checkpointing exclude"):
        parse_recipe(tiny_recipe(digit_corpus, compile=True, activation_checkpointing=True))
