"""`transformer quantize`: a model in a quarter of the memory, and what that costs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transformer.cli.search import WorkersOption, takes_search
from transformer.cli.translate import InvalidOption, ModelArgument, invalid_choice
from transformer.evaluation.scores import Tokenization

if TYPE_CHECKING:
    from transformer.decoding import Search
    from transformer.quantization import Comparison


@takes_search
def quantize(
    model: ModelArgument,
    source: Annotated[Path, typer.Option(help="held-out source, plain or .gz: not the test set, nor seen in training")],
    reference: Annotated[Path, typer.Option(help="its reference translation, line by line")],
    out: Annotated[Path, typer.Option(help="folder of the quantized model; must not exist")],
    tolerance: Annotated[float, typer.Option(help="most BLEU that int8 may lose")] = 0.5,
    invalid_utf8: InvalidOption = "error",
    tokenize: Annotated[Tokenization, typer.Option(help="how BLEU splits words, as for evaluate")] = "13a",
    workers: WorkersOption = None,
    *,
    search: "Search",
) -> None:
    """Round a model's weights to int8, and show what its translations of held-out text lose.

    The text is translated in float32 and in int8. Where int8 loses more than the tolerance, nothing is written.

    Example: transformer quantize runs/first --source val.en --reference val.de --out first-int8
    """
    from transformer.data.readers import read_pairs
    from transformer.quantization import quantize

    pairs = list(read_pairs(source, reference, invalid=invalid_choice(invalid_utf8)))
    comparison = quantize(model, out, pairs, search=search, tokenize=tokenize, tolerance=tolerance, workers=workers)
    for row in _rows(comparison):
        typer.echo(f"{row[0]:<12}{row[1]:>10}{row[2]:>10}{row[3]:>12}")
    typer.echo(f"{comparison.agreement:.1%} of {len(pairs):,} lines are translated the same")
    typer.echo(f"next: transformer translate {out}")


def _rows(comparison: "Comparison") -> list[tuple[str, str, str, str]]:
    before, after = comparison.before, comparison.after
    rows = [("", "float32", "int8", "")]
    for ours, theirs in zip(before.scores, after.scores, strict=True):
        rows.append((ours.name, f"{ours.value:.2f}", f"{theirs.value:.2f}", f"{theirs.value - ours.value:+.2f}"))
    speeds = [f"{each.lines_per_second:.1f}" for each in (before, after)]
    rows.append(("lines/s", *speeds, f"{comparison.speed_up:.2f} times"))  # pyright: ignore[reportArgumentType]
    sizes = [f"{each.weight_bytes / 2**20:.1f}" for each in (before, after)]
    share = after.weight_bytes / before.weight_bytes
    rows.append(("weights, MiB", *sizes, f"{share:.0%}"))  # pyright: ignore[reportArgumentType]
    return rows
