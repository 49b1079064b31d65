"""`transformer evaluate`: scores the translations of a test set by one model, or compares several systems."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from functools import cache, partial
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Literal

import typer

from transformer.cli.completion import complete_model
from transformer.cli.evaluate_shards import ModelRun, ShardedEvaluation, TestFiles
from transformer.cli.fields import parameters_of
from transformer.cli.files import check_files
from transformer.cli.notes import Notes, collect_notes
from transformer.cli.outputs import open_output
from transformer.cli.search import (
    SourceLanguageOption,
    TargetLanguageOption,
    language_of,
    loading_of,
    search_of,
    takes_loading,
    takes_search,
)
from transformer.cli.sharding import ShardingOptions, takes_sharding
from transformer.cli.translate import InvalidOption, invalid_choice
from transformer.cli.verbosity import QuietOption, VerboseOption, say, takes_verbosity
from transformer.errors import ConfigError, DataError, escape_controls
from transformer.evaluation.scores import parse_metrics
from transformer.evaluation.tokenization import TokenizationChoice
from transformer.options.search import Search

if TYPE_CHECKING:
    from transformer.cli.search import Loading
    from transformer.evaluation.comparison import Evaluation, EvaluationSet, System
    from transformer.pipelines.translation.config import Languages
    from transformer.text.lines import Invalid

Format = Literal["text", "json", "html"]


SourceOption = Annotated[
    Path | None, typer.Option(help="source text of the test set, plain or compressed; required for models")
]
ReferenceOption = Annotated[
    list[Path] | None, typer.Option(help="reference translation, aligned line by line; may be repeated")
]
MetricsOption = Annotated[
    str,
    typer.Option(
        help="metrics, separated by commas: any of bleu, chrf, chrf++, ter, or all; for trees: brackets, complete"
    ),
]
TokenizeOption = Annotated[
    TokenizationChoice,
    typer.Option(
        help="tokenization for BLEU; auto: by the language of the reference; none: for text that is already tokenized"
    ),
]
BootstrapOption = Annotated[
    int,
    typer.Option(
        min=0, max=100_000, help="number of bootstrap samples for confidence intervals and paired tests; 0: none"
    ),
]
TrainingOption = Annotated[
    Path | None, typer.Option(help="target side of the training text, to count word frequencies for --details")
]
DetailsOption = Annotated[
    bool, typer.Option("--details", help="print scores by length and word frequency, and the lines that differ most")
]


@takes_verbosity
@takes_loading
@takes_search
@takes_sharding
def evaluate(
    models: Annotated[
        list[Path] | None,
        typer.Argument(help="model folders, or run folders (their best models)", autocompletion=complete_model),
    ] = None,
    source: SourceOption = None,
    reference: ReferenceOption = None,
    translations: Annotated[
        list[Path] | None, typer.Option(help="translations of another system to score; may be repeated")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="file for the translations of the model")] = None,
    invalid_utf8: InvalidOption = "error",
    metrics: MetricsOption = "bleu,chrf",
    tokenize: TokenizeOption = "auto",
    source_language: SourceLanguageOption = None,
    target_language: TargetLanguageOption = None,
    bootstrap: BootstrapOption = 1000,
    training: TrainingOption = None,
    details: DetailsOption = False,
    report: Annotated[Path | None, typer.Option(help="file for an HTML report of all results")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
    *,
    context: typer.Context,
    loading: "Loading",
    search: Search,
    sharding: ShardingOptions,
) -> None:
    """Translate a test set and score it (sacrebleu, with signatures and 95 % confidence intervals).

    Several models, and --translations of other systems, are compared with the first one. p is the probability that
    a difference of this size arises by chance (paired bootstrap).

    Example: transformer evaluate runs/first --source test.en --reference test.de
    """
    metric_names, models = parse_metrics(metrics), models or []
    shortlist, ensemble = loading.options.get("shortlist"), loading.options.get("ensemble")
    single_model_options = {
        "--output": output,
        "--ensemble": ensemble,
        "--shortlist": shortlist,
        "--rerank": loading.options.get("rerank"),
    }
    if sharding:
        single_model_options.pop("--output")
    _check_options(models, source, reference, translations, single_model_options)
    if not models:
        _refuse_model_options(context, [*parameters_of(search_of), *parameters_of(loading_of)])
    inputs = [source, training, shortlist, *(reference or ()), *(translations or ())]
    check_files(inputs, [None if sharding else output, report])

    from transformer.evaluation.comparison import evaluate as compare

    _check_tokenization(tokenize)
    languages = language_of("--source-language", source_language), language_of("--target-language", target_language)
    invalid = invalid_choice(invalid_utf8)
    if sharding:
        files = TestFiles(source, reference or (), translations or (), _short_names(translations or ()))
        whole = {"--training": training, "--details": details, "--report": report}
        _, folder = sharding.check(files.paths, "all files", output, whole)
        named: Languages = {"source_language": languages[0], "target_language": languages[1]}
        job = ShardedEvaluation(models, files, search, loading, named, metric_names, tokenize, invalid)
        evaluation, runs = job.run(sharding, folder, bootstrap)
        _print_results(evaluation, runs, len(evaluation.systems[0].translations), as_json=as_json, details=False)
        return
    test, others = _read(source, reference or [], training, translations or [], invalid, languages)
    test = replace(test, source_language=languages[0], target_language=languages[1])
    new_notes = partial(collect_notes, verbose=verbose, quiet=quiet)
    with ExitStack() as files:  # fail before the work if a path is not writable
        sink = output and files.enter_context(open_output(output))
        page = report and files.enter_context(open_output(report, whole=True))
        systems, runs, test = _translate(models, test, loading, search, new_notes)
        if sink is not None:
            sink.write("".join(f"{text}\n" for text in systems[0].translations).encode())
        evaluation = compare([*systems, *others], test, tokenize, metrics=metric_names, samples=bootstrap)
        if page is not None:
            _write_page(page, evaluation, test)
    _print_results(evaluation, runs, len(test.references[0]), as_json=as_json, details=details)


def _check_tokenization(tokenize: TokenizationChoice) -> None:
    """Checks that the packages of a tokenization are installed, before the work.

    Raises:
        ConfigError: They are missing.
    """
    from transformer.evaluation.scores import make_bleu

    if tokenize == "ja-mecab":
        make_bleu(tokenize)


def _write_page(page: BinaryIO, evaluation: "Evaluation", test: "EvaluationSet") -> None:
    """Writes the HTML report."""
    from transformer.reporting.evaluation import evaluation_page

    page.write(evaluation_page(evaluation, test).encode())


def _print_results(
    evaluation: "Evaluation", runs: Sequence[ModelRun], n_lines: int, *, as_json: bool, details: bool
) -> None:
    """Prints notes on standard error, and all figures as a table or as JSON."""
    for note in evaluation.notes:
        say(f"note: {note}")
    if as_json:
        typer.echo(json.dumps({"lines": n_lines, "runs": runs, **evaluation.as_json()}, ensure_ascii=False))
    else:
        _print(evaluation, runs, details=details)


def _check_options(
    models: Sequence[Path], source: Path | None, reference: Sequence[Path] | None, translations: Sequence[Path] | None,
    single_model_options: Mapping[str, object],
) -> None:  # fmt: skip
    """Checks the combination of options.

    Raises:
        ConfigError: An option is missing, or would have no effect.
    """
    if not reference:
        raise ConfigError("the reference translation is missing; give --reference FILE")
    if not models and not translations:
        raise ConfigError("models and translations are missing; give a model, or --translations FILE")
    if models and source is None:
        raise ConfigError("a model needs a source text to translate; give --source FILE")
    for option, value in single_model_options.items():
        if value and len(models) != 1:
            raise ConfigError(
                f"{option} needs exactly one model, but there are {len(models)}; evaluate them one by one"
            )


def _refuse_model_options(context: typer.Context, options: Sequence[Parameter]) -> None:
    """Refuses options of models on the command line, which have no effect without a model.

    Raises:
        ConfigError: One of the options was set.
    """
    names = [option.name for option in options]
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in names and source is not None and source.name == "COMMANDLINE":
            raise ConfigError(f"{parameter.opts[0]} has no effect without a model; leave it out")


def _read(
    source: Path | None, references: Sequence[Path], training: Path | None, translations: Sequence[Path],
    invalid: "Invalid", languages: tuple[str | None, str | None],
) -> tuple["EvaluationSet", list["System"]]:  # fmt: skip
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

    sources = None if source is None else read(source, 0)
    n_lines = len(read(references[0]) if sources is None else sources)
    for path in references:
        if len(read(path)) != n_lines:
            raise_unequal_lines(source or references[0], path, (n_lines, len(read(path))))
    systems = [System(name, read(path)) for path, name in zip(translations, _short_names(translations), strict=True)]
    for path in translations:
        if len(read(path)) != n_lines:
            raise DataError(
                f"{path} has {len(read(path)):,} lines, but the test set has {n_lines:,}; give one translation per line"
            )
    training_text = None if training is None else read(training)
    return EvaluationSet(sources, [read(path) for path in references], training_text), systems


def _short_names(paths: Sequence[Path]) -> list[str]:
    """Returns the last parts of each path, as many as distinguish the paths."""
    max_parts = max((len(path.parts) for path in paths), default=1)
    shortened = ([str(Path(*path.parts[-n:])) for path in paths] for n in range(1, max_parts + 1))
    return next((names for names in shortened if len(set(names)) == len(names)), [str(path) for path in paths])


def _translate(
    models: Sequence[Path],
    test: "EvaluationSet",
    loading: "Loading",
    search: Search,
    new_notes: Callable[[], AbstractContextManager["Notes"]],
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


def _print(evaluation: "Evaluation", runs: Sequence[ModelRun], *, details: bool) -> None:
    n_lines = len(evaluation.systems[0].translations)
    for number, (system, scores) in enumerate(zip(evaluation.systems, evaluation.scores, strict=True)):
        if len(evaluation.systems) > 1:
            typer.echo(f"{'' if number == 0 else chr(10)}{system.name}")
        for score in scores:
            interval = "" if score.interval is None else f" ± {score.interval:.2f}"
            chance = "" if score.p_value is None else f"  p {score.p_value:.3f}"
            typer.echo(f"{score.name:<6} {score.value:5.2f}{interval}{chance}   {score.signature}")
        if evaluation.empty[number]:
            typer.echo(f"{evaluation.empty[number]:,} empty translations")
        if number < len(runs):
            run = runs[number]
            speed = ""
            if "seconds" in run and "computed" in run:
                speed = f", {run['seconds']:.1f} s ({n_lines / run['seconds']:.1f} lines/s, {run['computed']})"
            unsure = "" if system.unsure is None else f" ({system.unsure:,} unsure)"
            typer.echo(f"{n_lines:,} lines, {run['flagged']:,} flagged{unsure}{speed}")
    if evaluation.blank_references:
        lines = "line" if evaluation.blank_references == 1 else "lines"
        typer.echo(f"{evaluation.blank_references:,} {lines} with a blank reference")
    if details:
        _print_details(evaluation)


def _print_details(evaluation: "Evaluation") -> None:
    names = f"   of {', '.join(system.name for system in evaluation.systems)}" if len(evaluation.systems) > 1 else ""
    typer.echo(f"\n{'words of the ' + evaluation.length_of:<23}lines   BLEU and chrF{names}")
    for bucket in evaluation.lengths:
        pairs = zip(bucket.bleu, bucket.chrf, strict=True)
        figures = "   ".join(f"{bleu:5.2f} {chrf:5.2f}" for bleu, chrf in pairs)
        typer.echo(f"{bucket.name:<19}{bucket.lines:>9,}   {figures}")
    typer.echo(f"\nwords that occur   in the first reference   found (F1){names}")
    for bucket in evaluation.frequencies:
        typer.echo(
            f"{bucket.name + ' times':<16}{bucket.words:>25,}   {'   '.join(f'{value:5.2f}' for value in bucket.f1)}"
        )
    if len(evaluation.systems) == 1:
        typer.echo("\nlines with the lowest chrF")
    else:
        typer.echo(
            f"\nlines on which the systems differ most{names}"
            if evaluation.lines
            else "\nthe systems do not differ on any line"
        )
    for line in evaluation.lines:
        for text, chrf in zip(line.translations, line.chrf, strict=True):
            typer.echo(f"{line.number:>6}  {chrf:5.1f}  {escape_controls(text)}")
