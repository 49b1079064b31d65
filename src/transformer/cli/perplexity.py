"""`transformer perplexity`: measures how well a language model predicts a text."""

import json
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from transformer.cli.arguments import JsonObjectOption, argument_lines
from transformer.cli.files import check_files
from transformer.cli.loading import load_pipeline
from transformer.cli.parquet_shards import TableColumns, refuse_for_tables, takes_text_column
from transformer.cli.perplexity_shards import TokenWindows, perplexity_in_shards
from transformer.cli.progress import progress_bar
from transformer.cli.search import DeviceOption, SpecialTokensOption
from transformer.cli.sharding import ShardingOptions, takes_sharding
from transformer.cli.translate import InvalidOption, ModelArgument, invalid_choice
from transformer.cli.verbosity import prompt_on_terminal, takes_verbosity
from transformer.errors import ConfigError

if TYPE_CHECKING:
    from transformer.pipelines.text_generation import Generator, Perplexity
    from transformer.text.lines import Invalid


@takes_verbosity
@takes_sharding
@takes_text_column
def perplexity(
    model: ModelArgument,
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE | TEXT...]",
            help="text file, plain or compressed, or texts of several words; standard input by default",
        ),
    ] = None,
    input_path: Annotated[Path | None, typer.Option("--input", help="text file, plain or compressed")] = None,
    window: Annotated[
        int | None,
        typer.Option(min=1, help="tokens per window; if not given, the context length, or all of a shorter text"),
    ] = None,
    precision: Annotated[
        Literal["float32", "bf16", "int8"],
        typer.Option(help="precision of the weights; float32 is exact, the others are faster"),
    ] = "float32",
    device: DeviceOption = "auto",
    special_tokens: SpecialTokensOption = False,
    as_json: JsonObjectOption = False,
    invalid_utf8: InvalidOption = "error",
    output_path: Annotated[
        Path | None, typer.Option("--output", help="with --shards: folder for the loss of each window")
    ] = None,
    *,
    sharding: ShardingOptions,
    columns: TableColumns,
) -> None:
    """Print the loss (nats per token) and perplexity of a text, in windows that do not overlap.

    Several texts are scored as one, with a line break between them.

    Example: transformer perplexity runs/shakespeare held-out.txt
    """
    texts, input_path = _file_or_texts(texts or [], input_path)
    invalid, is_table = invalid_choice(invalid_utf8), columns.reads_table(input_path, sharding)
    if sharding:
        refuse_for_tables({"--invalid-utf8": is_table and invalid == "replace"})
        (path,), folder = sharding.check([input_path], "--input FILE", output_path, {"a text": texts})
        options = precision, special_tokens, device
        load = partial(_load, model, precision, device, special_tokens=special_tokens)
        windows = TokenWindows(path, folder, window, invalid, load, columns.names[0] if is_table else None)
        _print(perplexity_in_shards(sharding, windows, model, options), as_json=as_json)
        return
    if output_path is not None:
        raise ConfigError("--output has no effect without --shards; leave it out")
    lines = argument_lines(texts, input_path)
    check_files([input_path])
    generator = _load(model, precision, device, special_tokens=special_tokens)
    content = _read(input_path, invalid) if lines is None else "\n".join(lines)
    window = window or generator.default_window(generator.count_tokens(content))
    with progress_bar("tokens") as done:
        result = generator.perplexity(content, window=window, done=done)
    _print(result, as_json=as_json)


def _load(model: Path, precision: str, device: str, *, special_tokens: bool) -> "Generator":
    from transformer.pipelines.text_generation import Generator  # loads torch

    return load_pipeline(
        model, "language model", Generator, precision=precision, device=device, special_tokens=special_tokens
    )


def _print(result: "Perplexity", *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({**asdict(result), "perplexity": result.perplexity}))
        return
    typer.echo(
        f"loss {result.loss:.4f}  perplexity {result.perplexity:.3f}  of {result.tokens:,} tokens; omitted at the end, "
        f"in an incomplete window: {result.left_out:,}"
    )


def _file_or_texts(arguments: list[str], input_path: Path | None) -> tuple[list[str], Path | None]:
    """Returns the texts, and the file.

    A single argument is the file if it is one word, even if the file does not exist, so that a mistyped name is not
    scored as a text; or if it is the name of a file that exists.
    """
    if len(arguments) != 1 or input_path is not None:
        return arguments, input_path
    path = Path(arguments[0])
    try:
        is_file = len(arguments[0].split()) == 1 or path.exists()
    except (OSError, ValueError):  # too long for a name, or a null character
        is_file = False
    return ([], path) if is_file else (arguments, None)


def _read(path: Path | None, invalid: "Invalid") -> str:
    """Returns the whole text of a file, or of standard input."""
    from transformer.data.windows import running_text
    from transformer.text.lines import bounded_lines, decode_lines

    if path is not None:
        return "".join(running_text([path], invalid))
    prompt_on_terminal("type a text; Ctrl-D ends")
    return "".join(
        f"{line}\n" for line in decode_lines(bounded_lines(sys.stdin.buffer), "standard input", invalid=invalid)
    )
