"""`transformer score`: scores existing translations."""

import json
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from transformer.cli.notes import QuietOption, VerboseOption, collected_notes
from transformer.cli.outputs import open_output
from transformer.cli.search import AverageOption, DeviceOption, EnsembleOption, with_average
from transformer.cli.translate import (
    CHUNK_LINES,
    InvalidOption,
    ModelArgument,
    invalid_choice,
    refuse_same_files,
)

if TYPE_CHECKING:
    from transformer.pipelines.translation.scoring import PairScore


def score(
    model: ModelArgument,
    source: Annotated[Path, typer.Option(help="source text, plain or compressed")],
    target: Annotated[Path, typer.Option(help="its translation, aligned line by line")],
    output_path: Annotated[
        Path | None, typer.Option("--output", help="file to write; standard output if not given")
    ] = None,
    invalid_utf8: InvalidOption = "error",
    per_token: Annotated[
        bool, typer.Option("--per-token", help="divide by the number of tokens, to compare lines of different lengths")
    ] = False,
    output_format: Annotated[
        Literal["text", "jsonl"], typer.Option("--format", help="jsonl: one object per line, with all tokens")
    ] = "text",
    ensemble: EnsembleOption = None,
    average: AverageOption = None,
    device: DeviceOption = "auto",
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
) -> None:
    """Score translations line by line: the log-probability of their tokens in nats, including EOS.

    Useful to rank translations of a sentence, or to find the worst pairs of a corpus. A line that is too long for the
    model scores nan, and a note on standard error names it.

    Example: transformer score runs/first --source test.en --target test.de --per-token
    """
    from transformer.data.readers import read_all_pairs
    from transformer.decoding import GREEDY
    from transformer.pipelines.auto import load_translator  # loads torch
    from transformer.pipelines.translation.scoring import score_pairs

    refuse_same_files([source, target], [output_path])
    pairs = iter(read_all_pairs(source, target, invalid=invalid_choice(invalid_utf8)))
    search = with_average(GREEDY, average, ensemble)
    translator = load_translator(model, search=search, ensemble=ensemble or (), precision="float32", device=device)
    number = 0
    with collected_notes(verbose=verbose, quiet=quiet) as notes, open_output(output_path) as sink:
        while chunk := list(islice(pairs, CHUNK_LINES)):
            for result in score_pairs(translator, chunk):
                number += 1
                value = result.per_token if per_token else result.score
                line = _as_json(number, result) if output_format == "jsonl" else f"{value:.4f}"
                sink.write(line.encode() + b"\n")
                notes.add(number, result.flags)
            sink.flush()


def _as_json(number: int, result: "PairScore") -> str:
    """Returns a JSON object on one line; NaN becomes null."""
    score = result.score if result.token_scores else None
    tokens = [{"piece": piece, "score": value} for piece, value in zip(result.pieces, result.token_scores, strict=True)]
    per_token = result.per_token if result.token_scores else None
    return json.dumps(
        {"line": number, "score": score, "per_token": per_token, "flags": result.flags, "tokens": tokens},
        ensure_ascii=False,
    )
