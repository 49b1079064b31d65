"""Figures of training curves and attention, drawn if matplotlib is installed."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from torch import Tensor

from transformer.errors import ConfigError
from transformer.pipelines.translation.attention_maps import CrossAttention
from transformer.reporting.record import read_metrics
from transformer.storage.atomic import atomic_file
from transformer.style import LIGHT, MATPLOTLIB, SIGNED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

SCORES: Final = {"bleu": "BLEU", "accuracy": "accuracy (%)"}
"""Metrics that are drawn together with the loss, with their axis labels."""
CROSS_ATTENTION_SIDES: Final = ("position of the target", "token of the source (attended to)")
"""What the rows and the columns of cross-attention are."""


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
    figure, axes = subplots(8.0, 4.5)
    for kind, marker, shown in (("training", "", train), ("validation", "o", validation)):
        steps, losses = [row["step"] for row in shown], [row["loss"] for row in shown]
        axes.plot(steps, losses, marker=marker, ms=3, label=f"{kind} loss")
    axes.set(xlabel="step", ylabel="loss (nats)", title=run.name)
    metric = next((name for name in SCORES if any(name in row for row in validation)), None)
    if metric:
        scores = axes.twinx()
        points = [(row["step"], row[metric]) for row in validation if row.get(metric) is not None]
        scores.plot(*zip(*points, strict=True), "s-", ms=3, color=LIGHT["series-3"])
        scores.set_ylabel(f"validation {SCORES[metric]}", color=LIGHT["series-3"])
    axes.legend(loc="center right")
    return save(figure, run / "curve.png")


def attention_picture(attention: CrossAttention, path: Path) -> Path | None:
    """Draws the cross-attention of the last layer, averaged over heads, with one row per position of the target.

    Returns:
        Path of the image, or None if matplotlib is not installed.
    """
    if not _can_draw():
        return None
    rows = row_labels(attention.read, attention.written)
    figure, axes = subplots(3.0 + 0.55 * len(attention.source), 1.5 + 0.4 * len(rows))
    draw_attention(axes, attention.weights[-1].mean(dim=0), rows, attention.source)
    ylabel, xlabel = CROSS_ATTENTION_SIDES
    axes.set(xlabel=xlabel, ylabel=ylabel, title="cross-attention, last layer, mean of heads")
    return save(figure, path)


def row_labels(read: Sequence[str], written: Sequence[str]) -> list[str]:
    """Names the rows of a decoder's attention by the token that each position reads and the one that it writes."""
    return [f"reads {one}, writes {other}" for one, other in zip(read, written, strict=True)]


def draw_attention(
    axes: "Axes",
    weights: Tensor,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    largest: float | None = None,
    font_size: int = 10,
) -> None:
    """Draws attention weights with their tokens, from 0 to the weight of the full colour, by default the largest."""
    axes.imshow(weights.detach().cpu().numpy(), cmap=colour_map("attention"), vmin=0, vmax=largest, aspect="auto")
    for set_ticks, tokens, rotation in ((axes.set_xticks, columns, 90), (axes.set_yticks, rows, 0)):
        if tokens:
            shown = [token.replace("$", r"\$") for token in tokens]  # dollar signs start formulas
            set_ticks(range(len(tokens)), shown, fontsize=font_size, rotation=rotation)


def subplots(width: float, height: float, rows: int = 1, columns: int = 1, **options: Any) -> tuple["Figure", Any]:
    """Returns an empty figure of a size in inches, and its axes in the colours of `transformer.style`.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    try:
        from matplotlib import rc_context  # only where something is drawn
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("matplotlib is not installed; run `pip install matplotlib`") from error
    figure = Figure(figsize=(width, height), layout="constrained")
    with rc_context(MATPLOTLIB):
        return figure, figure.subplots(rows, columns, **options)


def colour_map(kind: Literal["signed", "attention"]) -> "Colormap":
    """Returns the colours of numbers from -1 to 1, or of attention weights from 0 to 1."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list(kind, SIGNED if kind == "signed" else SIGNED[2:])


def save(figure: "Figure", path: Path) -> Path:
    """Writes a figure as the ending of the file says, svg, pdf or png.

    Returns:
        The path.

    Raises:
        ConfigError: The ending is none of these.
    """
    from matplotlib import rc_context

    kind = path.suffix.lower().removeprefix(".")
    if kind not in ("svg", "pdf", "png"):
        raise ConfigError(f"output={str(path)!r} ends in neither .svg, .pdf nor .png; choose one of them")
    same_each_time = {"Date": None} if kind == "svg" else None
    with atomic_file(path) as file, rc_context(MATPLOTLIB):
        figure.savefig(file, format=kind, dpi=150, metadata=same_each_time)
    return path


def _can_draw() -> bool:
    return importlib.util.find_spec("matplotlib") is not None
