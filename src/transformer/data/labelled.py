"""Texts with labels, and pairs of texts."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor

from transformer.data.batch import NeighbourBatch, TextBatch
from transformer.data.config import kind_of
from transformer.data.dataset import pad
from transformer.data.ragged import Ragged
from transformer.data.readers import Pair, PairCounts
from transformer.data.tables import Columns, read_jsonl, read_parquet, read_tsv
from transformer.errors import DataError
from transformer.interfaces import DatasetMix
from transformer.text.lines import Invalid
from transformer.tokenizers.base import Tokenizer

NAMES: Final = (".jsonl", ".parquet")
"""Files whose columns have names."""


def read_rows(
    paths: Sequence[Path], columns: Columns | None, names: tuple[str, str], invalid: Invalid = "error"
) -> Iterator[Pair]:
    """Yields two columns of files, one file after another.

    Args:
        paths: .tsv, .jsonl or .parquet, or other text files, which are read as .tsv.
        columns: which ones; the first two of a .tsv and those of `names` elsewhere if not given.
        names: see there.
        invalid: as in `read_lines`.

    Raises:
        DataError: a file cannot be used.
    """
    for path in paths:
        kind = kind_of(str(path))
        if kind in NAMES:
            wanted = columns or names
            yield from (
                read_jsonl(path, wanted, PairCounts(), invalid, labels=True)
                if kind == ".jsonl"
                else read_parquet(path, wanted, labels=True)
            )
        else:
            yield from read_tsv(path, columns or (1, 2), PairCounts(), invalid)


class EncodedTexts:
    """Texts as tokens, each in its frame.

    Attributes:
        lengths: tokens of each, the frame included.
        cut: how many were longer than the model takes, and lost their end.
    """

    def __init__(self, texts: Sequence[str], tokenizer: Tokenizer, most_tokens: int) -> None:
        """Encodes texts.

        Args:
            texts: of any length.
            tokenizer: of the model, which knows the frame.
            most_tokens: of a text, the frame included.
        """
        before, after = tokenizer.boundary_tokens
        room = most_tokens - len(before) - len(after)
        ids = tokenizer.encode_batch(texts)
        self.n_truncated = sum(len(each) > room for each in ids)
        rows = [np.array([*before, *each[:room], *after], np.int32) for each in ids]
        whole = Ragged.from_rows(rows)
        self._values, self.lengths = whole.values, whole.lengths
        self._starts = np.cumsum(self.lengths) - self.lengths
        self._pad = tokenizer.special_tokens.pad or 0

    def fetch(self, ids: NDArray[np.integer[Any]]) -> tuple[Int[Tensor, "B S"], Bool[Tensor, "B 1 1 S"]]:
        """The texts of the given numbers, padded, and which of their tokens are no padding."""
        rows = [self._values[self._starts[i] : self._starts[i] + self.lengths[i]] for i in ids]
        lengths = self.lengths[ids]
        tokens = pad(Ragged.from_rows(rows), fill=self._pad)
        stands = torch.arange(tokens.size(1)) < torch.from_numpy(lengths)[:, None]
        return tokens, stands[:, None, None, :]


def max_text_tokens(config: dict[str, Any]) -> int:
    """Most tokens of a text that a model reads as a whole, its frame included."""
    return config["text_tokens"] or config["seq_len"]


class LabelledDataset:
    """Serves texts with labels.

    Args:
        texts: as tokens.
        labels: the number of each one's label.
    """

    def __init__(self, texts: EncodedTexts, labels: NDArray[np.int64]) -> None:
        self._texts, self._labels = texts, labels
        self.lengths: NDArray[np.int32] = texts.lengths[:, None].astype(np.int32)
        self.mix: tuple[DatasetMix, ...] = ()

    def fetch(self, ids: NDArray[np.integer[Any]]) -> TextBatch:
        """The padded batch of the given texts."""
        return TextBatch(*self._texts.fetch(ids), torch.from_numpy(self._labels[ids]))


class NeighbourDataset:
    """Serves pairs of texts that mean the same.

    Args:
        first: one side as tokens.
        second: the other.
    """

    def __init__(self, first: EncodedTexts, second: EncodedTexts) -> None:
        self._sides = first, second
        self.lengths: NDArray[np.int32] = np.stack([first.lengths, second.lengths], axis=1).astype(np.int32)
        self.mix: tuple[DatasetMix, ...] = ()

    def fetch(self, ids: NDArray[np.integer[Any]]) -> NeighbourBatch:
        """The padded batch of the given pairs."""
        return NeighbourBatch(*self._sides[0].fetch(ids), *self._sides[1].fetch(ids))


def label_ids(labels: Sequence[str], known: Sequence[str], where: str) -> NDArray[np.int64]:
    """The number of each label among those that are known.

    Raises:
        DataError: one is not.
    """
    numbers = {label: number for number, label in enumerate(known)}
    unknown = Counter(label for label in labels if label not in numbers)
    if unknown:
        label, times = unknown.most_common(1)[0]
        raise DataError(
            f"{where}: label {label!r} ({times} times) is none of the model's ({', '.join(known)}); check the labels"
        )
    return np.array([numbers[label] for label in labels], np.int64)
