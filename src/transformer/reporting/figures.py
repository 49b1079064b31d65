"""Figures of training curves and attention, drawn if matplotlib is installed."""

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Final

from transformer.errors import ConfigError
from transformer.pipelines.translation.attention_maps import CrossAttention
from transformer.reporting.record import read_metrics
from transformer.storage.atomic import atomic_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCORES: Final = {"bleu": "BLEU", "accuracy": "accuracy (%)"}
"""Metrics that are drawn together with the loss, with their axis labels."""


def training_curve(run: Path) -> Path | None:
    """Draws loss, and BLEU or accuracy, of a run from its `metrics.jsonl` into `curve.png`.

    Returns:
        Path of the image, or None if matplotlib is not installed.
    """
    if not _can_draw():
        return None
    rows = read_metrics(run)
    train = [row for row in rows if row["kind"] == "train"]
    validation = [row for row in rows if row["kind"] == "validation"]
    figure = new_figure(8.0, 4.5)
    axes = figure.subplots()
    axes.plot([row["step"] for row in train], [row["loss"] for row in train], color="tab:gray", label="training loss")
    axes.plot(
        [row["step"] for row in validation], [row["loss"] for row in validation], "o-", ms=3, label="validation loss"
    )
    axes.set(xlabel="step", ylabel="loss (nats)", title=run.name)
    metric = next((name for name in SCORES if any(name in row for row in validation)), None)
    if metric:
        scores = axes.twinx()
        points = [(row["step"], row[metric]) for row in validation if row.get(metric) is not None]
        scores.plot(*zip(*points, strict=True), "s-", ms=3, color="tab:green")
        scores.set_ylabel(f"validation {SCORES[metric]}", color="tab:green")
    axes.legend(loc="center right")
    return _save(figure, run / "curve.png")


def attention_picture(attention: CrossAttention, path: Path) -> Path | None:
    """Draws the cross-attention of the last layer, averaged over heads, with one row per target token.

    Returns:
        Path of the image, or None if matplotlib is not installed.
    """
    if not _can_draw():
        return None
    weights = attention.weights[-1].mean(dim=0)
    figure = new_figure(1.5 + 0.55 * len(attention.source), 1.5 + 0.4 * len(attention.target))
    axes = figure.subplots()
    axes.imshow(weights.cpu().numpy(), cmap="Blues", vmin=0, aspect="auto")
    axes.set_xticks(range(len(attention.source)), [_escape(p) for p in attention.source], rotation=45, ha="right")
    axes.set_yticks(range(len(attention.target)), [_escape(p) for p in attention.target])
    axes.set(xlabel="source (attended to)", ylabel="translation (generated)")
    axes.set_title("cross-attention, last layer, mean of heads")
    return _save(figure, path)


def _can_draw() -> bool:
    return importlib.util.find_spec("matplotlib") is not None


def new_figure(width: float, height: float) -> "Figure":
    """Returns an empty figure of a size in inches.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure  # only where something is drawn
    except ImportError as error:
        raise ConfigError("matplotlib is not installed; run `pip install matplotlib`") from error
    return Figure(figsize=(width, height), layout="constrained")


def _save(figure: "Figure", path: Path) -> Path:
    with atomic_file(path) as file:
        figure.savefig(file, dpi=120, format="png")
    return path


def _escape(piece: str) -> str:
    """Escapes dollar signs, which start a formula in matplotlib."""
    return piece.replace("$", r"\$")
