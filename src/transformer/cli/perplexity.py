"""`transformer perplexity`: how well a language model predicts a text."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from transformer.cli.loaded import loaded
from transformer.cli.progress import counted
from transformer.cli.translate import InvalidOption, ModelArgument, invalid_choice


def perplexity(
    model: ModelArgument,
    text: Annotated[Path, typer.Argument(help="text file, plain or compressed")],
    window: Annotated[
        int | None, typer.Option(min=1, help="tokens predicted at a time; all positions of the model if not given")
    ] = None,
    precision: Annotated[
        Literal["float32", "bf16", "int8"],
        typer.Option(help="of the weights; float32 gives the model's own figures, the others those of a faster one"),
    ] = "float32",
    invalid_utf8: InvalidOption = "error",
) -> None:
    """Print loss (nats a token) and perplexity of a text, in windows that do not overlap.

    Example: transformer perplexity runs/shakespeare held-out.txt
    """
    from transformer.pipelines.text_generation import Generator  # loads torch
    from transformer.text.lines import read_lines

    generator = loaded(model, Generator, "language model", precision=precision)
    content = "".join(f"{line}\n" for line in read_lines(text, invalid=invalid_choice(invalid_utf8)))
    with counted("tokens") as done:
        found = generator.perplexity(content, window=window, done=done)
    typer.echo(
        f"loss {found.loss:.4f}  perplexity {found.perplexity:.3f}  of {found.tokens:,} tokens; left out at the end, "
        f"where they fill no window: {found.left_out:,}"
    )
