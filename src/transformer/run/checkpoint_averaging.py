"""Averaging of checkpoints: a bundle that holds the mean of the parameters of several."""

import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from transformer.bundle import Bundle, load_bundle, save_bundle
from transformer.errors import BundleError, ConfigError
from transformer.storage.checkpoint_paths import AVERAGE
from transformer.training.config import TrainingSettings
from transformer.training.monitoring.progress import Progress
from transformer.training.optim.ema import ParameterMean


def steps_to_average(progress: Progress, settings: TrainingSettings, stored: Sequence[int] = ()) -> list[int]:
    """Returns the steps whose checkpoints are averaged at the end of a run, in order; empty if none are configured.

    `average_last` selects among the multiples of `save_every` and the final step. Other saved checkpoints are ignored,
    so that a run that was stopped and resumed averages the same steps as an uninterrupted one.

    Args:
        progress: Progress of the run.
        settings: Settings of the training.
        stored: Steps that have a checkpoint. Those at multiples of `save_every` are candidates too, since a resumed run
            may have begun without `average_last`.
    """
    if settings.average_best:
        return sorted(progress.leaders[: settings.average_best])
    if settings.average_last:
        every = settings.save_every
        scheduled = [step for step in stored if isinstance(every, int) and step % every == 0]
        return sorted({*scheduled, *progress.recent, progress.step})[-settings.average_last :]
    return []


def stored_average(run: Path) -> Bundle | None:
    """Loads the averaged and validated model of a run, or returns None if none is intact."""
    try:
        bundle = load_bundle(run / AVERAGE)
    except BundleError:
        return None
    return bundle if {"averaged", "validation"} <= bundle.provenance.keys() else None


def replace_average(run: Path, bundle: Bundle) -> None:
    """Replaces the averaged model of a run. Not atomic: between removal and saving, the run has no averaged model."""
    for folder in (run / AVERAGE, *run.glob(f".writing-{AVERAGE}-*")):  # the latter remain after a kill
        shutil.rmtree(folder, ignore_errors=True)
    save_bundle(run / AVERAGE, bundle)


def average_bundles(paths: Sequence[Path]) -> Bundle:
    """Averages the parameters of several bundles, loading one at a time.

    Tied parameters are averaged once and stay tied. Buffers and provenance are those of the last bundle, and
    `provenance["averaged"]` lists all of them.

    Args:
        paths: Bundles or run folders, oldest first.

    Raises:
        ConfigError: `paths` is empty, or the bundles differ in configuration or tokenizer.
        BundleError: A bundle cannot be read.
    """
    mean, first_config, bundle, sources = ParameterMean(), dict[str, Any](), None, list[dict[str, Any]]()
    for path in paths:
        bundle = load_bundle(path)
        first_config = first_config or _comparable_config(bundle)
        _check_same_config(paths[0], first_config, path, _comparable_config(bundle))
        mean.add(dict(bundle.model.named_parameters()))
        sources.append({"model": str(path), "step": bundle.provenance.get("step"), "sha256": bundle.fingerprint})
    if bundle is None:
        raise ConfigError("there is nothing to average; give at least one model")
    with torch.no_grad():
        for name, tensor in mean.mean().items():
            bundle.model.get_parameter(name).copy_(tensor)
    created = datetime.now(UTC).isoformat(timespec="seconds")
    inherited = {key: value for key, value in bundle.provenance.items() if key not in ("step", "validation")}
    return Bundle(bundle.config, bundle.model, bundle.text, inherited | {"averaged": sources, "created": created})


def _comparable_config(bundle: Bundle) -> dict[str, Any]:
    """Returns what all averaged bundles must share: the configuration and the serialized tokenizers."""
    return bundle.config.model_dump() | (bundle.text.to_files() if bundle.text else {})


def _check_same_config(first_path: Path, first: dict[str, Any], path: Path, other: dict[str, Any]) -> None:
    keys = [key for key in sorted(first.keys() | other.keys()) if first.get(key) != other.get(key)]
    differing = [key if key.endswith(".json") else f"{key} {first.get(key)} and {other.get(key)}" for key in keys]
    if differing:
        raise ConfigError(f"{first_path} and {path} differ ({', '.join(differing)}); average models of one run")
