"""`transformer score --shards`: pairs scored by any number of processes."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from transformer.cli.chunks import CHUNK_LINES
from transformer.cli.hub import obtain_model
from transformer.cli.parquet_shards import TEXT_COLUMN, TRANSLATION_COLUMN, TableColumns, TableReader, TableWork, Values
from transformer.cli.sharded_lines import Content, DoRows, LineReader, LineWork, Result, Row
from transformer.cli.sharding import Settings, ShardedCommand, ShardingOptions, model_identity, work_in_shards
from transformer.errors import ConfigError
from transformer.options.search import Search

if TYPE_CHECKING:
    from transformer.pipelines.translation.config import Languages
    from transformer.pipelines.translation.scoring import PairScore
    from transformer.pipelines.translation.translator import Translator
    from transformer.text.lines import Invalid

    FormatScore = Callable[[int, PairScore], bytes]


@dataclass(frozen=True)
class Scorer:
    """The models that score pairs, and how.

    Attributes:
        model: Path or name of the model.
        ensemble: Further models.
        search: The search, of which scoring uses the average of the models.
        device: Device of the models.
        special_tokens: Whether names of special tokens in texts are these tokens.
        languages: `source_language` and `target_language` that were given.
    """

    model: Path
    ensemble: Sequence[Path]
    search: Search
    device: str
    special_tokens: bool
    languages: "Languages"

    def load(self) -> "Translator":
        """Loads the models."""
        from transformer.pipelines.auto import load_translator  # loads torch

        obtain_model(self.model)
        return load_translator(
            self.model, search=self.search, ensemble=self.ensemble, precision="float32", device=self.device,
            special_tokens=self.special_tokens, **self.languages,
        )  # fmt: skip

    def settings(self) -> Settings:
        """Returns what determines the scores."""
        return {
            "model": [model_identity(path) for path in (self.model, *self.ensemble)],
            "search": repr(self.search),
            "options": repr((self.special_tokens, self.device, self.languages)),
        }

    def rows(self, form: "Callable[[int, PairScore], Content]") -> "Callable[[Settings], DoRows[Content]]":
        """Returns a function that loads the models and returns another one, which scores the pairs of some rows.

        Args:
            form: Function of the number of a row and its score, that returns what is written.
        """

        def prepare(decided: Settings) -> DoRows[Content]:
            del decided
            translator = self.load()

            def do_rows(n_before: int, rows: Iterator[Row]) -> Iterator[Result[Content]]:
                pairs = ((source, target) for source, target in rows)
                for number, result in enumerate(scores(translator, pairs), start=n_before + 1):
                    reasons = () if result.token_scores else result.flags
                    yield Result(form(number, result), "".join(f"line {number}: {flag}" for flag in reasons[:1]))

            return do_rows

        return prepare


def scores(translator: "Translator", pairs: Iterable[tuple[str, str]]) -> "Iterator[PairScore]":
    """Yields the scores of pairs, of which as many are scored together as a shard begins at multiples of."""
    from transformer.pipelines.translation.scoring import score_pairs

    remaining = iter(pairs)
    while chunk := list(islice(remaining, CHUNK_LINES)):
        yield from score_pairs(translator, chunk)


def score_lines(
    sharding: ShardingOptions, paths: list[Path], folder: Path, scorer: Scorer, format_score: "FormatScore",
    invalid: "Invalid", options: object,
) -> None:  # fmt: skip
    """Scores the lines of two files in shards; those that cannot be scored are set apart.

    Args:
        sharding: Options of the command line.
        paths: The text and its translation.
        folder: Folder of the results.
        scorer: The models.
        format_score: Function that formats the number of a line and its score.
        invalid: Handling of bytes that are not UTF-8; "error" sets the line apart.
        options: What else determines the results.

    Raises:
        ConfigError: A file is one of trees.
        TransformerError: The model cannot be loaded, or the folder holds other results or cannot be written.
    """
    from transformer.pipelines.translation.scoring import PairScore
    from transformer.sharding.lines import TextFiles
    from transformer.text.lines import MAX_LINE_CHARACTERS
    from transformer.text.trees import is_treebank

    if any(map(is_treebank, paths)):
        raise ConfigError("--shards divides text by lines, but the input holds trees; leave out --shards")
    unread = PairScore(math.nan, (), (), ("it cannot be read",))
    files, do_rows = TextFiles(paths, CHUNK_LINES), scorer.rows(format_score)
    lines = LineWork(LineReader(files, MAX_LINE_CHARACTERS, invalid), lambda number: format_score(number, unread))
    settings = {**scorer.settings(), "format": repr((options, invalid))}
    work_in_shards(
        sharding, files, folder, ShardedCommand("score", settings, lambda decided: lines.by(do_rows(decided)))
    )


def score_table(
    sharding: ShardingOptions, path: Path, folder: Path, scorer: Scorer, columns: TableColumns
) -> None:  # fmt: skip
    """Scores two columns of a table in shards, to Parquet files with the columns `score` and `per_token`.

    Args:
        sharding: Options of the command line.
        path: The Parquet file.
        folder: Folder of the results.
        scorer: The models.
        columns: The columns.
    """
    import pyarrow as pa

    from transformer.sharding.parquet_rows import ParquetRows
    from transformer.text.lines import MAX_LINE_CHARACTERS

    def values(number: int, result: "PairScore") -> Values:
        del number
        return (result.score, result.per_token) if result.token_scores else (None, None)

    texts = [columns.text or TEXT_COLUMN, *(columns.translations or [TRANSLATION_COLUMN])]
    table = TableWork(
        TableReader(ParquetRows(path, texts, columns.ids), MAX_LINE_CHARACTERS),
        pa.schema([("score", pa.float64()), ("per_token", pa.float64())]),
    )
    table.run(sharding, folder, "score", scorer.settings(), scorer.rows(values))
