"""Texts with labels."""

from collections import Counter
from pathlib import Path
from typing import Any, Final

import numpy as np
from torch import nn

from transformer.bundle import Bundle
from transformer.data.config import as_list
from transformer.data.fingerprint import FileSnapshot, combined_checksum, file_checksum
from transformer.data.labelled import EncodedTexts, LabelledDataset, label_ids, max_text_tokens, read_rows
from transformer.data.progress import Progress
from transformer.data.readers import Pair
from transformer.data.task_configs import LabelConfig, NeighbourConfig
from transformer.errors import DataError
from transformer.run.recipe import Defaults, Recipe
from transformer.run.task import Task, TaskData, sized
from transformer.tokenizers.pair import TokenizerPair, train_tokenizer
from transformer.training.config import TrainingConfig
from transformer.training.objectives.classification import ClassificationObjective

COLUMNS: Final = ("text", "label")


class RowTask(Task):
    """What tasks with files of two columns share.

    Attributes:
        names: of the columns in files whose columns have names, where the recipe does not tell.
    """

    kinds = ("encoder",)
    metrics = ("accuracy", "loss")
    scored = "texts"
    names: tuple[str, str] = COLUMNS

    def __init__(self, data: LabelConfig | NeighbourConfig, seed: int, folder: Path, progress: Progress) -> None:
        del folder, progress  # rows are read anew each time
        self._data, self._seed = data, seed
        self._paths = [Path(path) for path in as_list(data.examples)]
        held_out = [Path(data.validation_examples)] if data.validation_examples else []
        self._stamps = FileSnapshot([*self._paths, *held_out])
        self.sums = {"data.examples": combined_checksum(data.examples)}
        if data.validation_examples:
            self.sums["data.validation_examples"] = file_checksum(Path(data.validation_examples))
        self._rows: list[Pair] = []

    def size(self) -> int:
        """Rows of the files."""
        return len(self.rows())

    def rows(self) -> list[Pair]:
        """All rows of the training files."""
        if not self._rows:
            self._rows = self._read(self._paths)
        return self._rows

    def defaults(self, recipe: Recipe) -> Defaults:
        """As of `Task`."""
        training: dict[str, Any] = {
            "label_smoothing": 0.0, "best_metric": "accuracy", "weight_decay": 0.01, "batch_tokens": 2048,
            "adam_betas": (0.9, 0.999), "adam_eps": 1e-8,
        }  # fmt: skip
        if recipe.training.start_from is None:
            training["learning_rate"] = 5e-4
        name = recipe.model.model_dump()["family"] if recipe.model else "bert"
        return Defaults(vocab_size=4_000, model={"family": name, "preset": "tiny"}, training=training, epochs=3)

    def divided(self) -> tuple[list[Pair], list[Pair]]:
        """Rows to learn from, and rows held out: those of the validation file, or a share that the seed draws.

        Raises:
            DataError: nothing is left on a side.
        """
        rows = self.rows()
        if self._data.validation_examples:
            held_out = self._read([Path(self._data.validation_examples)])
        else:
            order = np.random.default_rng(self._seed).permutation(len(rows))
            n = max(1, round(len(rows) * self._data.validation_share))
            chosen = set(order[:n].tolist())
            held_out = [row for place, row in enumerate(rows) if place in chosen]
            rows = [row for place, row in enumerate(rows) if place not in chosen]
        if not rows or not held_out:
            raise DataError(f"{self._data.name} leaves nothing to learn from or nothing to hold out; give more rows")
        return rows, held_out

    def tokenizers(self, recipe: Recipe, known: Bundle | None, texts: list[str]) -> TokenizerPair:
        """Those of the model that the run begins with, or new ones."""
        if known:
            return known.tokenizers
        tokenizer = train_tokenizer(texts, recipe.tokenizer)
        return TokenizerPair(tokenizer, tokenizer)

    def _read(self, paths: list[Path]) -> list[Pair]:
        rows = list(read_rows(paths, self._data.columns, self.names, self._data.invalid_utf8))
        self._stamps.check_unchanged()
        return rows


HEADS: Final = frozenset({"label", "labels", "class", "category", "sentiment", "target"})
"""What the column of labels is called in files that begin with a header."""


class LabelTask(RowTask):
    """Tells the label of a text."""

    def prepare(self, recipe: Recipe, known: Bundle | None) -> TaskData:
        """As of `Task`.

        Raises:
            DataError: there are fewer than two labels, or the validation rows have others.
        """
        assert recipe.model is not None
        rows, held_out = self.divided()
        counts = Counter(label for _, label in rows)
        if heads := [label for label, count in counts.items() if count == 1 and label.lower() in HEADS]:
            raise DataError(
                f"{self._data.name}: {heads[0]!r} stands once among the labels, as in a header; remove its line"
            )
        before: tuple[str, ...] = known.config.model_dump()["labels"] if known else ()
        labels = before if set(before) == set(counts) else tuple(sorted(counts))
        if len(labels) < 2:
            raise DataError(f"{self._data.name} has {len(labels)} label ({', '.join(labels)}); two or more are needed")
        tokenizers = self.tokenizers(recipe, known, [text for text, _ in rows])
        config = sized(recipe.model, tokenizers, known=known)
        reads_pooler = config.model_dump()["labels_read"] == "pooler"
        needs_pooler = reads_pooler or config.model_dump()["embedding"] == "pooled"
        heads = {"labels": labels, "pooler": needs_pooler, "masked": False, "next_sentence": False}
        config = type(config).model_validate({**config.model_dump(), **heads})
        most = max_text_tokens(config.model_dump())
        texts = [EncodedTexts([text for text, _ in each], tokenizers.source, most) for each in (rows, held_out)]
        train, validation = (
            LabelledDataset(text, label_ids([label for _, label in each], labels, self._data.name))
            for text, each in zip(texts, (rows, held_out), strict=True)
        )
        shown = ", ".join(f"{label} {count:,}" for label, count in counts.most_common(10))
        lines = [
            f"texts: {len(rows):,} to learn from, {len(held_out):,} held out; longer than {most} tokens, and cut: "
            f"{texts[0].n_truncated:,} and {texts[1].n_truncated:,}",
            f"{len(labels)} labels: {shown}{', ...' if len(labels) > 10 else ''}",
        ]
        facts = {"texts": len(rows), "held_out": len(held_out), "cut": texts[0].n_truncated, "labels": dict(counts)}
        return TaskData(config, tokenizers, train, validation, lines, facts)

    def objective(self, model: nn.Module, training: TrainingConfig, material: TaskData) -> nn.Module:
        """As of `Task`."""
        del material
        checkpointing = training.activation_checkpointing
        return ClassificationObjective(model, training.label_smoothing, activation_checkpointing=checkpointing)
