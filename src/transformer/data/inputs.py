"""The files of a corpus, each read as a stream of pairs."""

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from transformer.data.config import DataConfig, file_format
from transformer.data.documents import is_bilingual
from transformer.data.language_pairs import NO_DIRECTION, Direction
from transformer.data.readers import Pair, PairCounts, read_pairs, replace_line_ends
from transformer.data.tables import read_csv, read_jsonl, read_parquet, read_tsv
from transformer.data.tmx import read_tmx
from transformer.errors import DataError
from transformer.text.trees import is_treebank


@dataclass(frozen=True)
class CorpusFile:
    """A file of pairs, or a source file and its target file.

    Attributes:
        paths: One path, or the paths of source and target.
        weight: Number of times per epoch that each example is seen.
        settings: The `data` section of the recipe, or the one that a table of `[[data.pairs]]` stands for.
        direction: The languages that the table names; empty without tables.
    """

    paths: tuple[Path, ...]
    weight: float
    settings: DataConfig
    direction: Direction = NO_DIRECTION

    @property
    def name(self) -> str:
        """The path of the file, or of the source file."""
        return str(self.paths[0])

    def read(self, counts: PairCounts | None = None) -> Iterator[Pair]:
        """Yields the pairs in order.

        Raises:
            DataError: the file cannot be used, or contains no pairs.
        """
        counts = counts if counts is not None else PairCounts()
        pair = None
        for pair in self._read_pairs(counts):
            if "\n" in pair[0] or "\n" in pair[1]:
                counts.line_breaks += 1
                pair = replace_line_ends(pair[0]), replace_line_ends(pair[1])
            yield pair
        if pair is None and counts.left_out:
            raise DataError(
                f"{self.name} holds no pair that can be used: {counts.describe_left_out()}; repair the file"
            )
        if pair is None:
            raise DataError(f"{self.name} holds no pair; give a file with one sentence and its translation a row")

    def _read_pairs(self, counts: PairCounts) -> Iterator[Pair]:
        settings = self.settings
        if len(self.paths) == 2:
            return read_pairs(*self.paths, counts, settings.invalid_utf8)
        path = self.paths[0]
        suffix = file_format(self.name)
        names = settings.languages or ("source", "target")
        if suffix == ".tmx":  # whose languages are given
            return read_tmx(path, names, counts, settings.invalid_utf8)
        if is_treebank(path) or is_bilingual(path):
            return read_pairs(path, path, counts, settings.invalid_utf8)
        if suffix == ".tsv":
            return read_tsv(path, settings.columns, counts, settings.invalid_utf8, languages=True)
        if suffix == ".csv":
            return read_csv(path, settings.columns, counts, settings.invalid_utf8, names, languages=True)
        if suffix == ".jsonl":
            return read_jsonl(path, settings.columns, counts, settings.invalid_utf8, names)
        return read_parquet(path, settings.columns, counts, names)


def training_files(settings: DataConfig) -> list[CorpusFile]:
    """Returns the training files in the order of their weights: source files, then files with both sides."""
    if settings.language_pairs:
        return [
            replace(file, weight=table.weight, direction=table.direction)
            for table in settings.language_pairs
            for file in training_files(settings.of_direction(table))
        ]
    files = [(Path(source), Path(target)) for source, target in settings.text_files]
    files = [*files, *((Path(path),) for path in settings.pair_files)]
    weights = settings.weights or (1.0,) * len(files)
    return [CorpusFile(paths, weight, settings) for paths, weight in zip(files, weights, strict=True)]


def read_files(inputs: list[CorpusFile], counts: PairCounts | None = None) -> Generator[Pair]:
    """Yields the pairs of all files, one file after another; line numbers in messages refer to the current file."""
    for file in inputs:
        file_counts = PairCounts()
        yield from file.read(file_counts)
        if counts is not None:
            counts.add(file_counts)
