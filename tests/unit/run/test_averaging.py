"""Averages of parameters: over several models, and over the steps of one."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import nn

from samples import tiny_recipe, training_settings
from transformer.bundle import Bundle, load_bundle, save_bundle
from transformer.cli.average import average
from transformer.errors import ConfigError
from transformer.models.transformer.config import TransformerConfig
from transformer.models.transformer.model import build
from transformer.run.checkpoint_averaging import average_bundles, steps_to_average
from transformer.run.recipe import parse_recipe
from transformer.run.train import RunResult, train
from transformer.storage.checkpoint_paths import resolve_model
from transformer.tokenizers.config import TokenizerConfig
from transformer.tokenizers.pair import TokenizerPair
from transformer.training.checkpoint import CheckpointManager
from transformer.training.config import TrainingConfig
from transformer.training.monitoring.progress import Progress
from transformer.training.optim.ema import ParameterMean, update_ema, use_ema_parameters


def test_the_mean_is_exact() -> None:
    """Catches sums in float32: equal values must be exact, and small values must survive large ones."""
    mean = ParameterMean()
    with pytest.raises(ConfigError, match="no models to average; add at least one"):
        mean.mean()
    same = torch.randn(31)
    for large in (1e8, 1.0, -1e8):
        mean.add({"same": same, "sum": torch.tensor([large])})
    assert torch.equal(mean.mean()["same"], same)
    assert mean.mean()["sum"].item() == pytest.approx(1 / 3, rel=1e-6)
    assert mean.mean()["sum"].dtype == torch.float32
    for other in ({"same": same}, {"same": same[:5], "sum": torch.ones(1)}):
        with pytest.raises(ConfigError, match=r"parameters differ \(s"):
            mean.add(other)


@pytest.fixture(scope="module")
def tokenizers() -> TokenizerPair:
    return TokenizerPair.train(lambda: ["ab"], lambda: ["cd"], TokenizerConfig(vocab_size=260))


def store(folder: Path, tokenizers: TokenizerPair, seed: int, **changes: object) -> Path:
    """Saves a bundle of a small model with random weights and shared embeddings; returns its folder."""
    torch.manual_seed(seed)
    sizes = {"src_vocab_size": 260, "tgt_vocab_size": 260, "d_model": 8, "N": 1, "h": 2, "d_ff": 5, **changes}
    config = TransformerConfig.model_validate(sizes)
    save_bundle(folder, Bundle(config, build(config), tokenizers, {"step": seed, "max_source_tokens": 9}))
    return folder


def test_bundles_are_averaged_and_stay_tied(tokenizers: TokenizerPair, tmp_path: Path) -> None:
    """Catches a shared matrix that is untied or counts three times, and an incomplete provenance."""
    paths = [store(tmp_path / f"m{seed}", tokenizers, seed) for seed in (1, 2, 4)]
    bundle = average_bundles(paths)
    save_bundle(tmp_path / "mean", bundle)
    model = load_bundle(tmp_path / "mean").model
    assert model.projection_layer.proj.weight is model.src_embed.embedding.weight is model.tgt_embed.embedding.weight
    stored = load_file(tmp_path / "mean" / "model.safetensors")
    parts = [load_file(path / "model.safetensors") for path in paths]
    assert stored.keys() == parts[0].keys()
    for name, values in stored.items():
        expected = np.mean([part[name] for part in parts], axis=0, dtype=np.float64)
        np.testing.assert_array_equal(values, expected.astype(np.float32))
    assert [source["step"] for source in bundle.provenance["averaged"]] == [1, 2, 4]
    assert all(len(source["sha256"]) == 64 for source in bundle.provenance["averaged"])
    assert "validation" not in bundle.provenance


def test_models_that_differ_are_refused_by_what_differs(tokenizers: TokenizerPair, tmp_path: Path) -> None:
    """Catches the mean of two models with different tokenizers or architectures."""
    first = store(tmp_path / "a", tokenizers, 1)
    wide = store(tmp_path / "b", tokenizers, 1, d_ff=7)
    with pytest.raises(ConfigError, match=r"a and .*b differ \(d_ff 5 and 7\); average models of one run"):
        average_bundles([first, wide])
    settings = TokenizerConfig(vocab_size=260, lowercase=True)
    other = TokenizerPair.train(lambda: ["xyxy"] * 9, lambda: ["xyxy"], settings)
    third = store(tmp_path / "c", other, 1)
    with pytest.raises(ConfigError, match=r"differ \(tokenizer.json\)"):
        average_bundles([first, third])
    with pytest.raises(ConfigError, match="there is nothing to average"):
        average_bundles([])


def test_which_steps_are_averaged() -> None:
    """Catches a checkpoint saved only because of an interruption, and the worst instead of the best."""
    progress = Progress(step=11, best_step=6, recent=[3, 6, 9], leaders=[6, 2, 10])
    assert steps_to_average(progress, training_settings(average_last=3)) == [6, 9, 11]
    assert steps_to_average(progress, training_settings(average_last=4, save_every=3), [2, 3, 5, 6, 9]) == [3, 6, 9, 11]
    assert steps_to_average(progress, training_settings(average_best=2)) == [2, 6]
    assert steps_to_average(progress, training_settings()) == []
    assert progress.needed_steps == {6, 3, 9, 2, 10}
    with pytest.raises(ValueError, match="average_best exclude each other"):
        TrainingConfig(average_last=3, average_best=2)


def run(corpus: tuple[Path, Path], folder: Path, **training: object) -> RunResult:
    return train(parse_recipe(tiny_recipe(corpus, **training)), folder, quiet=True)


@pytest.mark.slow
def test_a_run_averages_its_last_checkpoints(digit_corpus: tuple[Path, Path], tmp_path: Path) -> None:
    """Catches checkpoints removed before they are averaged, a score of other weights, and a wrong best model."""
    settings = {"validate_every": 4, "save_every": 2, "best_metric": "loss", "average_last": 3}
    result = run(digit_corpus, tmp_path / "run", **settings)
    bundle = load_bundle(tmp_path / "run" / "average")
    assert [source["step"] for source in bundle.provenance["averaged"]] == [8, 10, 12]
    validation = bundle.provenance["validation"]
    assert validation["scores"] == result.average_scores
    assert validation["score"] == -result.average_scores["loss"]
    assert result.progress.best_scores["loss"] == -result.progress.best_score
    is_better = validation["score"] > result.progress.best_score
    assert (result.model == tmp_path / "run" / "average") == is_better
    assert resolve_model(tmp_path / "run") == result.model
    steps = [load_file(tmp_path / f"run/checkpoints/step-{n:08d}/model/model.safetensors") for n in (8, 10, 12)]
    averaged = load_file(tmp_path / "run/average/model.safetensors")
    name = "encoder.layers.0.feed_forward_block.linear_1.weight"
    expected = np.mean([step[name] for step in steps], axis=0, dtype=np.float64)
    np.testing.assert_array_equal(averaged[name], expected.astype(np.float32))
    rows = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert [row["loss"] for row in rows if row["kind"] == "average"] == [result.average_scores["loss"]]
    before = (tmp_path / "run/average/manifest.sha256").stat().st_mtime_ns
    assert run(digit_corpus, tmp_path / "run", **settings).average_scores == result.average_scores
    assert (tmp_path / "run/average/manifest.sha256").stat().st_mtime_ns == before
    (tmp_path / "run" / ".writing-average-99").mkdir()
    run(digit_corpus, tmp_path / "run", **settings, max_steps=16)
    assert not list((tmp_path / "run").glob(".writing*"))
    again = load_bundle(tmp_path / "run" / "average")
    assert [source["step"] for source in again.provenance["averaged"]] == [12, 14, 16]


@pytest.mark.slow
def test_the_best_are_kept_to_be_averaged(digit_corpus: tuple[Path, Path], tmp_path: Path) -> None:
    """Catches a second best checkpoint that is removed, or never saved, because it was never the best."""
    settings = {"validate_every": 2, "save_every": 12, "keep_last": 1, "best_metric": "loss", "average_best": 2}
    result = run(digit_corpus, tmp_path / "run", **settings)
    losses = {step: scores["loss"] for step, scores in result.progress.validations.items()}
    best = sorted(losses, key=lambda step: losses[step])[:2]
    averaged = load_bundle(tmp_path / "run" / "average").provenance["averaged"]
    assert [source["step"] for source in averaged] == sorted(best)


def test_the_average_is_the_model_only_where_it_is_better(tiny_run: Path, tmp_path: Path) -> None:
    """Catches an average that is used although it is not better."""
    folder = shutil.copytree(tiny_run, tmp_path / "run")
    best = CheckpointManager(folder).latest().progress.best_score
    (folder / "average").mkdir()
    for score, name in ((best + 1, "average"), (best, "model"), (None, "model"), ("x", "model")):
        (folder / "average" / "provenance.json").write_text(json.dumps({"validation": {"score": score}}))
        assert resolve_model(folder).name == name


COMMAND_LINE = [
    (["--last", "2", "--best", "2"], "--last and --best are mutually exclusive"),
    (["--last", "9"], "checkpoints, but --last 9 asks for more; ask for fewer"),
    (["--best", "2"], "keeps 1 checkpoint, but --best 2 asks for more"),
    ([], "is a single model; give several models"),
    (["other", "--last", "2"], "select checkpoints of one run, but 2 paths are given"),
]


@pytest.mark.parametrize(("arguments", "message"), COMMAND_LINE)
def test_what_cannot_be_averaged_is_said(tiny_run: Path, tmp_path: Path, arguments: list[str], message: str) -> None:
    """Catches a mean of fewer models than were asked for."""
    models = [argument for argument in arguments if not argument.startswith("--") and not argument.isdigit()]
    numbers = dict(zip(arguments[len(models) :: 2], arguments[len(models) + 1 :: 2], strict=True))
    last, best = (int(numbers[name]) if name in numbers else None for name in ("--last", "--best"))
    with pytest.raises(ConfigError, match=message):
        average([tiny_run, *map(Path, models)], tmp_path / "out", last, best)


def test_the_command_averages_a_run(tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches an order of steps that is wrong, and a model that is not written."""
    average([tiny_run], tmp_path / "out", last=2)
    assert [source["step"] for source in load_bundle(tmp_path / "out").provenance["averaged"]] == [100, 200]
    assert "averaged 2 models" in capsys.readouterr().out
    average([tmp_path / "out", tmp_path / "out"], tmp_path / "same")
    weights = [load_file(tmp_path / name / "model.safetensors") for name in ("out", "same")]
    assert all((weights[0][name] == weights[1][name]).all() for name in weights[0])


def test_running_mean_by_hand() -> None:
    """Catches a full decay in the first steps, and a mean of the wrong steps."""
    layer = nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.0)
    values = [2.0, 4.0, -1.0]
    for step, value in enumerate(values, start=1):
        nn.init.constant_(layer.weight, value)
        update_ema(optimizer, 0.2, step)
    # d is min(0.2, 2/11, 3/12, 4/13): the first value, then 0.2 of the mean and 0.8 of the value.
    expected = 0.2 * (0.2 * 2.0 + 0.8 * 4.0) + 0.8 * -1.0
    with use_ema_parameters(optimizer):
        assert layer.weight.item() == pytest.approx(expected, rel=1e-6)
    assert layer.weight.item() == -1.0
    with pytest.raises(RuntimeError, match="boom"), use_ema_parameters(optimizer):
        raise RuntimeError("boom")
    assert layer.weight.item() == -1.0


@pytest.mark.slow
def test_a_run_with_a_running_mean_continues_to_the_bit(digit_corpus: tuple[Path, Path], tmp_path: Path) -> None:
    """Catches a mean or parameters that are lost at a stop; the mean is saved as the model."""
    settings = {"ema_decay": 0.9, "decay_steps": 12}
    run(digit_corpus, tmp_path / "whole", **settings)
    for steps in (5, 12):
        run(digit_corpus, tmp_path / "parts", **settings, max_steps=steps)
    run(digit_corpus, tmp_path / "plain", decay_steps=12)
    last = "checkpoints/step-00000012"
    for name in ("model/model.safetensors", "optimizer.safetensors"):
        expected, actual = (load_file(tmp_path / folder / last / name) for folder in ("whole", "parts"))
        assert expected.keys() == actual.keys()
        assert all((expected[key] == actual[key]).all() for key in expected)
    plain = load_file(tmp_path / "plain" / last / "model/model.safetensors")
    trained = load_file(tmp_path / "whole" / last / "optimizer.safetensors")
    mean = load_file(tmp_path / "whole" / last / "model/model.safetensors")
    name, _ = next(load_bundle(tmp_path / "plain" / last / "model").model.named_parameters())
    assert (trained[f"average/{name}"] == plain[name]).all()
    assert not (mean[name] == plain[name]).any()
