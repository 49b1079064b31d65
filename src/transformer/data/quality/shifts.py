"""Where two files shift against each other: line, direction, size, and how sure that is."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np

from transformer.data.quality.alignment import MOST_NATS, NO_PARTNER_NATS, PROBE_LINES, Alignment, align
from transformer.text.lines import read_lines

MOST_LINES, MARGIN = 100_000, 512
SURE_NATS, LIKELY_NATS, EDGE_NATS = 40.0, 10.0, 3.0


@dataclass(frozen=True)
class Shift:
    """A place where the partner of a line is no longer where it was.

    Attributes:
        source_line: first source line after the place, from 1.
        target_line: its partner's line.
        size: lines that the target has more there (the source lacks them); below 0, that the target lacks.
        first: first source line at which the shift may lie: those up to `last` explain the corpus nearly as well.
        last: last such line.
        nats: how much better the lines on both sides of the place fit with the shift than without it.
        is_at_end: the source has no line after the place.
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
        """The evidence in a word."""
        if self.nats >= SURE_NATS:
            return "sure"
        return "likely" if self.nats >= LIKELY_NATS else "a guess"

    @property
    def orphans(self) -> tuple[int, int]:
        """First and last of the lines without a partner: of the target where `size` is above 0, else of the source."""
        end = self.target_line if self.size > 0 else self.source_line
        return max(1, end - abs(self.size)), end - 1

    def sentence(self, source: str, target: str) -> str:
        """What happened, for a reader who knows the files by these names."""
        richer, poorer = (target, source) if self.size > 0 else (source, target)
        first, last = self.orphans
        lines = f"line {first:,} of {richer} has" if first == last else f"lines {first:,} to {last:,} of {richer} have"
        if self.is_at_end:
            return f"{lines} no partner in {poorer}, which ends before ({self.confidence})"
        between = (
            f", or anywhere from line {self.first:,} to {self.last:,} of {source}" if self.last > self.first else ""
        )
        return (
            f"{lines} no partner in {poorer}: line {self.source_line:,} of {source} belongs to "
            f"line {self.target_line:,} of {target} ({self.confidence}{between})"
        )

    def to_dict(self) -> dict[str, Any]:
        """The shift as JSON values."""
        return {**vars(self), "confidence": self.confidence}


@dataclass(frozen=True)
class AlignedBlock:
    """Consecutive source lines and the target lines around their partners.

    Attributes:
        source: the lines.
        target: the lines.
        first_source: row of the first source line in its file.
        first_target: row of the first target line in its file.
        lead: target lines before the partner of the first source line, as far as known from what came before.
        alignment: None where nothing can be told.
        is_last: no line of the source follows.
    """

    source: list[str]
    target: list[str]
    first_source: int
    first_target: int
    lead: int
    alignment: Alignment | None
    is_last: bool

    def partners(self) -> list[int | None]:
        """For each source line its partner's index in `target`, if there is one."""
        offsets = self.alignment.offsets.tolist() if self.alignment else [0] * len(self.source)
        rows = (row + self.lead + offset for row, offset in enumerate(offsets))
        partners = [row if 0 <= row < len(self.target) else None for row in rows]
        for shift in self.shifts():
            if shift.size < 0:
                end = shift.source_line - 1 - self.first_source
                start = max(0, end + shift.size)
                partners[start:end] = [None] * (end - start)
        return partners

    def shifts(self) -> Iterator[Shift]:
        """The places where the offset changes."""
        if self.alignment is None:
            return
        offsets = np.concatenate([[0], self.alignment.offsets])
        for row in np.flatnonzero(np.diff(offsets)).tolist():
            before, after = int(offsets[row]), int(offsets[row + 1])
            place = _place(self.alignment, row, before, after)
            here = self.first_source + 1
            partner = self.first_target + 1 + place.row + self.lead + after
            size, nats = after - before, round(place.nats, 1)
            is_at_end = self.is_last and place.row >= len(self.source)
            yield Shift(here + place.row, partner, size, here + place.first, here + place.last, nats, is_at_end)

    def orphan(self, shift: Shift) -> tuple[int, str] | None:
        """Number and text of the first line that a shift leaves without a partner, if it is at hand."""
        lines, before = (self.target, self.first_target) if shift.size > 0 else (self.source, self.first_source)
        row = shift.orphans[0] - 1 - before
        return (shift.orphans[0], lines[row]) if 0 <= row < len(lines) else None

    def misfits(self) -> Iterator[tuple[int, int]]:
        """Ranges of source rows of this stretch, [first, last), in which the sides fit no better than chance."""
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
    """Walks through two files in stretches of nearly equal size, each aligned from where the one before ended.

    Args:
        source: lines, read once.
        target: lines, read once.
        n_source: number of source lines.
        n_target: number of target lines.
        most_lines: of a stretch: what is held in memory.
    """
    sources, targets = iter(source), iter(target)
    size = -(-n_source // max(1, -(-n_source // most_lines)))
    row, offset, base = 0, 0, 0
    held: list[str] = []
    while lines := list(islice(sources, max(1, size))):
        skip = max(0, row + offset - MARGIN - base)
        held, passed = held[skip:], max(0, skip - len(held))
        base += skip - passed + sum(1 for _ in islice(targets, passed))
        is_last = row + len(lines) >= n_source
        until = row + offset + len(lines) + (most_lines if is_last else MARGIN)
        held += islice(targets, max(0, until - base - len(held)))
        end = n_target - n_source - offset if is_last and base + len(held) >= n_target else None
        alignment = align(lines, held, row + offset - base, end)
        yield AlignedBlock(lines, held, row, base, row + offset - base, alignment, is_last)
        offset += int(alignment.offsets[-1]) if alignment else 0
        row += len(lines)


def first_shift(source: Path, target: Path) -> Shift | None:
    """The first place at which two files shift against each other, if it can be told: what to say of unequal files.

    Raises:
        DataError: as `read_lines`, but bytes that are not UTF-8 are replaced.
    """
    n_source, n_target = (sum(1 for _ in read_lines(path, invalid="replace")) for path in (source, target))
    sources, targets = (read_lines(path, invalid="replace") for path in (source, target))
    walk = align_in_blocks(sources, targets, n_source, n_target)
    return next((shift for stretch in walk for shift in stretch.shifts()), None)


@dataclass(frozen=True)
class _Place:
    """A jump in front of source row `row`, or of any from `first` to `last`; what it gains over none."""

    row: int
    first: int
    last: int
    nats: float


def _place(alignment: Alignment, row: int, before: int, after: int) -> _Place:
    """The best place for a jump that the path has at a row, judged up to the jumps around it.

    Where target lines are missing, as many source lines have no partner: they count under neither offset.
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
    return _Place(left + best + gap, int(near[0]), int(near[-1]), float(gains[best] - without))
