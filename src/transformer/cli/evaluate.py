"""`transformer evaluate`: scores the translations of a test set by one model, or compares several systems."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from transformer.cli.completion import complete_model
from transformer.cli.evaluate_directions import DirectionResults, evaluate_directions
from transformer.cli.evaluate_shards import ModelRun, TestFiles
from transformer.cli.evaluation_work import EvaluationWork, PairTest, short_names
from transformer.cli.fields import parameters_of
from transformer.cli.notes import collect_notes
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
from transformer.errors import ConfigError, escape_controls
from transformer.evaluation.scores import parse_metrics
from transformer.evaluation.tokenization import TokenizationChoice
from transformer.options.search import Search

if TYPE_CHECKING:
    from transformer.cli.search import Loading
    from transformer.evaluation.comparison import Evaluation

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
DirectionsOption = Annotated[
    str | None,
    typer.Option(
        help="pairs of languages to score one by one, with their mean: en-de,fr-de, or learned, or all; {source} and "
        "{target} in the names of files stand for the languages"
    ),
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
    directions: DirectionsOption = None,
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
    a difference of this size arises by chance (paired bootstrap). With --directions, a model of several languages is
    scored on a test set for each pair of languages.

    Example: transformer evaluate runs/first --source test.en --reference test.de
    """
    metric_names, models = parse_metrics(metrics), models or []
    single_model_options = {
        "--output": output, **{f"--{name}": loading.options.get(name) for name in ("ensemble", "shortlist", "rerank")}
    }  # fmt: skip
    if sharding:
        single_model_options.pop("--output")
    _check_options(models, source, reference, translations, single_model_options)
    if not models:
        _refuse_model_options(context, [*parameters_of(search_of), *parameters_of(loading_of)])
    _check_tokenization(tokenize)
    languages = language_of("--source-language", source_language), language_of("--target-language", target_language)
    files = TestFiles(source, reference or (), translations or (), short_names(translations or ()))
    new_notes = partial(collect_notes, verbose=verbose, quiet=quiet)
    work = EvaluationWork(
        models, loading, search, metric_names, tokenize, bootstrap, invalid_choice(invalid_utf8), sharding, new_notes,
        training, report, details=details,
    )  # fmt: skip
    test = PairTest(files, output, languages)
    if directions is None:
        evaluation, runs, n_lines = work.evaluate(test)
        _print_results(evaluation, runs, n_lines, as_json=as_json, details=details)
        return
    _print_directions(evaluate_directions(work, test, directions), as_json=as_json)


def _check_tokenization(tokenize: TokenizationChoice) -> None:
    """Checks that the packages of a tokenization are installed, before the work.

    Raises:
        ConfigError: They are missing.
    """
    from transformer.evaluation.scores import make_bleu

    if tokenize == "ja-mecab":
        make_bleu(tokenize)


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


def _print_directions(results: DirectionResults, *, as_json: bool) -> None:
    """Prints the figures of each pair of languages and their means, as a table or as JSON."""
    for pair, (evaluation, runs, _) in results.pairs.items():
        if as_json:
            for note in evaluation.notes:
                say(f"note: {pair.name}: {note}")
            continue
        typer.echo(f"{'' if pair == results.first else chr(10)}{pair.title}")
        _print_results(evaluation, runs, 0, as_json=False, details=False)
    if as_json:
        typer.echo(json.dumps(results.as_json(), ensure_ascii=False))
        return
    for line in results.mean_lines():
        typer.echo(line)


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
