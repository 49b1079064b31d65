"""Files to pairs of lines."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

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
            _refuse_unequal(source, target, counts, (sources, targets))
        yield pair
    if not counts.source.lines:
        raise DataError(f"{source} and {target} are empty; give text files with one sentence a line")


def _refuse_unequal(source: Path, target: Path, counts: PairCounts, rest: tuple[Iterator[str], Iterator[str]]) -> None:
    """Counts the longer side to its end and raises, with the place of the loss where the texts tell it."""
    from transformer.data.doctor.shifts import first_shift  # needed by few, and reads pairs itself

    for side in rest:
        for _ in side:
            pass
    in_order = sorted([(counts.source.lines, source), (counts.target.lines, target)])
    (n_shorter, shorter), (n_longer, longer) = in_order
    shift = first_shift(source, target)
    if shift is None:
        place = "`transformer check` may tell where"
    elif shift.source_line > counts.source.lines or shift.target_line > counts.target.lines:
        place = f"it seems that {shorter.name} was cut at its end"
    else:
        place = f"it seems that {shift.sentence(source.name, target.name)}"
    raise DataError(
        f"{longer} has {n_longer:,} lines, {shorter} has {n_shorter:,}: line {n_shorter + 1:,} of {longer.name} has no "
        f"partner; line n of one must be the translation of line n of the other, so find what {shorter.name} lacks; "
        f"{place}"
    )
