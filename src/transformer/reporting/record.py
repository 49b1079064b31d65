"""The record of a run, as read from its folder."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformer.bundle import Bundle, load_bundle
from transformer.evaluation.scores import sentence_scores

METRICS, RECIPE, TRANSLATIONS = "metrics.jsonl", "recipe.toml", "translations.jsonl"
Row = dict[str, Any]


@dataclass(frozen=True)
class Sentence:
    """A validation sentence with its translation.

    Attributes:
        number: Line number in the validation text, from 1.
        source: Source sentence.
        reference: Reference translation.
        output: Translation by the model.
        score: Sentence-level chrF.
    """

    number: int
    source: str
    reference: str
    output: str
    score: float


@dataclass(frozen=True)
class Record:
    """Current contents of a run folder.

    Attributes:
        name: Name of the folder.
        bundle: Best model of the run.
        rows: All lines of `metrics.jsonl`.
        recipe: Completed recipe as TOML.
        sentences: Validation sentences in order; empty if no translations were stored.
    """

    name: str
    bundle: Bundle
    rows: list[Row]
    recipe: str
    sentences: list[Sentence]

    def of_kind(self, kind: str) -> list[Row]:
        """Returns the lines of metrics of one kind, in order."""
        return [row for row in self.rows if row["kind"] == kind]

    @property
    def best(self) -> Row | None:
        """Metrics of the best validation of a single checkpoint."""
        metric = self.bundle.provenance.get("recipe", {}).get("training", {}).get("best_metric", "bleu")
        rows = [row for row in self.of_kind("validation") if row.get(metric) is not None]
        sign = -1 if metric == "loss" else 1
        return max(rows, key=lambda row: sign * row[metric], default=None)

    @property
    def average(self) -> Row | None:
        """Metrics of the validation of the averaged model."""
        rows = self.of_kind("average")
        return rows[-1] if rows else None


def read_record(folder: Path) -> Record:
    """Reads a run folder.

    Raises:
        BundleError: The folder does not contain a model yet, or a damaged one.
    """
    bundle = load_bundle(folder)
    return Record(
        folder.resolve().name,
        bundle,
        _read_lines(folder / METRICS),
        (folder / RECIPE).read_text(encoding="utf-8") if (folder / RECIPE).exists() else "",
        _sentences(_read_lines(folder / TRANSLATIONS)),
    )


def translation_lines(pairs: list[tuple[str, str]], outputs: list[str]) -> str:
    """Returns the content of a run's `translations.jsonl`: validation pairs with the translations of the best model."""
    rows = ({"source": s, "reference": r, "output": o} for (s, r), o in zip(pairs, outputs, strict=True))
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _read_lines(path: Path) -> list[Row]:
    """Reads one JSON object per line; an incomplete last line, left by a kill, is ignored."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines[:-1]]


def _sentences(rows: list[Row]) -> list[Sentence]:
    scores = sentence_scores([row["output"] for row in rows], [row["reference"] for row in rows])
    return [
        Sentence(number, row["source"], row["reference"], row["output"], score)
        for number, (row, score) in enumerate(zip(rows, scores, strict=True), start=1)
    ]
