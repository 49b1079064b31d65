"""The work of `transformer evaluate` on the test set of one pair of languages."""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal

from transformer.cli.evaluate_shards import ModelRun, ShardedEvaluation, TestFiles, TestSet, TestTable
from transformer.cli.files import check_files
from transformer.cli.notes import Notes
from transformer.cli.outputs import open_output
from transformer.cli.sharding import ShardingOptions
from transformer.cli.verbosity import say
from transformer.errors import DataError, counted
from transformer.evaluation.scores import MetricName
from transformer.evaluation.tokenization import TokenizationChoice
from transformer.options.search import Search

if TYPE_CHECKING:
    from transformer.cli.search import Loading
    from transformer.evaluation.comparison import Evaluation, EvaluationSet, System
    from transformer.text.lines import Invalid

Evaluated = tuple["Evaluation", list[ModelRun]]
"""Scores of a test set, and how each model did."""


@dataclass(frozen=True)
class PairTest:
    """Test set of a pair of languages.

    Attributes:
        files: Its files.
        output: File for the translations, or with shards the folder of the results.
        languages: Source and target language, as far as they were given.
        is_learned: Whether the model learned the pair; if not, its translations are zero-shot.
        table: Table of all texts, which replaces the files; None for files.
    """

    files: TestFiles
    output: Path | None
    languages: tuple[str | None, str | None]
    is_learned: bool = True
    table: TestTable | None = None

    @property
    def data(self) -> TestSet:
        """The table, or else the files."""
        return self.table or self.files

    @property
    def name(self) -> str:
        """Usual name of the pair, e.g. `en-de`."""
        return "-".join(filter(None, self.languages))

    @property
    def title(self) -> str:
        """Name of the pair, and whether its translations are zero-shot."""
        return self.name if self.is_learned else f"{self.name} (zero-shot)"


@dataclass(frozen=True)
class EvaluationWork:
    """Settings of `transformer evaluate` that hold for each test set.

    Attributes:
        models: Models that translate the source.
        loading: Options for loading the models.
        search: The search.
        metrics: Names of the metrics.
        tokenize: Tokenization of BLEU.
        samples: Number of bootstrap samples.
        invalid: Handling of bytes that are not UTF-8.
        sharding: Options for work in shards.
        new_notes: Function that returns a collector of notes.
        training: Target side of the training text, for the details.
        report: File for the HTML report.
        details: Whether details are printed.
    """

    models: Sequence[Path]
    loading: "Loading"
    search: Search
    metrics: Sequence[MetricName]
    tokenize: TokenizationChoice
    samples: int
    invalid: "Invalid"
    sharding: ShardingOptions
    new_notes: Callable[[], AbstractContextManager[Notes]]
    training: Path | None = None
    report: Path | None = None
    details: bool = False

    def check(self, test: PairTest) -> None:
        """Checks that the files of a test set can be read and written."""
        inputs = [self.training, self.loading.options.get("shortlist"), *test.data.paths]
        check_files(inputs, [None if self.sharding else test.output, self.report])

    def evaluate(self, test: PairTest) -> Evaluated:
        """Translates and scores a test set.

        Raises:
            TransformerError: A model or a file cannot be used, or a result cannot be written.
        """
        self.check(test)
        if self.sharding:
            return self._evaluate_in_shards(test)
        from transformer.evaluation.comparison import evaluate as compare

        read, others = _read(test.files, self.training, self.invalid, test.languages)
        read = replace(read, source_language=test.languages[0], target_language=test.languages[1])
        with ExitStack() as stack:  # fail before the work if a path is not writable
            sink = test.output and stack.enter_context(open_output(test.output))
            page = self.report and stack.enter_context(open_output(self.report, whole=True))
            systems, runs, read = _translate(self.models, read, self.loading, self.search, self.new_notes)
            if sink is not None:
                sink.write("".join(f"{text}\n" for text in systems[0].translations).encode())
            evaluation = compare([*systems, *others], read, self.tokenize, metrics=self.metrics, samples=self.samples)
            if page is not None:
                _write_page(page, evaluation, read)
        return evaluation, runs

    def _evaluate_in_shards(self, test: PairTest) -> Evaluated:
        whole = {"--training": self.training, "--details": self.details, "--report": self.report}
        _, folder = self.sharding.check(test.data.paths, "all files", test.output, whole)
        source, target = test.languages
        job = ShardedEvaluation(
            self.models, test.data, self.search, self.loading,
            {"source_language": source, "target_language": target}, self.metrics, self.tokenize, self.invalid,
        )  # fmt: skip
        return job.run(self.sharding, folder, self.samples)


def _write_page(page: BinaryIO, evaluation: "Evaluation", test: "EvaluationSet") -> None:
    """Writes the HTML report."""
    from transformer.reporting.evaluation import evaluation_page

    page.write(evaluation_page(evaluation, test).encode())


def _read(
    files: TestFiles, training: Path | None, invalid: "Invalid", languages: tuple[str | None, str | None]
) -> tuple["EvaluationSet", list["System"]]:
    """Reads the test set and the translations of other systems; each file is read once.

    Raises:
        DataError: The files have different numbers of lines.
    """
    from transformer.data.readers import PairCounts, raise_unequal_lines, read_side
    from transformer.evaluation.comparison import EvaluationSet, System

    @cache
    def read(path: Path, side: Literal[0, 1] = 1) -> list[str]:
        counts = PairCounts()
        lines = read_side(path, side, invalid, counts=counts, languages=languages)
        if counts.left_out:
            say(f"note: {path}: pairs left out: {counts.describe_left_out()}")
        return lines

    source, references, translations = files.source, files.references, files.translations
    sources = None if source is None else read(source, 0)
    n_lines = len(read(references[0]) if sources is None else sources)
    for path in references:
        if len(read(path)) != n_lines:
            raise_unequal_lines(source or references[0], path, (n_lines, len(read(path))))
    systems = [System(name, read(path)) for path, name in zip(translations, files.names, strict=True)]
    for path in translations:
        if len(read(path)) != n_lines:
            raise DataError(
                f"{path} has {counted(len(read(path)), 'line')}, but the test set has {n_lines:,}; "
                "give one translation per line"
            )
    training_text = None if training is None else read(training)
    return EvaluationSet(sources, [read(path) for path in references], training_text), systems


def short_names(paths: Sequence[Path]) -> list[str]:
    """Returns the last parts of each path, as many as distinguish the paths."""
    max_parts = max((len(path.parts) for path in paths), default=1)
    shortened = ([str(Path(*path.parts[-n:])) for path in paths] for n in range(1, max_parts + 1))
    return next((names for names in shortened if len(set(names)) == len(names)), [str(path) for path in paths])


def _translate(
    models: Sequence[Path],
    test: "EvaluationSet",
    loading: "Loading",
    search: Search,
    new_notes: Callable[[], AbstractContextManager[Notes]],
) -> tuple[list["System"], list[ModelRun], "EvaluationSet"]:
    """Translates with all models and prints notes on standard error.

    Returns:
        Translations, speed and precision of each model, and the test set with the languages that the first model
        records, where they were not given.
    """
    if not models or test.sources is None:
        return [], [], test
    from transformer.evaluation.comparison import System

    systems: list[System] = []
    runs: list[ModelRun] = []
    languages: dict[str, str] = {}
    for model in models:
        translator = loading.translator(
            model, search, source_language=test.source_language, target_language=test.target_language
        )
        languages = languages or {
            name: tag for name in ("source_language", "target_language") if (tag := getattr(translator.config, name))
        }
        started = time.perf_counter()
        translations = translator.translations(test.sources)
        seconds = time.perf_counter() - started
        unsure = None
        if translator.confidence_model(search) is not None:
            unsure = sum(translation.is_unsure for translation in translations)
        systems.append(System(str(model), [translation.text for translation in translations], unsure))
        flagged = sum(bool(translation.flags) for translation in translations)
        runs.append({
            "model": str(model), "flagged": flagged, "seconds": seconds, "computed": translator.description
        })  # fmt: skip
        with new_notes() as notes:
            for number, translation in enumerate(translations, start=1):
                notes.add(number, translation.flags, translation.unseen)
        translator.close()
    return systems, runs, replace(test, **languages)
