"""`transformer evaluate --shards`: a test set translated and scored by any number of processes.

A shard holds the translations of its lines and the counts that scores are computed from. Counts of several shards, one
after another, are those of the whole test set, so scores and their intervals are those of one process.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NotRequired, Protocol, TypedDict

from transformer.cli.chunks import CHUNK_LINES
from transformer.cli.pairs_file import with_seed
from transformer.cli.parquet_shards import REFERENCE_COLUMN, TEXT_COLUMN, TableColumns, TableReader
from transformer.cli.sharded_lines import LineReader, LineWork, Result, Row, RowReader
from transformer.cli.sharding import Settings, ShardedCommand, ShardingOptions, Work, model_identity, work_in_shards
from transformer.errors import ConfigError, DataError
from transformer.evaluation.scores import MetricName, resolve_tokenization, sentence_statistics
from transformer.evaluation.tokenization import Tokenization, TokenizationChoice
from transformer.options.search import Search

if TYPE_CHECKING:
    from transformer.cli.search import Loading
    from transformer.evaluation.comparison import Evaluation
    from transformer.pipelines.translation.config import Languages
    from transformer.pipelines.translation.translator import Translator
    from transformer.sharding.job import Job
    from transformer.text.lines import Invalid

LANGUAGES: Final = ("source_language", "target_language")


class ModelRun(TypedDict):
    """The translation of the test set by one model: where it was computed, and in what time, unless in shards."""

    model: str
    flagged: int
    seconds: NotRequired[float]
    computed: NotRequired[str]


class TestSet(Protocol):
    """A test set that is divided into shards."""

    @property
    def paths(self) -> list[Path]:
        """Its files."""
        ...

    @property
    def shape(self) -> tuple[bool, int, int]:
        """Whether there is a source, which is the first text of a row, and the numbers of references and systems."""
        ...

    @property
    def names(self) -> Sequence[str]:
        """Names of the systems whose translations are there."""
        ...

    def reader(self, invalid: "Invalid") -> RowReader:
        """Returns the reader of the rows: source, references, translations."""
        ...

    def read_references(self) -> list[list[str]]:
        """Returns all references; those that cannot be read are left out later."""
        ...


@dataclass(frozen=True)
class TestFiles:
    """Files of a test set, aligned line by line.

    Attributes:
        source: Source text; None if no model translates it.
        references: Reference translations.
        translations: Translations of other systems.
        names: Names of these systems.
    """

    source: Path | None
    references: Sequence[Path]
    translations: Sequence[Path]
    names: Sequence[str]

    @property
    def paths(self) -> list[Path]:
        """All files, the source first."""
        return [*([] if self.source is None else [self.source]), *self.references, *self.translations]

    @property
    def shape(self) -> tuple[bool, int, int]:
        """Implements `TestSet.shape`."""
        return self.source is not None, len(self.references), len(self.translations)

    def reader(self, invalid: "Invalid") -> RowReader:
        """Implements `TestSet.reader`.

        Raises:
            ConfigError: The test set is of trees.
        """
        from transformer.sharding.lines import TextFiles
        from transformer.text.lines import MAX_LINE_CHARACTERS
        from transformer.text.trees import is_treebank

        if any(map(is_treebank, self.paths)):
            raise ConfigError("--shards divides text by lines, but the test set is of trees; leave out --shards")
        return LineReader(TextFiles(self.paths, CHUNK_LINES), MAX_LINE_CHARACTERS, invalid)

    def read_references(self) -> list[list[str]]:
        """Implements `TestSet.read_references`."""
        from transformer.text.lines import read_lines

        return [list(read_lines(path, invalid="replace", overlong="cut")) for path in self.references]


@dataclass(frozen=True)
class TestTable:
    """A test set as columns of a Parquet file.

    Attributes:
        path: The file.
        columns: Its columns.
        has_source: Whether a model translates the source.
    """

    path: Path
    columns: TableColumns
    has_source: bool

    @property
    def paths(self) -> list[Path]:
        """Implements `TestSet.paths`."""
        return [self.path]

    @property
    def shape(self) -> tuple[bool, int, int]:
        """Implements `TestSet.shape`."""
        return self.has_source, len(self._references), len(self.names)

    @property
    def names(self) -> Sequence[str]:
        """Implements `TestSet.names`: the columns."""
        return self.columns.translations

    def reader(self, invalid: "Invalid") -> RowReader:
        """Implements `TestSet.reader`."""
        from transformer.sharding.parquet_rows import ParquetRows
        from transformer.text.lines import MAX_LINE_CHARACTERS

        del invalid
        names = [*([self.columns.text or TEXT_COLUMN] if self.has_source else []), *self._references, *self.names]
        return TableReader(ParquetRows(self.path, names), MAX_LINE_CHARACTERS, on_one_line=True)

    def read_references(self) -> list[list[str]]:
        """Implements `TestSet.read_references`."""
        from transformer.sharding.parquet_rows import ParquetRows
        from transformer.text.lines import MAX_LINE_CHARACTERS

        reader = TableReader(ParquetRows(self.path, self._references), MAX_LINE_CHARACTERS, on_one_line=True)
        columns = zip(*reader.rows(reader.source.all(), count(1), {}), strict=True)
        return [list(column) for column in columns] or [[] for _ in self._references]

    @property
    def _references(self) -> Sequence[str]:
        return self.columns.references or [REFERENCE_COLUMN]


@dataclass(frozen=True)
class ShardedEvaluation:
    """An evaluation in shards.

    Attributes:
        models: Models that translate the source.
        test: The test set.
        search: The search.
        loading: Options for loading the models.
        languages: `source_language` and `target_language` that were given.
        metrics: Names of the metrics.
        tokenize: Tokenization of BLEU.
        invalid: Handling of bytes that are not UTF-8; "error" sets the line apart.
        loaded: The models, by the seed of their samples.
    """

    models: Sequence[Path]
    test: TestSet
    search: Search
    loading: "Loading"
    languages: "Languages"
    metrics: Sequence[MetricName]
    tokenize: TokenizationChoice
    invalid: "Invalid"
    loaded: "dict[int, list[Translator]]" = field(default_factory=dict[int, Any])

    def run(self, sharding: ShardingOptions, folder: Path, samples: int) -> "tuple[Evaluation, list[ModelRun]]":
        """Evaluates shards until all are there, and returns the scores, and how each model did.

        Args:
            sharding: Options of the command line.
            folder: Folder of the results.
            samples: Number of bootstrap samples.

        Raises:
            TransformerError: A model cannot be loaded, or the folder holds other results or cannot be written.
        """
        lines = LineWork(self.test.reader(self.invalid), _no_statistics)
        settings: Settings = {
            "model": [model_identity(model) for model in self.models],
            "search": repr(with_seed(self.search, 0)),
            "options": repr(
                (sorted(self.loading.options.items()), self.loading.average, self.languages, self.test.shape)
            ),
            "metrics": repr((self.metrics, self.tokenize, self.invalid)),
        }
        command = ShardedCommand(
            "evaluate", settings, lambda decided: self._prepare(lines, decided), suffix=".jsonl", decide=self._decide
        )
        return self._summarize(work_in_shards(sharding, lines.reader.source, folder, command), samples)

    def _load(self, seed: int) -> "list[Translator]":
        if seed not in self.loaded:
            search = with_seed(self.search, seed)
            self.loaded[seed] = [self.loading.translator(model, search, **self.languages) for model in self.models]
        return self.loaded[seed]

    def _decide(self) -> Settings:
        """Returns the seed, the languages, and the tokenization that fits the references as a whole."""
        seed, recorded = self.search.sampling.seed if self.search.sampling else 0, dict[str, Any](self.languages)
        for translator in self._load(seed)[:1]:
            config = translator.config
            recorded |= {name: getattr(config, name) for name in LANGUAGES if getattr(config, name)}
        references = self.test.read_references() if self.tokenize == "auto" else []
        tokenization = resolve_tokenization(self.tokenize, references, recorded["target_language"])
        return {"seed": seed, "tokenization": tokenization, **recorded}

    def _prepare(self, lines: LineWork, settings: Settings) -> Work:
        """Loads the models, and returns the function that evaluates a shard."""
        translators = self._load(settings["seed"])

        def do_rows(n_before: int, rows: Iterator[Row]) -> Iterator[Result[bytes]]:
            while chunk := list(islice(rows, CHUNK_LINES)):
                yield from self._evaluate(chunk, n_before, translators, settings["tokenization"])
                n_before += len(chunk)

        return lines.by(do_rows)

    def _evaluate(
        self, rows: Sequence[Row], n_before: int, translators: "Sequence[Translator]", tokenization: Tokenization
    ) -> Iterator[Result[bytes]]:
        """Yields the translations and counts of rows, as JSON."""
        columns = [list(column) for column in zip(*rows, strict=True)]
        first, n_references, _ = self.test.shape
        end = first + n_references
        references, others = columns[first:end], columns[end:]
        translated = [translator.finish(translator.begin(columns[0], None, n_before)) for translator in translators]
        systems = [*([line.text for line in lines] for lines in translated), *others]
        statistics = sentence_statistics(systems, references, tokenization, self.metrics)
        knows = [translator.confidence_model(self.search) is not None for translator in translators]
        for index in range(len(rows)):
            fields = {
                "line": n_before + index + 1,
                "translations": [system[index] for system in systems],
                "flagged": [bool(lines[index].flags) for lines in translated],
                "unsure": [
                    lines[index].is_unsure if known else None for lines, known in zip(translated, knows, strict=True)
                ],
                "statistics": [[counts[index] for counts in system] for system in statistics],
            }
            yield Result(json.dumps(fields, ensure_ascii=False).encode() + b"\n")

    def _summarize(self, job: "Job", samples: int) -> "tuple[Evaluation, list[ModelRun]]":
        """Returns the scores of all lines, and how each model did.

        Raises:
            DataError: No line could be read.
        """
        from transformer.evaluation.comparison import EvaluationSet, System, evaluate_statistics

        totals, references = _Totals(len(self.models), len(self.metrics)), self.test.read_references()
        kept = [number for number, row in enumerate(_rows(job)) if totals.add(row)]
        if not kept:
            raise DataError("nothing to score; give a reference with one sentence per line")
        names = [*map(str, self.models), *self.test.names]
        unsure = [*totals.unsure, *[None] * len(self.test.names)]
        systems = [System(*facts) for facts in zip(names, totals.translations, unsure, strict=True)]
        test = EvaluationSet(
            None, [[lines[number] for number in kept] for lines in references], None,
            job.settings["source_language"], job.settings["target_language"],
        )  # fmt: skip
        evaluation = evaluate_statistics(
            systems, test, totals.statistics, job.settings["tokenization"],
            metrics=self.metrics, samples=samples,
        )  # fmt: skip
        return evaluation, [
            {"model": str(model), "flagged": flagged}
            for model, flagged in zip(self.models, totals.flagged, strict=True)
        ]


@dataclass
class _Totals:
    """Sums over the lines of a test set.

    Attributes:
        n_models: Number of models, the first systems.
        n_metrics: Number of metrics.
        translations: Translations of each system.
        statistics: Counts of each sentence, of each metric of each system.
        flagged: Number of flagged translations of each model.
        unsure: Number of translations that each model is unsure of; None if it does not tell.
    """

    n_models: int
    n_metrics: int
    translations: list[list[str]] = field(default_factory=list[list[str]])
    statistics: list[list[list[list[float]]]] = field(default_factory=list[list[list[list[float]]]])
    flagged: list[int] = field(default_factory=list[int])
    unsure: list[int | None] = field(default_factory=list[int | None])

    def add(self, row: dict[str, Any]) -> bool:
        """Adds a line, unless it could not be read; returns whether it was added."""
        if row["statistics"] is None:
            return False
        if not self.translations:
            self.translations = [[] for _ in row["translations"]]
            self.statistics = [[[] for _ in range(self.n_metrics)] for _ in row["translations"]]
            self.flagged = [0] * self.n_models
            self.unsure = [None if unsure is None else 0 for unsure in row["unsure"]]
        for system, text in enumerate(row["translations"]):
            self.translations[system].append(text)
            for metric, counts in enumerate(row["statistics"][system]):
                self.statistics[system][metric].append(counts)
        self.flagged = [total + flagged for total, flagged in zip(self.flagged, row["flagged"], strict=True)]
        self.unsure = [
            None if total is None else total + unsure for total, unsure in zip(self.unsure, row["unsure"], strict=True)
        ]
        return True


def _no_statistics(number: int) -> bytes:
    """Returns the result of a line that cannot be read."""
    return b'{"line": %d, "statistics": null}\n' % number


def _rows(job: "Job") -> Iterator[dict[str, Any]]:
    """Yields the results of all lines."""
    rest = b""
    for content in job.results():
        *lines, rest = (rest + content).split(b"\n")
        yield from map(json.loads, lines)
