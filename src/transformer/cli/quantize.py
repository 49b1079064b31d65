"""`transformer quantize`: a model in a quarter of the memory, and what that costs."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transformer.cli.search import WorkersOption, takes_search
from transformer.cli.translate import InvalidOption, ModelArgument, invalid_choice
from transformer.evaluation.scores import Tokenization

if TYPE_CHECKING:
    from transformer.decoding import Search
    from transformer.pipelines.translation.quantization import Comparison


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

    The text is translated in float32, bf16 and int8. Where int8 loses more than the tolerance, nothing is written but
    what that costs.

    Example: transformer quantize runs/first --source val.en --reference val.de --out first-int8
    """
    from transformer.data.readers import read_pairs
    from transformer.pipelines.translation.quantization import quantize

    pairs = list(read_pairs(source, reference, invalid=invalid_choice(invalid_utf8)))
    quantize(
        model, out, pairs, search=search, tokenize=tokenize, tolerance=tolerance, workers=workers, on_result=_print
    )
    typer.echo(f"next: transformer translate {out}")


def _print(found: "Mapping[str, Comparison]") -> None:
    for name, *cells in _rows(found):
        typer.echo(f"{name:<16}" + "".join(f"{cell:>10}" for cell in cells))


def _rows(found: "Mapping[str, Comparison]") -> Iterator[list[str]]:
    """Float32 and what it is compared with, then what that changes."""
    compared = list(found.values())
    before, after = compared[0].before, [each.after for each in compared]
    yield ["", "float32", *found, *(f"Δ {name}" for name in found)]
    for place, score in enumerate(before.scores):
        values = [each.scores[place].value for each in (before, *after)]
        yield [
            score.name,
            *(f"{value:.2f}" for value in values),
            *(f"{value - values[0]:+.2f}" for value in values[1:]),
        ]
    speeds = [f"{each.lines_per_second:.1f}" for each in (before, *after)]
    yield ["lines/s", *speeds, *(f"{each.speed_up:.2f} x" for each in compared)]
    sizes = [f"{each.weight_bytes / 2**20:.1f}" for each in (before, *after)]
    yield ["weights, MiB", *sizes, *(f"{each.weight_bytes / before.weight_bytes:.0%}" for each in after)]
    yield ["the same lines", *[""] * (1 + len(after)), *(f"{each.agreement:.1%}" for each in compared)]
