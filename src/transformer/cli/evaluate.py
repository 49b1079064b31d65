"""`transformer evaluate`: scores the translations of a test set by one model, or compares several systems."""

import json
from collections.abc import Sequence
from functools import partial
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from transformer.cli.completion import complete_model
from transformer.cli.evaluate_directions import DirectionResults, evaluate_directions
from transformer.cli.evaluate_shards import TestFiles, TestTable
from transformer.cli.evaluation_work import EvaluationWork, PairTest, short_names
from transformer.cli.fields import parameters_of
from transformer.cli.notes import collect_notes
from transformer.cli.parquet_shards import TableColumns, refuse_for_tables, takes_test_columns
from transformer.cli.score_table import print_results
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
from transformer.errors import ConfigError
from transformer.evaluation.scores import parse_metrics
from transformer.evaluation.tokenization import TokenizationChoice
from transformer.options.search import Search

if TYPE_CHECKING:
    from transformer.cli.search import Loading

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
@takes_test_columns
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
    columns: TableColumns,
) -> None:
    """Translate a test set and score it (sacrebleu, with signatures and 95 % confidence intervals).

    Several models, and --translations of other systems, are compared with the first one. p is the probability that
    a difference of this size arises by chance (paired bootstrap). With --directions, a model of several languages is
    scored on a test set for each pair of languages.

    Example: transformer evaluate runs/first --source test.en --reference test.de
    """
    metric_names, systems = parse_metrics(metrics), models or []
    files = TestFiles(source, reference or (), translations or (), short_names(translations or ()))
    table = TestTable(source, columns, bool(systems)) if columns.reads_table(source, sharding) and source else None
    languages = language_of("--source-language", source_language), language_of("--target-language", target_language)
    test = PairTest(files, output, languages, table=table)
    _check_options(context, systems, test, loading, None if sharding else output)
    _check_tokenization(tokenize)
    invalid, new_notes = invalid_choice(invalid_utf8), partial(collect_notes, verbose=verbose, quiet=quiet)
    if table is not None:
        refuse_for_tables({
            "--reference": reference, "--translations": translations, "--invalid-utf8": invalid == "replace",
            "--directions": directions,
        })  # fmt: skip
    work = EvaluationWork(
        systems, loading, search, metric_names, tokenize, bootstrap, invalid, sharding, new_notes, training, report,
        details=details,
    )  # fmt: skip
    if directions is None:
        print_results(*work.evaluate(test), as_json=as_json, details=details)
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


def _print_directions(results: DirectionResults, *, as_json: bool) -> None:
    """Prints the figures of each pair of languages and their means, as a table or as JSON."""
    for pair, (evaluation, runs) in results.pairs.items():
        if as_json:
            for note in evaluation.notes:
                say(f"note: {pair.name}: {note}")
            continue
        typer.echo(f"{'' if pair == results.first else chr(10)}{pair.title}")
        print_results(evaluation, runs, as_json=False, details=False)
    if as_json:
        typer.echo(json.dumps(results.as_json(), ensure_ascii=False))
        return
    for line in results.mean_lines():
        typer.echo(line)


def _check_options(
    context: typer.Context, models: Sequence[Path], test: PairTest, loading: "Loading", output: Path | None,
) -> None:  # fmt: skip
    """Checks the combination of options.

    Args:
        context: The command line.
        models: The models.
        test: The test set.
        loading: Options for loading the models.
        output: File for the translations of the model; None for none.

    Raises:
        ConfigError: An option is missing, or would have no effect.
    """
    is_table = test.table is not None
    if not test.files.references and not is_table:
        raise ConfigError("the reference translation is missing; give --reference FILE")
    if not models and not test.data.names:
        option = "--translation-column NAME" if is_table else "--translations FILE"
        raise ConfigError(f"models and translations are missing; give a model, or {option}")
    if models and test.files.source is None:
        raise ConfigError("a model needs a source text to translate; give --source FILE")
    single_model_options = {"--output": output}
    single_model_options |= {f"--{name}": loading.options.get(name) for name in ("ensemble", "shortlist", "rerank")}
    for option, value in single_model_options.items():
        if value and len(models) != 1:
            raise ConfigError(
                f"{option} needs exactly one model, but there are {len(models)}; evaluate them one by one"
            )
    if not models:
        _refuse_model_options(context, [*parameters_of(search_of), *parameters_of(loading_of)])


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
