"""`transformer fill`: predicts masked words."""

import json
from typing import Annotated, Literal

import typer

from transformer.cli.embed import loaded_encoder
from transformer.cli.generate import PrecisionOption
from transformer.cli.translate import ModelArgument
from transformer.errors import printable


def fill(
    model: ModelArgument,
    text: Annotated[str, typer.Argument(help="text with [MASK] for each word to predict")],
    top: Annotated[int, typer.Option(min=1, help="number of predictions per mask")] = 5,
    output_format: Annotated[
        Literal["text", "jsonl"], typer.Option("--format", help="jsonl: one object per mask")
    ] = "text",
    precision: PrecisionOption = "auto",
) -> None:
    """Predict the words behind [MASK], each with its probability.

    Example: transformer fill bert "The capital of France is [MASK]."
    """
    from transformer.text.lines import check_utf8

    check_utf8(text, "the text")
    for number, guesses in enumerate(loaded_encoder(model, precision).fill(text, top), start=1):
        if output_format == "jsonl":
            predictions = [{"piece": g.piece, "probability": g.probability, "text": g.text} for g in guesses]
            typer.echo(json.dumps({"mask": number, "guesses": predictions}, ensure_ascii=False))
            continue
        for guess in guesses:
            typer.echo(f"{number}\t{guess.probability:.4f}\t{printable(guess.piece)}\t{printable(guess.text)}")
