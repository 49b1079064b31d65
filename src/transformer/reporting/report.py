"""The report of a run, `report.html`."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from markupsafe import Markup

from transformer.data.augment.config import CHANGED
from transformer.data.language_pairs import PAIR_SCORE
from transformer.data.stages import GENERAL
from transformer.models.parameter_count import parameters_by_block
from transformer.reporting.charts import Series, bars, heat_map, line_chart
from transformer.reporting.html import render_page
from transformer.reporting.record import Row, RunRecord, Sentence, read_record
from transformer.storage.atomic import replace_text

REPORT_FILE: Final = "report.html"
SCORE_NAMES = {"bleu": "BLEU", "chrf": "chrF", "accuracy": "accuracy (%)", "perplexity": "perplexity", "loss": "loss"}
N_EXAMPLES, N_WORST = 10, 10
MAX_SERIES: Final = 5
"""Maximum number of directions in a chart; the table shows all."""


def write_report(run: Path) -> Path:
    """Writes `RUN/report.html` from the contents of the run folder, also while the run is in progress.

    The page is self-contained: charts are inline SVG, and all text is escaped.

    Returns:
        Path of the page.

    Raises:
        BundleError: The run does not have a model yet.
    """
    record = read_record(run)
    provenance, blocks = record.bundle.provenance, record.of_kind("blocks")
    sizes = parameters_by_block(record.bundle.model)
    signatures = provenance.get("validation", {}).get("signatures", {})
    update_ratios = [(row["step"], row["update_ratio"]) for row in blocks]
    page = render_page(
        "run.html.jinja",
        title=record.name,
        bundle=record.bundle,
        provenance=provenance,
        figures=_key_figures(record, sum(sizes.values())),
        charts=_curves(record),
        score_rows=_score_rows(record),
        direction_rows=_direction_rows(record),
        score_signatures={SCORE_NAMES.get(name, name): text for name, text in signatures.items()},
        examples=_examples(record.sentences),
        worst=_worst(record.sentences),
        pairs=_pairs(provenance.get("data", {})),
        update_ratios=heat_map("update ratio (1e-5 pale, 0.1 full)", update_ratios),
        last_blocks=blocks[-1] if blocks else None,
        sizes=bars("parameters; a shared matrix counts once", {name: size for name, size in sizes.items() if size}),
        settings=record.bundle.config.model_dump(exclude_none=True),
        recipe_text=record.recipe,
        format_value=_format_value,
    )
    path = run / REPORT_FILE
    replace_text(path, page)
    return path


def _key_figures(record: RunRecord, n_parameters: int) -> dict[str, str]:
    provenance = record.bundle.provenance
    scores = provenance.get("validation", {}).get("scores", {})
    figures = {
        title: _format_score(scores[name]) for name, title in SCORE_NAMES.items() if scores.get(name) is not None
    }
    figures["parameters"] = f"{n_parameters:,}"
    if (trained := provenance.get("trained_parameters")) is not None:
        figures["trained parameters"] = f"{trained:,}"
    figures["steps"] = f"{record.last_step:,}"
    if "seconds" in provenance:
        figures["of training"] = _format_duration(provenance["seconds"])
    if minutes := provenance.get("recipe", {}).get("training", {}).get("minutes"):
        figures["were given"] = _format_duration(60 * minutes)
    if stages := record.of_kind("stage"):
        figures["of stages"] = ", ".join(f"{row['stage']} from step {row['step'] + 1:,}" for row in stages)
    return figures


def _curves(record: RunRecord) -> list[Markup]:
    """Draws loss, scores, learning rate, speed and gradient norm over the steps."""
    train, validation = record.of_kind("train"), record.of_kind("validation")
    charts = [
        line_chart(
            "loss (nats)",
            [Series("training", _points(train, "loss")), Series("validation", _points(validation, "loss"), True)],
        ),
        line_chart(
            "validation scores",
            [Series(SCORE_NAMES[name], _points(validation, name), True) for name in ("bleu", "chrf", "accuracy")],
        ),
        line_chart("validation BLEU by direction", _direction_series(validation, "bleu")),
        line_chart("validation perplexity", [Series("perplexity", _points(validation, "perplexity"), True)]),
        *_further_texts(validation),
        _changed_pairs(record),
        line_chart("learning rate", [Series("learning rate", _points(train, "learning_rate"))]),
        line_chart(
            "scored tokens, texts or images per second", [Series("speed", _points(train, "target_tokens_per_second"))]
        ),
        line_chart("gradient norm, before clipping", [Series("norm", _points(train, "gradient_norm"))]),
    ]
    return [chart for chart in charts if chart is not None]


def _further_texts(validation: Sequence[Row]) -> Iterator[Markup | None]:
    """Draws the scores on the validation texts that do not decide which checkpoint is best."""
    ending = "_chrf"
    names = dict.fromkeys(key.removesuffix(ending) for row in validation for key in row if key.endswith(ending))
    for name in names:
        series = [
            Series(SCORE_NAMES[score], _points(validation, f"{name}_{score}"), True) for score in ("bleu", "chrf")
        ]
        yield line_chart(f"validation scores, {name}", series)


def _direction_series(rows: Sequence[Row], metric: str) -> list[Series]:
    """Returns a metric of each direction of a model of several, over the steps."""
    names = dict.fromkeys(name for row in rows for name in row if name.endswith(f"{PAIR_SCORE}{metric}"))
    return [Series(name.partition(PAIR_SCORE)[0], _points(rows, name), True) for name in names][:MAX_SERIES]


def _changed_pairs(record: RunRecord) -> Markup | None:
    """Draws the perplexities of the best checkpoint on changed validation pairs; None without augmentation."""
    best = record.best or {}
    unchanged = best.get(f"{GENERAL}_perplexity", best.get("perplexity"))
    changed = {name.removeprefix(CHANGED).replace("_", " "): value for name, value in best.items() if CHANGED in name}
    if not changed or unchanged is None or None in changed.values():
        return None
    return bars("perplexity on changed validation pairs, best checkpoint", {"unchanged": unchanged, **changed})


def _score_rows(record: RunRecord) -> list[list[str]]:
    """Returns the rows of the table of scores, the head first; empty without validations."""
    rows = {"best checkpoint": record.best, "average of checkpoints": record.average}
    present = {name: row for name, row in rows.items() if row is not None}
    keys = [key for key in SCORE_NAMES if any(key in row for row in present.values())]
    body = [[name, f"{row['step']:,}", *(_format_score(row.get(key)) for key in keys)] for name, row in present.items()]
    return [["", "step", *(SCORE_NAMES[key] for key in keys)], *body] if body else []


def _direction_rows(record: RunRecord) -> list[list[str]]:
    """Returns the rows of the table of scores by direction, the head first; empty for a model of one direction."""
    best = record.best or {}
    directions = dict.fromkeys(name.partition(PAIR_SCORE)[0] for name in best if PAIR_SCORE in name)
    keys = [key for key in SCORE_NAMES if key in best]
    rows = [
        [direction, *(_format_score(best.get(f"{direction}{PAIR_SCORE}{key}")) for key in keys)]
        for direction in directions
    ]
    return [["", *(SCORE_NAMES[key] for key in keys)], *rows] if rows else []


def _examples(sentences: Sequence[Sentence]) -> list[Sentence]:
    """Selects examples, evenly spaced so that they are not selected by hand."""
    count = min(N_EXAMPLES, len(sentences))
    return [sentences[index * len(sentences) // count] for index in range(count)]


def _worst(sentences: Sequence[Sentence]) -> list[Sentence]:
    """Selects the sentences with the lowest chrF."""
    wrong = [sentence for sentence in sentences if sentence.output != sentence.reference]
    return sorted(wrong, key=lambda sentence: sentence.score)[:N_WORST]


def _pairs(data: Row) -> Markup | None:
    """Draws the numbers of examples kept, held out and dropped by reason; None if nothing was dropped."""
    kept = {name.replace("_", " "): int(data[name]) for name in ("kept", "held_out") if name in data}
    dropped = {f"dropped: {reason}": int(count) for reason, count in data.get("dropped", {}).items()}
    return bars("pairs", kept | dropped) if dropped else None


def _points(rows: Sequence[Row], name: str) -> list[tuple[float, float]]:
    return [(row["step"], row[name]) for row in rows if row.get(name) is not None]


def _format_score(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _format_value(value: object) -> str:
    """Formats a value for display."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, Mapping | list) else str(value)


def _format_duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"
