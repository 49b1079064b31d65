"""Texts given as arguments, and --json."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transformer.errors import ConfigError

if TYPE_CHECKING:
    from transformer.text.lines import Invalid

TextsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TEXT]...", help="texts; the lines of --input or standard input by default"),
]
HeldOutOption = Annotated[
    Path, typer.Option(help="held-out source text, plain or compressed; neither the test set nor training text")
]
ReferenceOption = Annotated[Path, typer.Option(help="its reference translation, aligned line by line")]
InvalidOption = Annotated[
    str, typer.Option("--invalid-utf8", help="handling of bytes that are not UTF-8: 'error' or 'replace' (by U+FFFD)")
]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON, one object per line: same as --format jsonl")]
JsonObjectOption = Annotated[bool, typer.Option("--json", help="print one JSON object")]


def choose_format(chosen: str | None, default: str, json_format: str, *, as_json: bool) -> str:
    """Returns the output format that --format and --json choose together.

    Args:
        chosen: Value of --format; None if it was not given.
        default: Format without both options.
        json_format: Format that --json stands for.
        as_json: Whether --json was given.

    Raises:
        ConfigError: The options name two formats.
    """
    if as_json and chosen not in (None, json_format):
        raise ConfigError(f"--format {chosen} and --json contradict each other; leave out one of them")
    return json_format if as_json else chosen or default


def argument_lines(texts: Sequence[str] | None, input_path: Path | None) -> list[str] | None:
    """Returns the lines of the texts that were given as arguments; None without any.

    Args:
        texts: Arguments; each is one line, or several with line breaks between them.
        input_path: Value of --input.

    Raises:
        ConfigError: There are both texts and a file.
        DataError: A text is not UTF-8.
    """
    if not texts:
        return None
    if input_path is not None:
        raise ConfigError("texts as arguments and --input are mutually exclusive; give one of them")
    from transformer.text.lines import check_utf8

    for text in texts:
        check_utf8(text, "a text")
    return [line for text in texts for line in text.removesuffix("\n").split("\n")]


def invalid_choice(value: str) -> "Invalid":
    """Returns the value of --invalid-utf8 after a check.

    Raises:
        ConfigError: The value is neither "error" nor "replace".
    """
    if value == "error" or value == "replace":
        return value
    raise ConfigError(f"invalid_utf8={value!r} is unknown; choose 'error' or 'replace'")
