"""Labelled texts, and pairs of texts."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor

from transformer.data.batch import NeighbourBatch, TextBatch
from transformer.data.config import file_format
from transformer.data.dataset import pad
from transformer.data.ragged import Ragged
from transformer.data.readers import Pair, PairCounts
from transformer.data.tables import Columns, read_csv, read_jsonl, read_parquet, read_tsv
from transformer.errors import DataError
from transformer.interfaces import ExampleGroup
from transformer.text.lines import Invalid
from transformer.tokenizers.base import Tokenizer

MAX_SHOWN = 10
"""Number of labels that a message lists."""


def read_rows(
    paths: Sequence[Path],
    columns: Columns | None,
    names: tuple[str, str],
    invalid: Invalid = "error",
    counts: PairCounts | None = None,
) -> Iterator[Pair]:
    """Yields two columns of files, one file after another.

    Args:
        paths: Paths of .tsv, .csv, .jsonl or .parquet files; other files are read as .tsv.
        columns: The two columns; by default the only two of a .tsv or .csv, and those of `names` in other formats.
        names: Default column names of .jsonl and .parquet files, and of a .csv with a header.
        invalid: Treatment of bytes that are not UTF-8, as in `read_lines`.
        counts: Counts of all files, updated while reading.

    Raises:
        DataError: a file cannot be used.
    """
    counts = counts if counts is not None else PairCounts()
    for path in paths:
        file_counts = PairCounts()  # line numbers in messages refer to the current file
        suffix = file_format(str(path))
        if suffix == ".jsonl":
            yield from read_jsonl(path, columns or names, file_counts, invalid, labels=True)
        elif suffix == ".parquet":
            yield from read_parquet(path, columns or names, file_counts, labels=True)
        elif suffix == ".csv":
            yield from read_csv(path, columns, file_counts, invalid, names)
        else:
            yield from read_tsv(path, columns, file_counts, invalid)
        counts.add(file_counts)


class EncodedTexts:
    """Tokenized texts with their boundary tokens.

    Attributes:
        lengths: Tokens of each text, boundary tokens included.
        n_truncated: Number of texts that exceeded the maximum length and were truncated.
        fallback_share: Share of tokens that stand for a part of a character or for unknown text.
    """

    def __init__(self, texts: Sequence[str], tokenizer: Tokenizer, max_tokens: int) -> None:
        """Encodes texts.

        Args:
            texts: Texts of any length.
            tokenizer: Tokenizer of the model.
            max_tokens: Maximum tokens of a text, boundary tokens included.
        """
        before, after = tokenizer.boundary_tokens
        capacity = max_tokens - len(before) - len(after)
        ids = tokenizer.encode_batch(texts)
        self.n_truncated = sum(len(tokens) > capacity for tokens in ids)
        rows = [np.array([*before, *tokens[:capacity], *after], np.int32) for tokens in ids]
        whole = Ragged.from_rows(rows)
        self._values, self.lengths = whole.values, whole.lengths
        self._starts = np.cumsum(self.lengths) - self.lengths
        self._pad = tokenizer.special_tokens.padding
        self.fallback_share = float(tokenizer.is_fallback()[whole.values].mean()) if len(whole.values) else 0.0

    def fetch(self, ids: NDArray[np.integer]) -> tuple[Int[Tensor, "B S"], Bool[Tensor, "B 1 1 S"]]:
        """Returns the padded texts of the given numbers, and a mask that is True where a token is not padding."""
        rows = [self._values[self._starts[i] : self._starts[i] + self.lengths[i]] for i in ids]
        lengths = self.lengths[ids]
        tokens = pad(Ragged.from_rows(rows), fill=self._pad)
        mask = torch.arange(tokens.size(1)) < torch.from_numpy(lengths)[:, None]
        return tokens, mask[:, None, None, :]


class LabelledDataset:
    """A dataset of labelled texts.

    Args:
        texts: Tokenized texts.
        labels: Label id of each text.
    """

    def __init__(self, texts: EncodedTexts, labels: NDArray[np.int64]) -> None:
        self._texts, self._labels = texts, labels
        self.lengths: NDArray[np.int32] = texts.lengths[:, None].astype(np.int32)
        self.mix: tuple[ExampleGroup, ...] = ()

    def fetch(self, ids: NDArray[np.integer]) -> TextBatch:
        """Returns the padded batch of the given examples."""
        return TextBatch(*self._texts.fetch(ids), torch.from_numpy(self._labels[ids]))


class NeighbourDataset:
    """A dataset of pairs of texts with the same meaning.

    Args:
        first: Tokenized texts of the first side.
        second: Tokenized texts of the second side.
    """

    def __init__(self, first: EncodedTexts, second: EncodedTexts) -> None:
        self._sides = first, second
        self.lengths: NDArray[np.int32] = np.stack([first.lengths, second.lengths], axis=1).astype(np.int32)
        self.mix: tuple[ExampleGroup, ...] = ()

    def fetch(self, ids: NDArray[np.integer]) -> NeighbourBatch:
        """Returns the padded batch of the given pairs."""
        return NeighbourBatch(*self._sides[0].fetch(ids), *self._sides[1].fetch(ids))


def label_ids(labels: Sequence[str], known: Sequence[str], where: str) -> NDArray[np.int64]:
    """Returns the id of each label: its index among the known labels.

    Raises:
        DataError: a label is unknown.
    """
    numbers = {label: number for number, label in enumerate(known)}
    unknown = Counter(label for label in labels if label not in numbers)
    if unknown:
        label, times = unknown.most_common(1)[0]
        shown = ", ".join(known[:MAX_SHOWN]) + ", ..." * (len(known) > MAX_SHOWN)
        raise DataError(
            f"{where}: label {label!r} ({times} times) is not one of the model's {len(known)} ({shown}); "
            "check the labels"
        )
    return np.array([numbers[label] for label in labels], np.int64)
