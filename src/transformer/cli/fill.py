"""`transformer fill`: words that a masked-language model guesses."""

import json
from typing import Annotated, Literal

import typer

from transformer.cli.embed import loaded_encoder
from transformer.cli.generate import PrecisionOption
from transformer.cli.translate import ModelArgument
from transformer.errors import printable


def fill(
    model: ModelArgument,
    text: Annotated[str, typer.Argument(help="with [MASK] where a word is to be guessed")],
    top: Annotated[int, typer.Option(min=1, help="guesses of each mask")] = 5,
    output_format: Annotated[
        Literal["text", "jsonl"], typer.Option("--format", help="jsonl: an object a mask")
    ] = "text",
    precision: PrecisionOption = "auto",
) -> None:
    """Guess the words behind [MASK], each with its probability.

    Example: transformer fill bert "The capital of France is [MASK]."
    """
    from transformer.text.lines import check_utf8

    check_utf8(text, "the text")
    for number, guesses in enumerate(loaded_encoder(model, precision).fill(text, top), start=1):
        if output_format == "jsonl":
            each = [{"piece": g.piece, "probability": g.probability, "text": g.text} for g in guesses]
            typer.echo(json.dumps({"mask": number, "guesses": each}, ensure_ascii=False))
            continue
        for guess in guesses:
            typer.echo(f"{number}\t{guess.probability:.4f}\t{printable(guess.piece)}\t{printable(guess.text)}")
