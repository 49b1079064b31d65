"""`transformer quantize`: converts a model to int8, and measures the loss of quality."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transformer.cli.arguments import HeldOutOption, JsonObjectOption, ReferenceOption
from transformer.cli.files import check_files, check_new_folder
from transformer.cli.paths import folder_option
from transformer.cli.search import (
    SourceLanguageOption,
    TargetLanguageOption,
    WorkersOption,
    languages_of,
    takes_search,
)
from transformer.cli.translate import InvalidOption, ModelArgument, invalid_choice
from transformer.cli.verbosity import takes_verbosity
from transformer.errors import DataError
from transformer.evaluation.tokenization import TokenizationChoice
from transformer.options.search import Search

if TYPE_CHECKING:
    from transformer.pipelines.translation.quantization import Comparison


@takes_verbosity
@takes_search
def quantize(
    model: ModelArgument,
    source: HeldOutOption,
    reference: ReferenceOption,
    output_path: Annotated[
        Path,
        folder_option("folder for the quantized model; must not exist", "--output"),
    ],
    tolerance: Annotated[float, typer.Option(help="maximum loss of int8, in BLEU points")] = 0.5,
    invalid_utf8: InvalidOption = "error",
    tokenize: Annotated[
        TokenizationChoice, typer.Option(help="tokenization for BLEU, as for transformer evaluate")
    ] = "auto",
    workers: WorkersOption = None,
    source_language: SourceLanguageOption = None,
    target_language: TargetLanguageOption = None,
    as_json: JsonObjectOption = False,
    *,
    search: Search,
) -> None:
    """Quantize a model's weights to int8, and measure the loss of quality on held-out text.

    The text is translated in float32, bf16 and int8. If int8 loses more than the tolerance, only the comparison is
    printed, and no model is written.

    Example: transformer quantize runs/first --source val.en --reference val.de --output first-int8
    """
    check_files([source, reference])
    check_new_folder(output_path)
    from transformer.data.readers import PairCounts, read_pairs
    from transformer.pipelines.translation.quantization import quantize_model

    counts = PairCounts()
    pairs = list(read_pairs(source, reference, counts, invalid_choice(invalid_utf8)))
    if counts.left_out:
        raise DataError(f"{source}: {counts.describe_left_out()}; a score must cover all lines, so divide them")
    quantize_model(
        model,
        output_path,
        pairs,
        search=search,
        tokenize=tokenize,
        tolerance=tolerance,
        workers=workers,
        languages=languages_of(source_language, target_language),
        on_result=_print_json if as_json else print_comparisons,
    )
    if not as_json:
        typer.echo(f"next: transformer translate {output_path}")


def _print_json(comparisons: "Mapping[str, Comparison]") -> None:
    typer.echo(json.dumps({name: comparison.as_json(name) for name, comparison in comparisons.items()}))


def print_comparisons(comparisons: "Mapping[str, Comparison]") -> None:
    """Prints a table of quality and speed in each precision."""
    for name, *cells in _rows(comparisons):
        typer.echo(f"{name:<16}" + "".join(f"{cell:>10}" for cell in cells))


def _rows(comparisons: "Mapping[str, Comparison]") -> Iterator[list[str]]:
    """Yields the rows of the table: figures of each precision, then the changes."""
    compared = list(comparisons.values())
    before, after = compared[0].before, [comparison.after for comparison in compared]
    yield ["", "float32", *comparisons, *(f"Δ {name}" for name in comparisons)]
    for index, score in enumerate(before.scores):
        values = [quality.scores[index].value for quality in (before, *after)]
        yield [
            score.name,
            *(f"{value:.2f}" for value in values),
            *(f"{value - values[0]:+.2f}" for value in values[1:]),
        ]
    speeds = [f"{quality.lines_per_second:.1f}" for quality in (before, *after)]
    yield ["lines/s", *speeds, *(f"{comparison.speed_up:.2f} x" for comparison in compared)]
    sizes = [f"{quality.weight_bytes / 2**20:.1f}" for quality in (before, *after)]
    yield ["weights, MiB", *sizes, *(f"{quality.weight_bytes / before.weight_bytes:.0%}" for quality in after)]
    yield ["identical lines", *[""] * (1 + len(after)), *(f"{comparison.agreement:.1%}" for comparison in compared)]
