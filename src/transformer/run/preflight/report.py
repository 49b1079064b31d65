"""The table of all ranks, and what is wrong with which of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

CLOCK_SECONDS: Final = 1.0
"""Difference between clocks that is trouble: logs of ranks no longer show what came first."""
SHOWN_TROUBLES: Final = 3
NOT_CHECKED: Final = "-"
Facts = dict[str, Any]


@dataclass(frozen=True)
class Answers:
    """Answers of the ranks; a rank that did not answer is missing.

    Attributes:
        size: Number of ranks.
        seconds: Time within which they had to answer.
        local: Host, device and versions by rank.
        clocks: How far each clock is ahead of that of rank 0, and how far that may be wrong.
        folder: Results of the shared folder by rank.
        communication: Results of all-reduce and training step by rank; empty if this was not checked.
    """

    size: int
    seconds: float
    local: dict[int, Facts]
    clocks: dict[int, tuple[float, float]]
    folder: dict[int, Facts]
    communication: dict[int, Facts]

    def troubles(self) -> list[str]:
        """Returns a line for each trouble, which begins with the rank and its host."""
        return [f"{self._name(rank)} {text}" for rank, text in self._troubles()]

    def rows(self) -> list[dict[str, str]]:
        """Returns the cells of the table by column, a row for each rank."""
        return [self._row(rank) for rank in range(self.size)]

    def versions(self) -> dict[str, str]:
        """Returns the version of each program that most ranks have."""
        return {name: max(values, key=values.count) for name, values in self._versions().items()}

    def _versions(self) -> dict[str, list[str]]:
        """Returns the versions of each program, in the order of the ranks that answered."""
        ranks = list(self.local.values())
        return {name: [facts["versions"][name] for facts in ranks] for name in (ranks[0]["versions"] if ranks else ())}

    def _name(self, rank: int) -> str:
        return f"rank {rank} ({self.local[rank]['host']})" if rank in self.local else f"rank {rank}"

    def _troubles(self) -> Iterator[tuple[int, str]]:
        checks: list[dict[int, Any]] = [self.local, self.clocks, self.folder]
        for rank in range(self.size):
            if not all(rank in answers for answers in checks) or (
                self.communication and rank not in self.communication
            ):
                yield rank, f"did not answer within {self.seconds:g} s; see its log, and whether it was started"
        for rank, facts in self.local.items():
            if facts["trouble"]:
                yield rank, facts["trouble"]
        yield from self._different_versions()
        for rank, (offset, error) in self.clocks.items():
            if abs(offset) - error > CLOCK_SECONDS:
                side = "ahead of" if offset > 0 else "behind"
                yield rank, f"has a clock {abs(offset):.1f} s {side} that of rank 0; synchronize it (NTP)"
        for rank, facts in self.folder.items():
            if facts["trouble"]:
                yield rank, facts["trouble"]
        holders = [rank for rank, facts in self.folder.items() if facts["locked"]]
        if len(holders) > 1 and not any(facts["trouble"] for facts in self.folder.values()):
            names = " and ".join(map(self._name, holders[1:SHOWN_TROUBLES]))
            yield holders[0], f"and {names} hold the same lock; use a file system with exclusive creation (O_EXCL)"
        yield from self._communication_troubles()

    def _different_versions(self) -> Iterator[tuple[int, str]]:
        usual_versions = self.versions()
        for name, values in self._versions().items():
            usual = usual_versions[name]
            for rank, value in zip(self.local, values, strict=True):
                if value != usual:
                    count = values.count(usual)
                    ranks = "rank 0 has" if count == 1 else f"{count} ranks have"
                    yield rank, f"has {name} {value}, but {ranks} {usual}; install the same on all machines"

    def _communication_troubles(self) -> Iterator[tuple[int, str]]:
        for rank, facts in self.communication.items():
            if facts["trouble"]:
                yield rank, facts["trouble"]
        sums = {rank: facts["weights"] for rank, facts in self.communication.items() if not facts["trouble"]}
        for rank, weights in sums.items():
            if weights != sums.get(0, weights):
                yield rank, "has other weights than rank 0 after the same training step; compare their hardware"

    def _row(self, rank: int) -> dict[str, str]:
        local, folder = self.local.get(rank), self.folder.get(rank)
        communication = self.communication.get(rank)
        offset, error = self.clocks.get(rank, (None, None))
        rate = communication["gigabytes_per_second"] if communication else None
        return {
            "rank": str(rank),
            "host": local["host"] if local else "no answer",
            "device": local["device"].removeprefix("NVIDIA ") if local else NOT_CHECKED,
            "clock": NOT_CHECKED if offset is None else f"{1000 * offset:+.1f} ms ±{1000 * (error or 0):.1f}",
            "folder": _cell(folder, lambda facts: f"{facts['seconds']:.1f} s"),
            "all-reduce": f"{rate:.{2 if rate < 10 else 0}f} GB/s" if rate else NOT_CHECKED,
            "step": _cell(communication, lambda facts: f"{1000 * facts['step_seconds']:.0f} ms"),
        }


def _cell(facts: Facts | None, text: Any) -> str:
    if facts is None:
        return NOT_CHECKED
    return "trouble" if facts["trouble"] else text(facts)


def format_rows(rows: Sequence[dict[str, str]]) -> list[str]:
    """Returns the lines of a table with a heading."""
    table = [{name: name for name in rows[0]}, *rows]
    widths = {name: max(len(row[name]) for row in table) for name in rows[0]}
    return ["  ".join(f"{row[name]:<{width}}" for name, width in widths.items()).rstrip() for row in table]


def summary(troubles: Sequence[str]) -> str:
    """Returns one line that names the first troubles."""
    more = len(troubles) - SHOWN_TROUBLES
    return "; and ".join(troubles[:SHOWN_TROUBLES]) + (f"; and {more:,} more, see --json" if more > 0 else "")
