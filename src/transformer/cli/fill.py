"""`transformer fill`: predicts masked words."""

import json
from itertools import chain
from typing import Annotated, Literal

import typer

from transformer.cli.arguments import JsonOption, choose_format
from transformer.cli.embed import load_encoder
from transformer.cli.generate import PrecisionOption
from transformer.cli.search import DeviceOption, SpecialTokensOption
from transformer.cli.translate import ModelArgument
from transformer.cli.verbosity import takes_verbosity
from transformer.errors import printable


@takes_verbosity
def fill(
    model: ModelArgument,
    texts: Annotated[
        list[str], typer.Argument(metavar="TEXT...", help="text with [MASK] for each word to predict, or several")
    ],
    top: Annotated[int, typer.Option(min=1, help="number of predictions per mask")] = 5,
    output_format: Annotated[
        Literal["text", "jsonl"] | None, typer.Option("--format", help="text (default), or jsonl: one object per mask")
    ] = None,
    as_json: JsonOption = False,
    precision: PrecisionOption = "auto",
    device: DeviceOption = "auto",
    special_tokens: SpecialTokensOption = False,
) -> None:
    """Predict the words behind [MASK], each with its probability. The masks of several texts are numbered on.

    Example: transformer fill bert "The capital of France is [MASK]."
    """
    from transformer.text.lines import check_utf8

    chosen = choose_format(output_format, "text", "jsonl", as_json=as_json)
    for text in texts:
        check_utf8(text, "the text")
    encoder = load_encoder(model, precision, device, special_tokens=special_tokens)
    masks = chain.from_iterable(encoder.fill(text, top) for text in texts)
    for number, guesses in enumerate(masks, start=1):
        if chosen == "jsonl":
            predictions = [{"piece": g.piece, "probability": g.probability, "text": g.text} for g in guesses]
            typer.echo(json.dumps({"mask": number, "guesses": predictions}, ensure_ascii=False))
            continue
        for guess in guesses:
            typer.echo(f"{number}\t{guess.probability:.4f}\t{printable(guess.piece)}\t{printable(guess.text)}")
