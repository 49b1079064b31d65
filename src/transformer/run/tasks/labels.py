"""Text classification, and the base of tasks whose examples are rows of two columns."""

from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

import numpy as np
from torch import nn

from transformer.bundle import Bundle
from transformer.data.config import as_list
from transformer.data.fingerprint import FileSnapshot, combined_checksum, file_checksum
from transformer.data.labelled import EncodedTexts, LabelledDataset, label_ids, read_rows
from transformer.data.progress import Progress
from transformer.data.readers import Pair, PairCounts
from transformer.data.task_configs import LabelConfig, NeighbourConfig
from transformer.errors import DataError
from transformer.models.kinds import EncoderConfig
from transformer.run.defaults import CompleteRecipe, TaskDefaults
from transformer.run.recipe import Recipe
from transformer.run.task import Task, TaskData, known_labels, set_vocab_sizes
from transformer.tokenizers.config import TokenizerConfig
from transformer.tokenizers.pair import TokenizerPair, train_tokenizer
from transformer.training.config import TrainingSettings
from transformer.training.objectives.classification import ClassificationObjective

COLUMNS: Final = ("text", "label")


class RowTask(Task[EncoderConfig]):
    """Base of tasks whose examples are files with two columns.

    Attributes:
        column_names: Default names of the columns, for files with named columns.
    """

    model_type = EncoderConfig
    metrics = ("accuracy", "loss")
    column_names: tuple[str, str] = COLUMNS

    def __init__(self, data: LabelConfig | NeighbourConfig, seed: int, progress: Progress) -> None:
        self._data, self._seed, self._progress = data, seed, progress
        self._paths = [Path(path) for path in as_list(data.examples)]
        held_out = [Path(data.validation_examples)] if data.validation_examples else []
        self._snapshot = FileSnapshot([*self._paths, *held_out])
        self.checksums = {"data.examples": combined_checksum(data.examples)}
        if data.validation_examples:
            self.checksums["data.validation_examples"] = file_checksum(Path(data.validation_examples))
        self._rows: list[Pair] = []
        self._counts = PairCounts()

    def rows(self) -> list[Pair]:
        """Returns all rows of the training files."""
        if not self._rows:
            self._rows = self._read(self._paths)
        return self._rows

    def defaults(self, recipe: Recipe) -> TaskDefaults:
        """Implements `Task.defaults`."""
        training: dict[str, Any] = {
            "label_smoothing": 0.0, "best_metric": "accuracy", "weight_decay": 0.01, "batch_tokens": 2048,
            "adam_betas": (0.9, 0.999), "adam_eps": 1e-8,
        }  # fmt: skip
        if recipe.training.start_from is None:
            training["learning_rate"] = 5e-4
        name = recipe.model.family_name if recipe.model else "bert"
        return TaskDefaults(vocab_size=4_000, model={"family": name, "preset": "tiny"}, training=training, epochs=3)

    def split_rows(self) -> tuple[list[Pair], list[Pair]]:
        """Splits the rows into training and held-out rows.

        The held-out rows are those of the validation file, or else a random share that depends on the seed.

        Raises:
            DataError: No row is left to train on, or none to hold out.
        """
        rows = self.rows()
        if self._data.validation_examples:
            held_out = self._read([Path(self._data.validation_examples)])
        else:
            order = np.random.default_rng(self._seed).permutation(len(rows))
            n = max(1, round(len(rows) * self._data.validation_share))
            chosen = set(order[:n].tolist())
            held_out = [row for index, row in enumerate(rows) if index in chosen]
            rows = [row for index, row in enumerate(rows) if index not in chosen]
        if not rows or not held_out:
            raise DataError(f"{self._data.name} leaves nothing to learn from or nothing to hold out; give more rows")
        return rows, held_out

    def notes(self) -> list[str]:
        """Returns a note on the rows that were left out."""
        return [f"rows left out: {self._counts.describe_left_out()}"] if self._counts.left_out else []

    def tokenizers(self, settings: TokenizerConfig, base_bundle: Bundle | None, texts: list[str]) -> TokenizerPair:
        """Returns the tokenizers of the base model, or trains new ones."""
        if base_bundle:
            return base_bundle.tokenizers
        self._progress("training the tokenizer", 0, None)
        tokenizer = train_tokenizer(texts, settings)
        return TokenizerPair(tokenizer, tokenizer)

    def _read(self, paths: list[Path]) -> list[Pair]:
        self._progress("reading the examples", 0, None)
        columns, invalid = self._data.columns, self._data.invalid_utf8
        rows = list(read_rows(paths, columns, self.column_names, invalid, self._counts))
        self._snapshot.check_unchanged()
        return rows


HEADER_NAMES: Final = frozenset({"label", "labels", "class", "category", "sentiment", "target"})
"""Usual names of the label column, by which a header line is detected."""


MAX_NUMBERS: Final = 20
"""Number of labels up to which numbers with a fraction are classes, such as ratings."""


def are_measurements(labels: Collection[str]) -> bool:
    """Whether labels are numbers to be predicted, not classes: many, and some with a fraction."""
    try:
        numbers = [float(label) for label in labels]
    except ValueError:
        return False
    return len(numbers) > MAX_NUMBERS and not all(number.is_integer() for number in numbers)


def joined_labels(labels: Collection[str]) -> list[str]:
    """Returns the labels that consist of several others, such as `a,b` beside `a` and `b`."""
    return [
        label
        for label in labels
        for mark in ",;|"
        if mark in label and all(part.strip() in labels for part in label.split(mark))
    ]


class LabelTask(RowTask):
    """Predicts the label of a text."""

    name = "classification"

    def prepare(self, recipe: CompleteRecipe[EncoderConfig], base_bundle: Bundle | None) -> TaskData:
        """Implements `Task.prepare`.

        Raises:
            DataError: There are fewer than two labels, the validation rows have other labels, or the file has a header.
        """
        rows, held_out = self.split_rows()
        counts = Counter(label for _, label in rows)
        if headers := [label for label, count in counts.items() if count == 1 and label.lower() in HEADER_NAMES]:
            raise DataError(f"{self._data.name}: the label {headers[0]!r} occurs once, as in a header; remove its line")
        if are_measurements(counts):
            raise DataError(
                f"{self._data.name} has {len(counts)} numbers as labels, such as {next(iter(counts))}; predicting "
                "numbers (regression) is not known; give classes"
            )
        joined = [
            f"the label {label!r} is learned as a label of its own; a text has one label here"
            for label in joined_labels(counts)[:1]
        ]
        base_labels = known_labels(base_bundle)
        labels = base_labels if set(base_labels) == set(counts) else tuple(sorted(counts))
        if len(labels) < 2:
            raise DataError(f"{self._data.name} has {len(labels)} label ({', '.join(labels)}); two or more are needed")
        tokenizers = self.tokenizers(recipe.recipe.tokenizer, base_bundle, [text for text, _ in rows])
        config = set_vocab_sizes(recipe.model, tokenizers, base_bundle=base_bundle)
        needs_pooler = config.labels_read == "pooler" or config.embedding == "pooled"
        config = config.updated(labels=labels, pooler=needs_pooler, masked=False, next_sentence=False)
        max_tokens = config.max_text_tokens
        splits = rows, held_out
        self._progress("encoding the texts", 0, None)
        texts = [EncodedTexts([text for text, _ in split], tokenizers.source, max_tokens) for split in splits]
        train, validation = (
            LabelledDataset(split_texts, label_ids([label for _, label in split], labels, self._data.name))
            for split_texts, split in zip(texts, splits, strict=True)
        )
        shown = ", ".join(f"{label} {count:,}" for label, count in counts.most_common(10))
        table = [
            ("texts", f"{len(rows):,} to train on, {len(held_out):,} held out"),
            ("truncated", f"to {max_tokens} tokens: {texts[0].n_truncated:,} and {texts[1].n_truncated:,}"),
            ("labels", f"{len(labels)}: {shown}{', ...' if len(labels) > 10 else ''}"),
            ("vocabulary", str(tokenizers)),
        ]
        facts = {"texts": len(rows), "held_out": len(held_out), "cut": texts[0].n_truncated, "labels": dict(counts)}
        return TaskData(
            config=config, text=tokenizers, objective=self.objective, train=train, validation=validation, rows=table,
            facts=facts, notes=[*self.notes(), *joined], fallback_shares={"text": texts[0].fallback_share},
            loss_unit="texts",
        )  # fmt: skip

    def objective(self, model: nn.Module, settings: TrainingSettings) -> nn.Module:
        """Returns the objective of the training, see `TaskData`."""
        checkpointing = settings.activation_checkpointing
        return ClassificationObjective(model, settings.label_smoothing, activation_checkpointing=checkpointing)
