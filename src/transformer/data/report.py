"""The data report of a prepared corpus, which counts every pair that is kept or dropped."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

from transformer.data.filters import REASONS
from transformer.data.quality.traits import TraitCounts
from transformer.data.readers import PairCounts

TOO_LONG, DAMAGED = "too long", "damaged"
"""Reasons for which a reader leaves a pair out: a text is too long for any tokenizer, or has forbidden characters."""
ADVICE: Final = {
    "empty": "check that these are the intended files",
    "too long": "a new model can have a larger src_seq_len and tgt_seq_len",
    "length ratio": "raise data.max_length_ratio if one side is short by nature",
    "duplicate": "data.drop_duplicates=false keeps them",
    DAMAGED: "take the characters that XML does not allow out of the file",
}
"""Advice by reason, printed if more pairs were dropped than kept."""

DIFFERENCES: Final = {
    "numbers": "numbers", "placeholders": "placeholders", "tags": "tags", "addresses": "addresses",
    "final-mark": "the final punctuation mark",
}  # fmt: skip
"""What the sides of a pair may differ in, in words."""


class FileCounts(TypedDict):
    """The pairs of one file that were read and kept, its name, its weight, and its share of the updates.

    A batch, and so an update, has pairs of one length and about as many tokens as any other. Therefore the share is one
    of tokens, not of pairs: that of a file of single words stays small with a large weight.
    """

    read: int
    kept: int
    name: str
    weight: float
    updates: NotRequired[float]


@dataclass
class DataReport:
    """Counts of a prepared corpus: read + the sum of augmented == kept + held_out + the sum of dropped.

    `tokens_read` and `tokens_fallback` are the source and target tokens of all pairs that reached the tokenizers, and
    those among them that stand for a part of a character or for unknown text. Of `compared` pairs, evenly spread over
    the corpus, `differences` counts those whose sides differ in what a translation keeps, see `pair_differences`.
    """

    read: int = 0
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    augmented: Counter[str] = field(default_factory=Counter)
    held_out: int = 0
    source_tokens: int = 0
    target_tokens: int = 0
    longest_source: int = 0
    longest_target: int = 0
    fallback_bytes: int = 0
    tokens_read: tuple[int, int] = (0, 0)
    tokens_fallback: tuple[int, int] = (0, 0)
    traits: dict[str, list[int]] = field(default_factory=dict)
    compared: int = 0
    differences: Counter[str] = field(default_factory=Counter)
    carriage_returns: int = 0
    replaced_lines: int = 0
    line_breaks: int = 0
    headers: int = 0
    test_lines: int | None = None
    test_overlap: int | None = None
    files: list[FileCounts] = field(default_factory=list)

    def count_kept(self, lengths: NDArray[np.int32]) -> None:
        """Counts the kept pairs by their lengths: shape (pairs, 2), EOS included."""
        self.kept = len(lengths)
        if self.kept:
            self.source_tokens, self.target_tokens = lengths.sum(axis=0, dtype=np.int64).tolist()
            self.longest_source, self.longest_target = lengths.max(axis=0).tolist()

    def add_text_counts(
        self, fallback_bytes: int, n_tokens: tuple[int, int], n_fallback: tuple[int, int], traits: TraitCounts
    ) -> None:
        """Adds the counts of a block, see `EncodedBlock`."""
        self.fallback_bytes += fallback_bytes
        self.tokens_read = self.tokens_read[0] + n_tokens[0], self.tokens_read[1] + n_tokens[1]
        self.tokens_fallback = self.tokens_fallback[0] + n_fallback[0], self.tokens_fallback[1] + n_fallback[1]
        self.traits = (TraitCounts(self.traits) + traits).by_trait

    def fallback_shares(self) -> tuple[float, float]:
        """Returns the share of source and of target tokens that stand for a part of a character or for unknown text."""
        source, target = (n / max(1, total) for n, total in zip(self.tokens_fallback, self.tokens_read, strict=True))
        return source, target

    def add_reader_counts(self, counts: PairCounts) -> None:
        """Adds the counts of the readers, which leave some pairs out."""
        self.read += counts.left_out
        for reason, count in ((TOO_LONG, counts.too_long), (DAMAGED, counts.damaged), *counts.unused.items()):
            if count:
                self.dropped[reason] += count
        self.carriage_returns += counts.source.carriage_returns + counts.target.carriage_returns
        self.replaced_lines += counts.source.replaced + counts.target.replaced
        self.line_breaks += counts.line_breaks
        self.headers += counts.headers

    def to_dict(self) -> dict[str, object]:
        """Returns the fields as JSON values, with a count for every reason."""
        dropped = {reason: self.dropped[reason] for reason in dict.fromkeys((*REASONS, *self.dropped))}
        return {**self.__dict__, "dropped": dropped}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "DataReport":
        """Creates a report from the values of `to_dict`."""
        pairs = {name: tuple(values[name]) for name in ("tokens_read", "tokens_fallback") if name in values}
        counters = {name: Counter(values[name]) for name in ("dropped", "augmented", "differences") if name in values}
        fields: dict[str, Any] = {**values, **pairs, **counters}
        return cls(**fields)

    def advice(self) -> str:
        """Returns the most frequent reason and a remedy if more pairs were dropped than kept, else an empty string."""
        reason = max(ADVICE, key=lambda reason: self.dropped[reason])
        is_mostly_dropped = self.dropped.total() > self.kept + self.held_out
        return f"more pairs were dropped than kept, most for {reason}: {ADVICE[reason]}" if is_mostly_dropped else ""

    def summary(self) -> str:
        """Returns the counts of pairs in one sentence, with a count for every reason."""
        reasons = (*REASONS, DAMAGED) if self.dropped[DAMAGED] else REASONS
        dropped = ", ".join(f"{reason} {self.dropped[reason]:,}" for reason in reasons)
        return (
            f"pairs read {self.read:,}: kept {self.kept:,}, held out {self.held_out:,}, "
            f"dropped {self.dropped.total():,} ({dropped})"
        )

    def rows(self) -> list[tuple[str, str]]:
        """Returns titles and texts of the table that is printed before training; zeros are left out."""
        dropped = self.dropped.total()
        copies = f" and {self.augmented.total():,} changed copies" if self.augmented else ""
        counts = f"{self.kept:,} to train on, {self.held_out:,} held out, {dropped:,} dropped"
        rows = [("pairs", f"{self.read:,} read{copies}: {counts}")]
        if dropped:
            reasons = [reason for reason in (*REASONS, DAMAGED) if self.dropped[reason]]
            rows.append(("dropped", ", ".join(f"{reason} {self.dropped[reason]:,}" for reason in reasons)))
        if advice := self.advice():
            rows.append(("dropped", advice))
        if self.augmented:
            kinds = ", ".join(f"{kind.replace('_', ' ')} {count:,}" for kind, count in self.augmented.most_common())
            rows.append(("augmented", f"changed copies {self.augmented.total():,}: {kinds}"))
        if len(self.files) > 1:
            for file in self.files:
                counts = f"{file['name']}: read {file['read']:,}, kept {file['kept']:,}, weight {file['weight']:g}"
                share = f", {file['updates']:.1%} of the updates" if "updates" in file else ""
                rows.append(("files", counts + share))
        rows.append((
            "tokens",
            f"source {self.source_tokens:,} (longest {self.longest_source}), "
            f"target {self.target_tokens:,} (longest {self.longest_target})",
        ))  # fmt: skip
        if self.fallback_bytes:
            rows.append(("tokens", f"bytes that fell back {self.fallback_bytes:,}"))
        rows.extend(("text", text) for text in self._text_notes())
        if self.test_lines is not None:
            rows.append(("test set", f"{self.test_overlap:,} of {self.test_lines:,} lines are also training sources"))
        return rows

    def _text_notes(self) -> list[str]:
        """Returns what the readers repaired, and the traits of the lines of each side."""
        notes: list[str] = []
        if self.carriage_returns:
            notes.append(f"lines that ended in \\r\\n {self.carriage_returns:,}")
        if self.replaced_lines:
            notes.append(f"lines repaired {self.replaced_lines:,}")
        if self.line_breaks:
            notes.append(f"pairs with line breaks within a text, which became spaces {self.line_breaks:,}")
        if self.headers:
            notes.append(f"first rows that name two languages or sides, read as headers {self.headers:,}")
        if self.differences:
            counts = ", ".join(f"{DIFFERENCES[kind]} in {n:,}" for kind, n in self.differences.most_common())
            notes.append(f"of {self.compared:,} pairs, the sides differ in {counts}; transformer check shows them")
        return [*notes, *TraitCounts(self.traits).lines()]
