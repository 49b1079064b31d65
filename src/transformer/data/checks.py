"""Which pairs are kept, and an account of every one that is not."""

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from transformer.data.readers import PairCounts

REASONS = ("empty", "too long", "length ratio", "duplicate")


@dataclass
class PairFilter:
    """Decides pair by pair; keeps what it has seen, to tell duplicates.

    Attributes:
        max_source_tokens: longest source kept, EOS included.
        max_target_tokens: longest target kept, EOS included.
        max_length_ratio: the longer side may have so many times the tokens of the shorter, and 5 more.
        drop_duplicates: keep only the first of equal pairs.
    """

    max_source_tokens: int
    max_target_tokens: int
    max_length_ratio: float
    drop_duplicates: bool
    _seen: set[bytes] = field(default_factory=set)

    def reason_to_drop(self, source: str, target: str, source_tokens: int, target_tokens: int) -> str | None:
        """One of `REASONS`, or None for a pair to keep. The counts are without EOS."""
        if not source.strip() or not target.strip():
            return "empty"
        if source_tokens + 1 > self.max_source_tokens or target_tokens + 1 > self.max_target_tokens:
            return "too long"
        shorter, longer = sorted((source_tokens, target_tokens))
        if longer > self.max_length_ratio * shorter + 5:
            return "length ratio"
        return "duplicate" if self.drop_duplicates and self._is_repeated(source, target) else None

    def _is_repeated(self, source: str, target: str) -> bool:
        # Equal digests of different pairs: about 1 in 10^23 for a million pairs.
        digest = hashlib.blake2b(f"{source}\n{target}".encode(), digest_size=16).digest()
        if digest in self._seen:
            return True
        self._seen.add(digest)
        return False


@dataclass
class DataReport:
    """The account of one prepared corpus: read == kept + held_out + the sum of dropped."""

    read: int = 0
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    held_out: int = 0
    source_tokens: int = 0
    target_tokens: int = 0
    longest_source: int = 0
    longest_target: int = 0
    fallback_bytes: int = 0
    carriage_returns: int = 0
    replaced_lines: int = 0
    test_lines: int | None = None
    test_overlap: int | None = None

    def keep(self, source: list[int], target: list[int]) -> None:
        """Counts a kept pair of token lists without EOS; the figures include it."""
        self.kept += 1
        self.source_tokens += len(source) + 1
        self.target_tokens += len(target) + 1
        self.longest_source = max(self.longest_source, len(source) + 1)
        self.longest_target = max(self.longest_target, len(target) + 1)

    def add_line_counts(self, counts: PairCounts) -> None:
        """Adds what the readers met."""
        self.carriage_returns += counts.source.carriage_returns + counts.target.carriage_returns
        self.replaced_lines += counts.source.replaced + counts.target.replaced

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values, every reason named."""
        return {**self.__dict__, "dropped": {reason: self.dropped[reason] for reason in REASONS}}

    def lines(self) -> list[str]:
        """The report that is printed before training."""
        dropped = ", ".join(f"{reason} {self.dropped[reason]:,}" for reason in REASONS)
        report = [
            f"pairs read {self.read:,}: kept {self.kept:,}, held out {self.held_out:,}, "
            f"dropped {self.dropped.total():,} ({dropped})",
            f"tokens: source {self.source_tokens:,} (longest {self.longest_source}), "
            f"target {self.target_tokens:,} (longest {self.longest_target}), "
            f"bytes that fell back {self.fallback_bytes:,}",
        ]
        if self.carriage_returns or self.replaced_lines:
            report.append(
                f"lines that ended in \\r\\n {self.carriage_returns:,}, lines repaired {self.replaced_lines:,}"
            )
        if self.test_lines is not None:
            report.append(f"test lines that are also training sources: {self.test_overlap:,} of {self.test_lines:,}")
        return report
