"""Files to pairs of lines."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from pathlib import Path
from typing import NoReturn

from transformer.errors import DataError
from transformer.text.lines import Invalid, LineCounts, read_lines

Pair = tuple[str, str]


@dataclass
class PairCounts:
    """What was met while reading the two sides; a file that holds both counts as source.

    Attributes:
        source: of the source lines.
        target: of the target lines.
        line_breaks: pairs in which a text held line breaks, which became spaces.
    """

    source: LineCounts = field(default_factory=LineCounts)
    target: LineCounts = field(default_factory=LineCounts)
    line_breaks: int = 0


def read_pairs(
    source: Path, target: Path, counts: PairCounts | None = None, invalid: Invalid = "error"
) -> Iterator[Pair]:
    """Yields line n of the source with line n of the target.

    Raises:
        DataError: a file cannot be read, both are empty, or one has more lines than the other (found at the end of
            the shorter one; both counts are named).
    """
    counts = counts if counts is not None else PairCounts()
    sources = read_lines(source, counts.source, invalid)
    targets = read_lines(target, counts.target, invalid)
    for pair in zip_longest(sources, targets):
        if pair[0] is None or pair[1] is None:
            for _ in chain(sources, targets):  # the longer one is counted to its end
                pass
            refuse_unequal(source, target, (counts.source.lines, counts.target.lines))
        yield pair
    if not counts.source.lines:
        raise DataError(f"{source} and {target} are empty; give text files with one sentence a line")


def refuse_unequal(source: Path, target: Path, lines: tuple[int, int]) -> NoReturn:
    """Names the side that lacks lines, with the place of the loss where the texts tell it.

    Args:
        source: a file.
        target: its translation.
        lines: how many either has.

    Raises:
        DataError: always.
    """
    from transformer.data.quality.shifts import first_shift  # needed by few, and reads pairs itself

    (n_shorter, shorter), (n_longer, longer) = sorted(zip(lines, (source, target), strict=True))
    may_be_read_again = source.is_file() and target.is_file()
    shift = first_shift(source, target) if may_be_read_again else None
    if shift is None:
        place = "`transformer check` may tell where"
    elif shift.source_line > lines[0] or shift.target_line > lines[1]:
        place = f"it seems that {shorter.name} was cut at its end"
    else:
        place = f"it seems that {shift.sentence(source.name, target.name)}"
    raise DataError(
        f"{longer} has {n_longer:,} lines, {shorter} has {n_shorter:,}: line {n_shorter + 1:,} of {longer.name} has no "
        f"partner; line n of one must be the translation of line n of the other, so find what {shorter.name} lacks; "
        f"{place}"
    )
