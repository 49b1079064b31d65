"""Scores of systems as they are printed."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from transformer.cli.evaluate_shards import ModelRun
from transformer.cli.verbosity import say
from transformer.errors import counted, escape_controls

if TYPE_CHECKING:
    from transformer.evaluation.comparison import Evaluation


def print_results(evaluation: "Evaluation", runs: Sequence[ModelRun], *, as_json: bool, details: bool) -> None:
    """Prints notes on standard error, and all figures as a table or as JSON."""
    for note in evaluation.notes:
        say(f"note: {note}")
    if as_json:
        typer.echo(json.dumps(results_as_json(evaluation, runs), ensure_ascii=False))
    else:
        _print(evaluation, runs, details=details)


def results_as_json(evaluation: "Evaluation", runs: Sequence[ModelRun]) -> dict[str, Any]:
    """Returns all figures as JSON values."""
    return {"lines": len(evaluation.systems[0].translations), "runs": runs, **evaluation.as_json()}


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
            typer.echo(counted(evaluation.empty[number], "empty translation"))
        if number < len(runs):
            run = runs[number]
            speed = ""
            if "seconds" in run and "computed" in run:
                speed = f", {run['seconds']:.1f} s ({n_lines / run['seconds']:.1f} lines/s, {run['computed']})"
            unsure = "" if system.unsure is None else f" ({system.unsure:,} unsure)"
            typer.echo(f"{counted(n_lines, 'line')}, {run['flagged']:,} flagged{unsure}{speed}")
    if evaluation.blank_references:
        typer.echo(f"{counted(evaluation.blank_references, 'line')} with a blank reference")
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
