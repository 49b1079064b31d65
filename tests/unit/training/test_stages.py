"""Stages of a run: which examples are seen when, where a stage ends, and what resuming repeats."""

import json
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from samples import digit_pairs, fast_first, tiny_recipe, training_settings, write_lines
from transformer.bundle import load_bundle
from transformer.data.batch import PairBatch
from transformer.data.dataset import pair_batch
from transformer.errors import ConfigError
from transformer.interfaces import ExampleGroup, LossSum, Stage
from transformer.run.recipe import Recipe, load_recipe, parse_recipe
from transformer.run.train import train as train_by_recipe
from transformer.training.interruption import watch_signals
from transformer.training.loop import Callbacks, train
from transformer.training.monitoring.progress import Progress, Refit
from transformer.training.monitoring.reporter import Reporter
from transformer.training.stages import check_stages_fit, current_stage, stage_ends
from transformer.training.step import TrainingState

FIRST = 100
"""Token of the first example; the others follow."""


class Numbered:
    """A dataset of eleven pairs of one token, of which two make a batch; the token tells the pair."""

    lengths = np.full((11, 2), 2, dtype=np.int32)
    mix = ()

    def fetch(self, ids: np.ndarray) -> PairBatch:
        """Returns the batch."""
        rows = [np.array([FIRST + int(i)], dtype=np.int32) for i in ids]
        return pair_batch(rows, rows)


class Recorder(nn.Module):
    """An objective that records the pairs of every batch."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.seen: list[list[int]] = []

    def forward(self, batch: PairBatch) -> LossSum:
        """Records the pairs."""
        self.seen.append((batch.src[:, 0] - FIRST).tolist())
        loss = self.weight * 1.0
        return LossSum(loss, batch.scored_tokens, {"nll_sum": loss.detach()})


def stages(*weights: tuple[float, float], share: float = 0.6, steps: int | None = None) -> tuple[Stage, ...]:
    """Returns stages of a file of seven pairs and one of four."""
    mixes = [(ExampleGroup(7, float(first)), ExampleGroup(4, float(second))) for first, second in weights]
    *others, last = [Stage(f"s{n}", mix) for n, mix in enumerate(mixes)]
    return *(replace(stage, share=None if steps else share, steps=steps) for stage in others), last


def run(
    folder: Path, parts: tuple[Stage, ...], progress: Progress | None = None, **training: Any
) -> tuple[list[list[int]], dict[int, Any]]:
    """Trains; returns the pairs of each batch, and the progress that was saved at each step."""
    settings = training_settings(batch_tokens=4, best_metric="bleu", patience=0, **{"max_steps": 10, **training})
    objective, saved, progress = Recorder(), dict[int, Any](), progress or Progress()
    state = TrainingState(objective, torch.optim.SGD(objective.parameters(), lr=0.0), progress.step, 1)

    def save(progress: Progress) -> None:
        saved[progress.step] = progress.to_json()

    reporter = Reporter(folder / "metrics.jsonl", 10, 1, start=progress, quiet=True)
    with closing(reporter), watch_signals() as interruption:
        callbacks = Callbacks(lambda: {"bleu": 1.0, "loss": 1.0}, save, reporter, interruption)
        train(state, Numbered(), settings, lambda step: 0.0, progress, callbacks, parts)
    return objective.seen, saved


def test_each_stage_sees_its_own_pairs(tmp_path: Path) -> None:
    """Catches an edge that is off by one, a file with weight 0 that is seen, and batches read ahead that are used."""
    seen, saved = run(tmp_path, stages((1, 0), (0, 1)))
    assert len(seen) == 10
    assert sorted(pair for batch in seen[:6] for pair in batch)[-1] < 7 <= min(min(batch) for batch in seen[6:])
    assert sorted(pair for batch in seen[:4] for pair in batch) == list(range(7))
    assert 6 in saved
    assert saved[6]["validations"].keys() >= {"6"}
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(row["step"], row["stage"]) for row in rows if row["kind"] == "stage"] == [(0, "s0"), (6, "s1")]


def test_weights_repeat_the_pairs_of_a_stage(tmp_path: Path) -> None:
    """Catches weights of the first stage in the second: there, a pair of the second file comes twice an epoch."""
    seen, _ = run(tmp_path, stages((1, 0), (0, 2), steps=2))
    epoch = [pair for batch in seen[2:6] for pair in batch]
    assert sorted(epoch) == [7, 7, 8, 8, 9, 9, 10, 10]


@pytest.mark.parametrize("step", [3, 6, 7, 9])
def test_resuming_repeats_the_batches(step: int, tmp_path: Path) -> None:
    """Catches a resumed run that begins another stage, or repeats or leaves out a batch."""
    parts = stages((1, 0.5), (0.25, 1))
    whole, saved = run(tmp_path, parts, save_every=1)
    rest, _ = run(tmp_path, parts, Progress.from_json(saved[step]), save_every=1)
    assert rest == whole[step:]


def test_one_stage_is_a_run_with_weights(tmp_path: Path) -> None:
    """Catches stages that change the order of a run, and runs without stages that differ from before."""
    (tmp_path / "one").mkdir()
    seen, _ = run(tmp_path / "one", stages((1, 1)))
    plain, _ = run(tmp_path, ())
    assert seen == plain


def test_stages_end_at_shares_or_steps() -> None:
    """Catches shares of the wrong length: of the run as it was planned, so that a longer run extends its last stage."""
    settings = training_settings(max_steps=50, decay_steps=50)
    longer, cut = training_settings(max_steps=90, decay_steps=50), training_settings(max_steps=30, decay_steps=50)
    parts = stages((1, 0), (0, 1))
    ends = [stage_ends(parts, length)[0] for length in (settings, longer, cut)]
    assert ends == [30, 30, 18]
    assert [current_stage(parts, Progress(step=step), settings) for step in (0, 29, 30, 49)] == [0, 0, 1, 1]
    assert stage_ends(stages((1, 0), (0, 1), steps=7), settings)[0] == 7
    assert current_stage((), Progress(step=9), settings) == 0


def test_a_shortened_run_shortens_its_stages() -> None:
    """Catches a last stage that a run on a slow machine never reaches."""
    settings, parts = training_settings(max_steps=100, decay_steps=100), stages((1, 0), (0, 1), share=0.8)
    refit = Refit(step=20, position=20.0, last=60, planned=100)
    reached = [current_stage(parts, Progress(step=step, refit=refit), settings) for step in (20, 49, 50, 59)]
    assert reached == [0, 0, 1, 1]


def test_a_stage_without_updates_or_examples_is_refused() -> None:
    """Catches a stage that is left out in silence, and a loop without end over no examples."""
    settings = training_settings(max_steps=10, decay_steps=10)
    with pytest.raises(ConfigError, match="s1 has no update: it begins after 10 of 10"):
        check_stages_fit(stages((1, 0), (0, 1), steps=10), settings)
    with pytest.raises(ConfigError, match="s0 has no update"):
        check_stages_fit(stages((1, 0), (0, 1), share=0.01), settings)
    with pytest.raises(ConfigError, match="weights of s1 leave no example"):
        check_stages_fit(stages((1, 0), (0.1, 0.2)), settings)


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    """Returns a recipe of two files and two stages, of which the last has a validation text of its own."""
    tree = tiny_recipe((tmp_path / "a.en", tmp_path / "a.de"), validate_every=4, save_every=2, keep_last=99)
    for name, count, seed in (("a", 200, 1), ("b", 90, 2), ("v", 12, 3)):
        source, target = zip(*digit_pairs(count, seed), strict=True)
        write_lines(tmp_path / f"{name}.en", source)
        write_lines(tmp_path / f"{name}.de", target)
    paths = {side: [f"{tmp_path}/{name}.{end}" for name in "ab"] for side, end in (("source", "en"), ("target", "de"))}
    domain = {"name": "digits", "weights": [0.2, 1], "validation_source": str(tmp_path / "v.en")}
    domain["validation_target"] = str(tmp_path / "v.de")
    tree["data"] = {**tree["data"], **paths, "stages": [{"name": "words", "share": 0.5, "weights": [1, 0]}, domain]}
    return parse_recipe(tree)


def test_both_validation_texts_are_scored_and_the_last_decides(recipe: Recipe, tmp_path: Path) -> None:
    """Catches scores without a name of their own, and a best checkpoint by the text that does not decide."""
    result = train_by_recipe(recipe, tmp_path / "run", quiet=True)
    scores = result.progress.validations
    assert list(scores) == [4, 6, 8, 12]
    names = {"loss", "perplexity", "bleu", "chrf"}
    assert scores[12].keys() == names | {f"general_{name}" for name in names}
    assert result.progress.best_score == max(score["chrf"] for score in scores.values())
    translated = (tmp_path / "run" / "translations.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["source"] for line in translated] == (tmp_path / "v.en").read_text().splitlines()
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "validation scores, general" in page
    assert "words from step 1, digits from step 7" in page
    stored = load_recipe(tmp_path / "run" / "recipe.toml").data
    assert stored.model_dump()["stages"] == recipe.data.model_dump()["stages"]


@pytest.mark.parametrize("step", fast_first([6, 4, 8], 1))
def test_a_resumed_run_has_the_same_weights(step: int, recipe: Recipe, tmp_path: Path) -> None:
    """Catches a position or a score that is lost within a stage or at its edge."""
    checkpoints, last = tmp_path / "run" / "checkpoints", tmp_path / "run" / "checkpoints" / "step-00000012" / "model"
    whole = train_by_recipe(recipe, tmp_path / "run", quiet=True)
    expected = load_bundle(last).model.state_dict()
    for folder in checkpoints.iterdir():
        if int(folder.name.rpartition("-")[2]) > step:
            shutil.rmtree(folder)
    again = train_by_recipe(recipe, tmp_path / "run", quiet=True)
    assert again.progress.validations == whole.progress.validations
    assert again.progress.position == whole.progress.position
    weights = load_bundle(last).model.state_dict()
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
