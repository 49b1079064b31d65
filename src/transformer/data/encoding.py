"""Encoding of blocks of pairs to token ids, and the checks that need one pair alone: the parallel part of the work."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transformer.data.duplicates import pair_digests
from transformer.data.filters import KEPT, REASONS, PairFilter
from transformer.data.ragged import Ragged
from transformer.tokenizers.pair import TokenizerPair


@dataclass(frozen=True)
class EncodedBlock:
    """The encoded pairs of a block that pass the filter.

    Attributes:
        source: Source tokens, without special tokens.
        target: Target tokens, without special tokens.
        held_out: True where the source is held out for validation.
        digests: 128 bits per pair; without rows if duplicates are kept.
        read: Number of pairs read.
        dropped: Number of dropped pairs by reason.
        fallback_bytes: Bytes of characters that were split into single bytes, over all pairs read.
        held_out_text: Text of the held-out pairs.
        test_sources: Lines of the test set that are among the kept sources.
    """

    source: Ragged
    target: Ragged
    held_out: NDArray[np.bool_]
    digests: NDArray[np.uint64]
    read: int
    dropped: Counter[str] = field(default_factory=Counter)
    fallback_bytes: int = 0
    held_out_text: list[tuple[str, str]] = field(default_factory=list)
    test_sources: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class BlockEncoder:
    """Encodes and filters blocks; can be sent to a worker process as JSON.

    Attributes:
        tokenizers: Tokenizers of both sides.
        pair_filter: Filter that decides which pairs are kept.
        find_duplicates: Whether digests are computed.
        held_out: Sources that are held out for validation.
        test_sources: Lines of the test set.
    """

    tokenizers: TokenizerPair
    pair_filter: PairFilter
    find_duplicates: bool
    held_out: frozenset[str] = frozenset()
    test_sources: frozenset[str] = frozenset()
    _fallback: list[NDArray[np.int64]] = field(default_factory=list)

    def __post_init__(self) -> None:
        sides = (self.tokenizers.source, self.tokenizers.target)
        self._fallback.extend(np.array(side.fallback_bytes()) for side in sides)

    def encode(self, sources: Sequence[str], targets: Sequence[str]) -> EncodedBlock:
        """Encodes the pairs of a block and drops those that the filter rejects."""
        source, target = (
            Ragged(*side.encode_flat(texts))
            for side, texts in ((self.tokenizers.source, sources), (self.tokenizers.target, targets))
        )
        reasons = self.pair_filter.reasons(sources, targets, source.lengths, target.lengths)
        kept = reasons == KEPT
        rows = np.flatnonzero(kept).tolist()
        sources, targets = [sources[row] for row in rows], [targets[row] for row in rows]
        held_out = np.array([text in self.held_out for text in sources], bool)
        return EncodedBlock(
            source if kept.all() else source.select(kept),
            target if kept.all() else target.select(kept),
            held_out,
            pair_digests(sources, targets) if self.find_duplicates else np.zeros((0, 2), np.uint64),
            read=len(reasons),
            dropped=Counter({REASONS[index]: int((reasons == index).sum()) for index in np.unique(reasons[~kept])}),
            fallback_bytes=sum(
                int(table[side.values].sum()) for table, side in zip(self._fallback, (source, target), strict=True)
            ),
            held_out_text=[(sources[row], targets[row]) for row in np.flatnonzero(held_out)],
            test_sources=sorted(self.test_sources.intersection(sources) - self.held_out),
        )

    def to_json(self) -> dict[str, Any]:
        """Returns JSON values from which `from_json` recreates the encoder."""
        return {
            "tokenizers": self.tokenizers.to_files(),
            "pair_filter": self.pair_filter.__dict__,
            "find_duplicates": self.find_duplicates,
            "held_out": sorted(self.held_out),
            "test_sources": sorted(self.test_sources),
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "BlockEncoder":
        """Creates an encoder from the values of `to_json`."""
        return cls(
            TokenizerPair.from_files(values["tokenizers"]),
            PairFilter(**values["pair_filter"]),
            values["find_duplicates"],
            frozenset(values["held_out"]),
            frozenset(values["test_sources"]),
        )
