"""The sections of a run report, each rendered from the record of the run; None if its data is missing."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from transformer.models.parameter_count import parameters_by_block
from transformer.reporting.charts import Series, bars, heat_map, line_chart
from transformer.reporting.html import Markup, element, join, table
from transformer.reporting.record import Record, Row, Sentence

SCORE_NAMES = {"bleu": "BLEU", "chrf": "chrF", "accuracy": "accuracy (%)", "perplexity": "perplexity", "loss": "loss"}
N_EXAMPLES, N_WORST, LOW = 10, 10, 25.0


def cards(record: Record) -> Markup:
    """Renders the key figures of the run."""
    provenance = record.bundle.provenance
    scores = provenance.get("validation", {}).get("scores", {})
    figures = {
        title: _format_score(scores[name]) for name, title in SCORE_NAMES.items() if scores.get(name) is not None
    }
    parameters = sum(parameters_by_block(record.bundle.model).values())
    train = record.of_kind("train")
    figures |= {"parameters": f"{parameters:,}", "steps": f"{train[-1]['step']:,}" if train else "0"}
    if "seconds" in provenance:
        figures["of training"] = _format_duration(provenance["seconds"])
    key_figures = [
        element("div", element("b", value), name, attributes={"class": "card"}) for name, value in figures.items()
    ]
    kind = "the average of checkpoints" if "averaged" in provenance else f"step {provenance.get('step', 0):,}"
    caption = element("p", f"Validation scores of the best model of the run: {kind}.")
    return join(caption, element("div", *key_figures, attributes={"class": "cards"}))


def curves(record: Record) -> Markup | None:
    """Renders loss, scores, learning rate, speed and gradient norm over the steps."""
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
        line_chart("validation perplexity", [Series("perplexity", _points(validation, "perplexity"), True)]),
        line_chart("learning rate", [Series("learning rate", _points(train, "learning_rate"))]),
        line_chart(
            "scored tokens, texts or images per second", [Series("speed", _points(train, "target_tokens_per_second"))]
        ),
        line_chart("gradient norm, before clipping", [Series("norm", _points(train, "gradient_norm"))]),
    ]
    drawn = [chart for chart in charts if chart is not None]
    return element("div", *drawn, attributes={"class": "charts"}) if drawn else None


def scores(record: Record) -> Markup | None:
    """Renders the scores of the best checkpoint and of the average, with their signatures."""
    rows = {"best checkpoint": record.best, "average of checkpoints": record.average}
    present = {name: row for name, row in rows.items() if row is not None}
    if not present:
        return None
    validation = record.bundle.provenance.get("validation", {})
    names = [name for name in SCORE_NAMES if any(name in row for row in present.values())]
    body = [
        [name, f"{row['step']:,}", *(_format_score(row.get(key)) for key in names)] for name, row in present.items()
    ]
    signatures: dict[str, str] = validation.get("signatures", {})
    cells = {SCORE_NAMES.get(name, name): element("code", text) for name, text in signatures.items()}
    return join(
        table(body, ["", "step", *(SCORE_NAMES[name] for name in names)]),
        *([element("p", "Signatures, without which scores cannot be compared:"), table(cells)] if cells else ()),
    )


def data(record: Record) -> Markup | None:
    """Renders the statistics of the corpus: examples kept, held out and dropped by reason."""
    report: dict[str, Any] = dict(record.bundle.provenance.get("data", {}))
    if not report:
        return None
    dropped = {f"dropped: {reason}": int(count) for reason, count in report.pop("dropped", {}).items()}
    kinds = {name.replace("_", " "): int(report.pop(name)) for name in ("kept", "held_out") if name in report}
    others = {name.replace("_", " "): _format_value(value) for name, value in report.items() if value is not None}
    counted = bars("pairs", kinds | dropped) if dropped else join()
    return join(counted, element("h3", "Figures"), table(others))


def translations(record: Record) -> Markup | None:
    """Renders examples, evenly spaced over the validation text so that they are not selected by hand."""
    count = min(N_EXAMPLES, len(record.sentences))
    chosen = [record.sentences[index * len(record.sentences) // count] for index in range(count)]
    return _sentences("Evenly spaced over the validation text, none chosen by hand.", chosen)


def worst(record: Record) -> Markup | None:
    """Renders the sentences with the lowest chrF."""
    wrong = [sentence for sentence in record.sentences if sentence.output != sentence.reference]
    chosen = sorted(wrong, key=lambda sentence: sentence.score)[:N_WORST]
    return _sentences("Those with the lowest chrF; often the reference is as much to blame as the model.", chosen)


def blocks(record: Record) -> Markup | None:
    """Renders the norms and update ratios of the blocks."""
    rows = record.of_kind("blocks")
    if not rows:
        return None
    last = rows[-1]
    body = [[name, *(f"{last[key].get(name, 0):.3g}" for key in _BLOCK_FIGURES)] for name in last["update_ratio"]]
    return join(
        element(
            "p",
            "Norm of an update divided by that of the parameters: around 0.001 is usual. A pale row hardly learns.",
        ),
        heat_map("update ratio (1e-5 pale, 0.1 full)", [(row["step"], row["update_ratio"]) for row in rows]),
        element("h3", f"At step {last['step']:,}"),
        table(body, ["block", *(name.replace("_", " ") for name in _BLOCK_FIGURES)]),
    )


def model(record: Record) -> Markup:
    """Renders parameter counts and the configuration."""
    sizes = parameters_by_block(record.bundle.model)
    tokenizers = record.bundle.text
    settings = {
        name: _format_value(value) for name, value in record.bundle.config.model_dump(exclude_none=True).items()
    }
    counts = {name: size for name, size in sizes.items() if size}
    return join(
        bars("parameters; a shared matrix counts once", counts),
        element("h3", "Configuration"),
        table({**settings, **({"tokenizer": str(tokenizers)} if tokenizers else {})}),
    )


def recipe(record: Record) -> Markup | None:
    """Renders the completed recipe."""
    return element("pre", element("code", record.recipe)) if record.recipe else None


def origin(record: Record) -> Markup:
    """Renders versions, hardware and provenance of the model."""
    provenance = record.bundle.provenance
    facts = {name.replace("_", " "): _format_value(value) for name, value in provenance.get("machine", {}).items()}
    facts |= {f"{name} version": value for name, value in provenance.get("versions", {}).items()}
    facts["model created"] = provenance.get("created", "")
    facts["SHA-256 of the model"] = element("code", record.bundle.fingerprint or "")
    if "averaged" in provenance:
        facts["averaged"] = ", ".join(f"step {source['step']}" for source in provenance["averaged"])
    if "start" in provenance:
        facts["fine-tuned from"] = join(
            provenance["start"]["model"], " ", element("code", provenance["start"]["sha256"])
        )
    return table(facts)


_BLOCK_FIGURES = ("gradient_norm", "parameter_norm", "update_ratio")


def _sentences(caption: str, sentences: Sequence[Sentence]) -> Markup | None:
    if not sentences:
        return None
    return join(element("p", caption, attributes={"class": "soft"}), *map(_sentence, sentences))


def _sentence(sentence: Sentence) -> Markup:
    low = "low" if sentence.score < LOW else None
    score = element("span", f"chrF {sentence.score:.1f}", attributes={"class": low})
    lines = {
        f"line {sentence.number:,}": (sentence.source, None),
        "reference": (sentence.reference, None),
        "output": (sentence.output, "output"),
    }
    cells = [
        join(element("small", name), element("span", text, attributes={"class": kind, "dir": "auto"}))
        for name, (text, kind) in lines.items()
    ]
    return element("div", *cells, element("small"), score, attributes={"class": "sentence"})


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
