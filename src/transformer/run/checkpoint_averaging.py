"""From several bundles to the one that holds the mean of their parameters."""

import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from transformer.bundle import Bundle, load_bundle, save_bundle
from transformer.errors import BundleError, ConfigError
from transformer.storage.checkpoints import AVERAGE
from transformer.training.config import TrainingConfig
from transformer.training.monitoring.progress import Progress
from transformer.training.optim.ema import ParameterMean


def steps_to_average(progress: Progress, training: TrainingConfig, stored: Sequence[int] = ()) -> list[int]:
    """The steps whose checkpoints a recipe has averaged at the end, in order; empty where it asks for none.

    The last ones are those at multiples of `save_every` and the last of all, whatever else was saved on the way, so
    that a run that was stopped and continued averages what the unbroken one does. Where the recipe asks for them only
    since a while, those of `stored`, the steps that have a checkpoint, are taken too.
    """
    if training.average_best:
        return sorted(progress.leaders[: training.average_best])
    if training.average_last:
        every = training.save_every
        scheduled = [step for step in stored if isinstance(every, int) and step % every == 0]
        return sorted({*scheduled, *progress.recent, progress.step})[-training.average_last :]
    return []


def stored_average(run: Path) -> Bundle | None:
    """The averaged and validated model of a run, or None where it has none that is whole."""
    try:
        bundle = load_bundle(run / AVERAGE)
    except BundleError:
        return None
    return bundle if {"averaged", "validation"} <= bundle.provenance.keys() else None


def replace_average(run: Path, bundle: Bundle) -> None:
    """Stores the averaged model of a run in place of an earlier one; in between the run has none."""
    for folder in (run / AVERAGE, *run.glob(f".writing-{AVERAGE}-*")):  # the latter were left by a kill
        shutil.rmtree(folder, ignore_errors=True)
    save_bundle(run / AVERAGE, bundle)


def average_bundles(paths: Sequence[Path]) -> Bundle:
    """The mean of the models of several bundles, read one after the other.

    A matrix that stands in several places is averaged once and stays one. What is not a parameter, and the
    provenance, is that of the last; `provenance["averaged"]` names all.

    Args:
        paths: bundles or run folders, oldest first.

    Raises:
        ConfigError: none is given, or two are not of one configuration or tokenizer.
        BundleError: one cannot be read.
    """
    mean, first, bundle, sources = ParameterMean(), dict[str, Any](), None, list[dict[str, Any]]()
    for path in paths:
        bundle = load_bundle(path)
        first = first or _identity(bundle)
        _refuse_difference(paths[0], first, path, _identity(bundle))
        mean.add(dict(bundle.model.named_parameters()))
        sources.append({"model": str(path), "step": bundle.provenance.get("step"), "sha256": bundle.fingerprint})
    if bundle is None:
        raise ConfigError("there is nothing to average; give at least one model")
    with torch.no_grad():
        for name, tensor in mean.mean().items():
            bundle.model.get_parameter(name).copy_(tensor)
    created = datetime.now(UTC).isoformat(timespec="seconds")
    kept = {key: value for key, value in bundle.provenance.items() if key not in ("step", "validation")}
    return Bundle(bundle.config, bundle.model, bundle.text, kept | {"averaged": sources, "created": created})


def _identity(bundle: Bundle) -> dict[str, Any]:
    """What must be the same in all: the configuration's keys, and the tokenizers as they are stored."""
    return bundle.config.model_dump() | (bundle.text.to_files() if bundle.text else {})


def _refuse_difference(first_path: Path, first: dict[str, Any], path: Path, other: dict[str, Any]) -> None:
    keys = [key for key in sorted(first.keys() | other.keys()) if first.get(key) != other.get(key)]
    differing = [key if key.endswith(".json") else f"{key} {first.get(key)} and {other.get(key)}" for key in keys]
    if differing:
        raise ConfigError(f"{first_path} and {path} differ ({', '.join(differing)}); average models of one run")
