"""The record of a run, as read from its folder."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from transformer.bundle import Bundle, load_bundle
from transformer.errors import DataError
from transformer.evaluation.scores import sentence_scores
from transformer.storage.checkpoint_paths import checkpoint_steps

METRICS, RECIPE, TRANSLATIONS = "metrics.jsonl", "recipe.toml", "translations.jsonl"
Row = dict[str, Any]
BLOCK_FIGURES: Final = ("gradient_norm", "parameter_norm", "update_ratio")
MAX_NUMBER: Final = 1e300


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
class RunRecord:
    """Current contents of a run folder.

    Attributes:
        name: Name of the folder.
        bundle: Best model of the run.
        rows: All lines of `metrics.jsonl`.
        recipe: Completed recipe as TOML.
        sentences: Validation sentences in order; empty if no translations were stored.
        saved_step: Step of the newest checkpoint, 0 without any.
    """

    name: str
    bundle: Bundle
    rows: list[Row]
    recipe: str
    sentences: list[Sentence]
    saved_step: int = 0

    def of_kind(self, kind: str) -> list[Row]:
        """Returns the lines of metrics of one kind, in order."""
        return [row for row in self.rows if row["kind"] == kind]

    @property
    def last_step(self) -> int:
        """Last step of the run, logged or not."""
        return max(0, self.saved_step, *(row["step"] for row in self.rows if row["kind"] != "skipped"))

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


def read_record(folder: Path) -> RunRecord:
    """Reads a run folder.

    Raises:
        BundleError: The folder does not contain a model yet, or a damaged one.
    """
    bundle = load_bundle(folder)
    return RunRecord(
        folder.resolve().name,
        bundle,
        read_metrics(folder),
        (folder / RECIPE).read_text(encoding="utf-8") if (folder / RECIPE).exists() else "",
        _sentences(_read_lines(folder / TRANSLATIONS, _is_translation)),
        max(checkpoint_steps(folder), default=0),
    )


def translation_lines(pairs: list[tuple[str, str]], outputs: list[str]) -> str:
    """Returns the content of a run's `translations.jsonl`: validation pairs with the translations of the best model."""
    rows = ({"source": s, "reference": r, "output": o} for (s, r), o in zip(pairs, outputs, strict=True))
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def read_metrics(folder: Path) -> list[Row]:
    """Reads the lines of a run's `metrics.jsonl`; an empty list without the file.

    Raises:
        DataError: A line is not as training writes it.
    """
    return _read_lines(folder / METRICS, _is_metrics)


def _read_lines(path: Path, is_valid: Callable[[Row], bool]) -> list[Row]:
    """Reads one JSON object per line; an incomplete last line, left by a kill, is ignored."""
    rows: list[Row] = []
    if not path.exists():
        return rows
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict) or not is_valid(row):
            raise DataError(f"{path}, line {number}: not a line that training writes; remove it")
        rows.append(row)
    return rows


def _is_metrics(row: Row) -> bool:
    """Whether a row holds numbers by name, or by name and block for rows of the kind "blocks"."""
    if not isinstance(row.get("kind"), str) or type(row.get("step")) is not int:
        return False
    if row["kind"] != "blocks":
        return all(_is_number(value) for name, value in row.items() if name not in ("kind", "reason", "stage"))
    figures = [row.get(name) for name in BLOCK_FIGURES]
    blocks = [figure for figure in figures if isinstance(figure, dict)]
    is_complete = len(blocks) == len(figures) and len({frozenset(block) for block in blocks}) == 1
    return is_complete and all(_is_number(value) for block in blocks for value in block.values())


def _is_number(value: object) -> bool:
    """Whether a value is a number, or None, which stands for one that was not finite."""
    return value is None or (isinstance(value, int | float) and abs(value) < MAX_NUMBER)


def _is_translation(row: Row) -> bool:
    return all(isinstance(row.get(name), str) for name in ("source", "reference", "output"))


def _sentences(rows: list[Row]) -> list[Sentence]:
    scores = sentence_scores([row["output"] for row in rows], [row["reference"] for row in rows])
    return [
        Sentence(number, row["source"], row["reference"], row["output"], score)
        for number, (row, score) in enumerate(zip(rows, scores, strict=True), start=1)
    ]
