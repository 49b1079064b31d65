"""`--shard K/N`: one of N equal parts of a text by lines; `transformer.cli.sharding` divides among any processes."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transformer.errors import ConfigError

if TYPE_CHECKING:
    from transformer.text.lines import Invalid

ShardOption = Annotated[
    str | None,
    typer.Option(
        "--shard",
        metavar="K/N",
        help="only the K-th of N parts of the text, by lines, with an output of its own; the outputs of all N, "
        "one after another, are that of the whole text. --shards lets processes divide the parts themselves",
    ),
]


@dataclass(frozen=True)
class Shard:
    """One of several parts of a text.

    Attributes:
        number: Number of the part, from 1.
        count: Number of parts.
    """

    number: int
    count: int

    def __str__(self) -> str:
        """Returns the shard as --shard takes it."""
        return f"{self.number}/{self.count}"

    def lines(self, n_lines: int) -> range:
        """Returns the numbers of its lines, from 0; the parts differ by at most one line.

        Args:
            n_lines: Number of lines of the text.
        """
        first, end = (n_lines * number // self.count for number in (self.number - 1, self.number))
        return range(first, end)


def parse_shard(text: str | None) -> Shard | None:
    """Returns the shard that --shard names; None without the option.

    Raises:
        ConfigError: It is not of the form K/N with K from 1 to N.
    """
    if text is None:
        return None
    match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise ConfigError(f"--shard {text!r} is not K/N with K from 1 to N; write e.g. 1/4")
    return Shard(int(match[1]), int(match[2]))


def lines_of(shard: Shard | None, path: Path, invalid: "Invalid") -> tuple[int, Iterator[str]]:
    """Returns the number of the first line of a shard, and its lines; those of the whole text without a shard.

    Args:
        shard: The shard; None is the whole text.
        path: The text.
        invalid: Handling of bytes that are not UTF-8.
    """
    from transformer.sharding.lines import find_lines, read_lines_at
    from transformer.text.lines import MAX_LINE_CHARACTERS, LineCounts, decode_lines, read_lines

    if shard is None:
        return 0, read_lines(path, invalid=invalid, overlong="cut")
    numbers = shard.lines(find_lines(path, [0])[1])
    position = find_lines(path, [0, numbers.start])[0][-1] if numbers.start and numbers else 0
    lines = read_lines_at(path, position, len(numbers), MAX_LINE_CHARACTERS)
    counts = LineCounts(numbers.start)
    return numbers.start, decode_lines(lines, str(path), counts, invalid, overlong="cut")
