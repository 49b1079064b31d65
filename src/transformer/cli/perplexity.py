"""`transformer perplexity`: measures how well a language model predicts a text."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from transformer.cli.arguments import JsonObjectOption
from transformer.cli.files import check_files
from transformer.cli.loaded import loaded
from transformer.cli.progress import counted
from transformer.cli.translate import InvalidOption, ModelArgument, invalid_choice
from transformer.cli.verbosity import takes_verbosity


@takes_verbosity
def perplexity(
    model: ModelArgument,
    text: Annotated[Path, typer.Argument(help="text file, plain or compressed")],
    window: Annotated[
        int | None, typer.Option(min=1, help="tokens per window; the model's context length if not given")
    ] = None,
    precision: Annotated[
        Literal["float32", "bf16", "int8"],
        typer.Option(help="precision of the weights; float32 is exact, the others are faster"),
    ] = "float32",
    as_json: JsonObjectOption = False,
    invalid_utf8: InvalidOption = "error",
) -> None:
    """Print the loss (nats per token) and perplexity of a text, in windows that do not overlap.

    Example: transformer perplexity runs/shakespeare held-out.txt
    """
    check_files([text])
    from transformer.data.windows import running_text
    from transformer.pipelines.text_generation import Generator  # loads torch

    generator = loaded(model, Generator, "language model", precision=precision)
    content = "".join(running_text([text], invalid_choice(invalid_utf8)))
    with counted("tokens") as done:
        result = generator.perplexity(content, window=window, done=done)
    if as_json:
        typer.echo(json.dumps({**asdict(result), "perplexity": result.perplexity}))
        return
    typer.echo(
        f"loss {result.loss:.4f}  perplexity {result.perplexity:.3f}  of {result.tokens:,} tokens; omitted at the end, "
        f"in an incomplete window: {result.left_out:,}"
    )
