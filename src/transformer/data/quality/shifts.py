"""Detection of shifts between two files: line, direction, size and confidence."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np

from transformer.data.quality.alignment import MOST_NATS, NO_PARTNER_NATS, PROBE_LINES, Alignment, align
from transformer.text.lines import read_lines

MOST_LINES, MARGIN = 100_000, 512
SURE_NATS, LIKELY_NATS, EDGE_NATS = 40.0, 10.0, 3.0


@dataclass(frozen=True)
class Shift:
    """A position at which lines are missing on one side.

    Attributes:
        source_line: First source line after the shift, from 1.
        target_line: Line of its partner.
        size: Number of lines that the source lacks; negative if the target lacks lines.
        first: First source line at which the shift may lie; all up to `last` explain the corpus nearly as well.
        last: Last such line.
        nats: Improvement of the fit of the lines around the shift, compared with no shift.
        is_at_end: Whether the source has no line after the shift.
    """

    source_line: int
    target_line: int
    size: int
    first: int
    last: int
    nats: float
    is_at_end: bool = False

    @property
    def confidence(self) -> Literal["sure", "likely", "a guess"]:
        """Verbal rating of the evidence."""
        if self.nats >= SURE_NATS:
            return "sure"
        return "likely" if self.nats >= LIKELY_NATS else "a guess"

    @property
    def unpaired_lines(self) -> tuple[int, int]:
        """First and last line without a partner: of the target if `size` is positive, else of the source."""
        end = self.target_line if self.size > 0 else self.source_line
        return max(1, end - abs(self.size)), end - 1

    def describe(self, source: str, target: str) -> str:
        """Describes the shift in a sentence, with the given names of the files."""
        richer, poorer = (target, source) if self.size > 0 else (source, target)
        first, last = self.unpaired_lines
        lines = f"line {first:,} of {richer} has" if first == last else f"lines {first:,} to {last:,} of {richer} have"
        if self.is_at_end:
            return f"{lines} no partner in {poorer}, which ends earlier ({self.confidence})"
        between = (
            f", or anywhere from line {self.first:,} to {self.last:,} of {source}" if self.last > self.first else ""
        )
        return (
            f"{lines} no partner in {poorer}: line {self.source_line:,} of {source} belongs to "
            f"line {self.target_line:,} of {target} ({self.confidence}{between})"
        )

    def to_dict(self) -> dict[str, object]:
        """Returns the shift as JSON values."""
        return {**vars(self), "confidence": self.confidence}


@dataclass(frozen=True)
class AlignedBlock:
    """Consecutive source lines and the target lines around their partners.

    Attributes:
        source: Source lines.
        target: Target lines.
        first_source: Row of the first source line in its file.
        first_target: Row of the first target line in its file.
        base_offset: Number of target lines before the partner of the first source line, according to earlier blocks.
        alignment: Alignment of the lines; None if they cannot be aligned.
        is_last: Whether the block ends with the last source line.
    """

    source: list[str]
    target: list[str]
    first_source: int
    first_target: int
    base_offset: int
    alignment: Alignment | None
    is_last: bool

    def partners(self) -> list[int | None]:
        """Maps each source line to the index of its partner in `target`, or None."""
        offsets = self.alignment.offsets.tolist() if self.alignment else [0] * len(self.source)
        rows = (row + self.base_offset + offset for row, offset in enumerate(offsets))
        partners = [row if 0 <= row < len(self.target) else None for row in rows]
        for shift in self.shifts():
            if shift.size < 0:
                end = shift.source_line - 1 - self.first_source
                start = max(0, end + shift.size)
                partners[start:end] = [None] * (end - start)
        return partners

    def shifts(self) -> Iterator[Shift]:
        """Yields the shifts: positions at which the offset changes."""
        if self.alignment is None:
            return
        offsets = np.concatenate([[0], self.alignment.offsets])
        for row in np.flatnonzero(np.diff(offsets)).tolist():
            before, after = int(offsets[row]), int(offsets[row + 1])
            jump = _locate_jump(self.alignment, row, before, after)
            here = self.first_source + 1
            partner = self.first_target + 1 + jump.row + self.base_offset + after
            size, nats = after - before, round(jump.nats, 1)
            is_at_end = self.is_last and jump.row >= len(self.source)
            yield Shift(here + jump.row, partner, size, here + jump.first, here + jump.last, nats, is_at_end)

    def first_unpaired(self, shift: Shift) -> tuple[int, str] | None:
        """Returns number and text of the first line without a partner, or None if it is outside the block."""
        lines, first_row = (self.target, self.first_target) if shift.size > 0 else (self.source, self.first_source)
        row = shift.unpaired_lines[0] - 1 - first_row
        return (shift.unpaired_lines[0], lines[row]) if 0 <= row < len(lines) else None

    def poor_ranges(self) -> Iterator[tuple[int, int]]:
        """Yields ranges of source rows of this block, [first, last), in which the sides fit no better than chance."""
        if self.alignment is None:
            return
        fit = np.nan_to_num(self.alignment.fit, nan=0.0).clip(-MOST_NATS, MOST_NATS)
        n_blocks = len(fit) // PROBE_LINES
        poor = fit[: n_blocks * PROBE_LINES].reshape(n_blocks, PROBE_LINES).mean(1) < 0
        edges = np.flatnonzero(np.diff(np.concatenate([[False], poor, [False]]).astype(int))) * PROBE_LINES
        yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def align_in_blocks(
    source: Iterable[str], target: Iterable[str], n_source: int, n_target: int, most_lines: int = MOST_LINES
) -> Iterator[AlignedBlock]:
    """Aligns two files in blocks of nearly equal size, each of which starts at the final offset of the previous one.

    Args:
        source: Source lines, read once.
        target: Target lines, read once.
        n_source: Number of source lines.
        n_target: Number of target lines.
        most_lines: Maximum number of source lines of a block, which is held in memory.
    """
    sources, targets = iter(source), iter(target)
    size = -(-n_source // max(1, -(-n_source // most_lines)))
    row, offset, base = 0, 0, 0
    buffered: list[str] = []
    while lines := list(islice(sources, max(1, size))):
        skip = max(0, row + offset - MARGIN - base)
        buffered, n_skipped = buffered[skip:], max(0, skip - len(buffered))
        base += skip - n_skipped + sum(1 for _ in islice(targets, n_skipped))
        is_last = row + len(lines) >= n_source
        until = row + offset + len(lines) + (most_lines if is_last else MARGIN)
        buffered += islice(targets, max(0, until - base - len(buffered)))
        end = n_target - n_source - offset if is_last and base + len(buffered) >= n_target else None
        alignment = align(lines, buffered, row + offset - base, end)
        yield AlignedBlock(lines, buffered, row, base, row + offset - base, alignment, is_last)
        offset += int(alignment.offsets[-1]) if alignment else 0
        row += len(lines)


def first_shift(source: Path, target: Path) -> Shift | None:
    """Returns the first shift between two files, or None if none is detected.

    Raises:
        DataError: a file cannot be read, see `read_lines`; bytes that are not UTF-8 are replaced.
    """
    n_source, n_target = (
        sum(1 for _ in read_lines(path, invalid="replace", overlong="cut")) for path in (source, target)
    )
    sources, targets = (read_lines(path, invalid="replace", overlong="cut") for path in (source, target))
    blocks = align_in_blocks(sources, targets, n_source, n_target)
    return next((shift for block in blocks for shift in block.shifts()), None)


@dataclass(frozen=True)
class _Jump:
    """A jump of the offset before source row `row`, or before any row from `first` to `last`, and its gain in nats."""

    row: int
    first: int
    last: int
    nats: float


def _locate_jump(alignment: Alignment, row: int, before: int, after: int) -> _Jump:
    """Finds the best position of a jump that the path makes at a row, between the neighbouring jumps.

    If target lines are missing, the same number of source lines have no partner and count under neither offset.
    """
    missing = np.full(len(alignment.offsets), NO_PARTNER_NATS)
    fits = (np.nan_to_num(alignment.evidence.get(offset, missing), nan=NO_PARTNER_NATS) for offset in (before, after))
    changes = np.flatnonzero(np.diff(alignment.offsets)) + 1
    left = int(changes[changes < row].max(initial=0))
    right = int(changes[changes > row].min(initial=len(missing)))
    old, new = (np.cumsum([0.0, *fit[left:right].clip(-MOST_NATS, MOST_NATS)]) for fit in fits)
    gap = min(max(0, before - after), right - left)
    gains = old[: len(old) - gap] + new[-1] - new[gap:]
    best = int(gains.argmax())
    near = np.flatnonzero(gains >= gains[best] - EDGE_NATS) + left + gap
    without = max(old[-1], new[-1]) if best else old[-1]  # a jump at the left edge has no other side
    return _Jump(left + best + gap, int(near[0]), int(near[-1]), float(gains[best] - without))
