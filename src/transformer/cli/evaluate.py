"""`transformer evaluate`: how good translations are on a test set, of one model or of several systems side by side."""

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from transformer.cli.search import loading_of, options_of, search_of, takes_loading, takes_search
from transformer.cli.translate import InvalidOption, invalid_choice, print_flags, refuse_same, written_to
from transformer.errors import ConfigError, DataError
from transformer.evaluation.scores import Tokenization, parse_metrics

if TYPE_CHECKING:
    from transformer.cli.search import Loading
    from transformer.decoding import Search
    from transformer.evaluation.comparison import Evaluation, EvaluationSet, System
    from transformer.text.lines import Invalid

Format = Literal["text", "json", "html"]


@takes_loading
@takes_search
def evaluate(
    models: Annotated[list[Path] | None, typer.Argument(help="model folders, or run folders (their best)")] = None,
    source: Annotated[Path | None, typer.Option(help="test source, plain or .gz; needed by models")] = None,
    reference: Annotated[
        list[Path] | None, typer.Option(help="its reference translation, line by line; may be given again")
    ] = None,
    translations: Annotated[
        list[Path] | None, typer.Option(help="translations of another system, to be scored too; may be given again")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="also write the translations of the model here")] = None,
    invalid_utf8: InvalidOption = "error",
    metrics: Annotated[str, typer.Option(help="of bleu, chrf, chrf++, ter; with commas, or all")] = "bleu,chrf",
    tokenize: Annotated[
        Tokenization, typer.Option(help="how BLEU splits words; none for text that is tokenised already")
    ] = "13a",
    bootstrap: Annotated[
        int, typer.Option(min=0, max=100_000, help="samples for confidence intervals and paired tests; 0 for none")
    ] = 1000,
    training: Annotated[
        Path | None, typer.Option(help="target side of the training text, which tells how often words occur")
    ] = None,
    details: Annotated[bool, typer.Option("--details", help="scores by length and frequency, telling lines")] = False,
    report: Annotated[Path | None, typer.Option(help="also write all of it as a page of HTML")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
    *,
    context: typer.Context,
    loading: "Loading",
    search: "Search",
) -> None:
    """Translate a test set and score it (sacrebleu, with signatures and 95 % confidence intervals).

    Several models, and --translations of other systems, are compared with the first: p is the probability of a
    difference as large as that by chance (paired bootstrap).

    Example: transformer evaluate runs/first --source test.en --reference test.de
    """
    wanted, models = parse_metrics(metrics), models or []
    alone = {"--output": output, "--ensemble": loading.ensemble, "--shortlist": loading.shortlist}
    _refuse(models, source, reference, translations, alone)
    if not models:
        _refuse_given(context, [*options_of(search_of), *options_of(loading_of)])
    refuse_same([source, training, loading.shortlist, *(reference or ()), *(translations or ())], [output, report])

    from transformer.evaluation.comparison import evaluate as compare

    test, others = _read(source, reference or [], training, translations or [], invalid_choice(invalid_utf8))
    with ExitStack() as files:  # a path that cannot be written shows now, not after the work
        sink, page = (path and files.enter_context(written_to(path)) for path in (output, report))
        systems, runs = _translate(models, test, loading, search)
        if sink is not None:
            sink.write("".join(f"{text}\n" for text in systems[0].translations).encode())
        found = compare([*systems, *others], test, tokenize, metrics=wanted, samples=bootstrap)
        if page is not None:
            from transformer.reporting.evaluation import evaluation_page

            page.write(evaluation_page(found, test).encode())
    if as_json:
        typer.echo(json.dumps({"lines": len(test.references[0]), "runs": runs, **found.as_json()}, ensure_ascii=False))
        return
    _print(found, runs, details=details)


def _refuse(
    models: Sequence[Path], source: Path | None, reference: Sequence[Path] | None, translations: Sequence[Path] | None,
    alone: Mapping[str, object],
) -> None:  # fmt: skip
    """Refuses combinations that mean nothing.

    Raises:
        ConfigError: something is missing, or without effect.
    """
    if not reference:
        raise ConfigError("there is nothing to compare with; give --reference FILE")
    if not models and not translations:
        raise ConfigError("there is nothing to evaluate; give a model, or --translations FILE")
    if models and source is None:
        raise ConfigError("a model needs something to translate; give --source FILE")
    for option, given in alone.items():
        if given and len(models) != 1:
            raise ConfigError(f"{option} goes with one model, not {len(models)}; evaluate them one by one")


def _refuse_given(context: typer.Context, options: Sequence[str]) -> None:
    """Refuses options that were given, since no model translates.

    Raises:
        ConfigError: there is one.
    """
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in options and source is not None and source.name == "COMMANDLINE":
            raise ConfigError(f"{parameter.opts[0]} is for what a model translates; there is none, so leave it out")


def _read(
    source: Path | None, references: Sequence[Path], training: Path | None, translations: Sequence[Path],
    invalid: "Invalid",
) -> tuple["EvaluationSet", list["System"]]:  # fmt: skip
    """The test set and the systems that translated it; every file is read once, and has as many lines.

    Raises:
        DataError: one has not.
    """
    from transformer.data.readers import raise_unequal_lines
    from transformer.evaluation.comparison import EvaluationSet, System
    from transformer.text.lines import read_lines

    @cache
    def read(path: Path) -> list[str]:
        return list(read_lines(path, invalid=invalid))

    first = references[0] if source is None else source
    for path in references:
        if len(read(path)) != len(read(first)):
            raise_unequal_lines(first, path, (len(read(first)), len(read(path))))
    systems = [System(name, read(path)) for path, name in zip(translations, _short_names(translations), strict=True)]
    for path in translations:
        if len(read(path)) != len(read(first)):
            raise DataError(
                f"{path} has {len(read(path)):,} lines, the reference {len(read(first)):,}; they go line by line"
            )
    sources, counted = (None if path is None else read(path) for path in (source, training))
    return EvaluationSet(sources, [read(path) for path in references], counted), systems


def _short_names(paths: Sequence[Path]) -> list[str]:
    """The last parts of each path, as many as tell it from the others."""
    most = max((len(path.parts) for path in paths), default=1)
    shortened = ([str(Path(*path.parts[-n:])) for path in paths] for n in range(1, most + 1))
    return next((names for names in shortened if len(set(names)) == len(names)), [str(path) for path in paths])


def _translate(
    models: Sequence[Path], test: "EvaluationSet", loading: "Loading", search: "Search"
) -> tuple[list["System"], list[dict[str, Any]]]:
    """The translations of every model, and how they came about; flags go to standard error."""
    if not models:
        return [], []
    from transformer.evaluation.comparison import System

    assert test.sources is not None
    systems: list[System] = []
    runs: list[dict[str, Any]] = []
    for model in models:
        translator = loading.translator(model, search)
        started = time.perf_counter()
        translations = translator.translations(test.sources)
        seconds = time.perf_counter() - started
        systems.append(System(str(model), [translation.text for translation in translations]))
        flagged = sum(bool(translation.flags) for translation in translations)
        runs.append({
            "model": str(model), "flagged": flagged, "seconds": seconds, "computed": translator.description
        })  # fmt: skip
        for number, translation in enumerate(translations, start=1):
            print_flags(number, translation.flags)
        translator.close()
    return systems, runs


def _print(found: "Evaluation", runs: Sequence[dict[str, Any]], *, details: bool) -> None:
    n_lines = len(found.systems[0].translations)
    for number, (system, scores) in enumerate(zip(found.systems, found.scores, strict=True)):
        if len(found.systems) > 1:
            typer.echo(f"{'' if number == 0 else chr(10)}{system.name}")
        for score in scores:
            interval = "" if score.interval is None else f" ± {score.interval:.2f}"
            chance = "" if score.p_value is None else f"  p {score.p_value:.3f}"
            typer.echo(f"{score.name:<7}{score.value:5.2f}{interval}{chance}   {score.signature}")
        if found.empty[number]:
            typer.echo(f"{found.empty[number]:,} lines are not translated")
        if number < len(runs):
            run = runs[number]
            speed = f"{run['seconds']:.1f} s ({n_lines / run['seconds']:.1f} lines/s, {run['computed']})"
            typer.echo(f"{n_lines:,} lines, {run['flagged']} flagged, {speed}")
    if details:
        _print_details(found)


def _print_details(found: "Evaluation") -> None:
    of = f"   of {', '.join(system.name for system in found.systems)}" if len(found.systems) > 1 else ""
    typer.echo(f"\n{'words of the ' + found.length_of:<23}lines   BLEU and chrF{of}")
    for each in found.lengths:
        pairs = zip(each.bleu, each.chrf, strict=True)
        figures = "   ".join(f"{bleu:5.2f} {chrf:5.2f}" for bleu, chrf in pairs)
        typer.echo(f"{each.name:<19}{each.lines:>9,}   {figures}")
    typer.echo(f"\nwords that occur   in the first reference   found (F1){of}")
    for each in found.frequencies:
        typer.echo(f"{each.name + ' times':<16}{each.words:>25,}   {'   '.join(f'{value:5.2f}' for value in each.f1)}")
    if len(found.systems) == 1:
        typer.echo("\nlines with the lowest chrF")
    else:
        typer.echo(f"\nlines on which the systems differ most{of}" if found.lines else "\nno line on which they differ")
    for line in found.lines:
        for text, chrf in zip(line.translations, line.chrf, strict=True):
            typer.echo(f"{line.number:>6}  {chrf:5.1f}  {text}")
