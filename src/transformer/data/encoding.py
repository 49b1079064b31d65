"""Blocks of pairs to token ids, with what can be told of each pair alone: the work that is done in parallel."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from transformer.data.duplicates import digests
from transformer.data.filters import KEPT, REASONS, PairFilter
from transformer.data.ragged import Ragged
from transformer.tokenizers.pair import TokenizerPair


@dataclass(frozen=True)
class EncodedBlock:
    """The pairs of a block that are not dropped for what they are.

    Attributes:
        source: their tokens, without control ids.
        target: the same of the other side.
        held_out: True where the source is one of those held out for validation.
        digests: 128 bits a pair; no row where duplicates are kept.
        read: pairs of the block.
        dropped: by reason.
        fallback_bytes: of all pairs read.
        held_out_text: the pairs held out.
        test_sources: those of the test set that are among the sources kept.
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
    """Encodes and checks blocks; a value, so that a worker process can be given its JSON.

    Attributes:
        tokenizers: of both sides.
        pair_filter: what is kept.
        find_duplicates: compute digests.
        held_out: sources that are held out for validation.
        test_sources: lines of the test set.
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
        """Encodes the pairs of a block and leaves out those dropped for what they are."""
        source, target = (
            Ragged(*side.encode_flat(texts))
            for side, texts in ((self.tokenizers.source, sources), (self.tokenizers.target, targets))
        )
        reasons = self.pair_filter.reasons(sources, targets, source.lengths, target.lengths)
        kept = reasons == KEPT
        places = np.flatnonzero(kept).tolist()
        sources, targets = [sources[place] for place in places], [targets[place] for place in places]
        held_out = np.array([text in self.held_out for text in sources], bool)
        return EncodedBlock(
            source if kept.all() else source.select(kept),
            target if kept.all() else target.select(kept),
            held_out,
            digests(sources, targets) if self.find_duplicates else np.zeros((0, 2), np.uint64),
            read=len(reasons),
            dropped=Counter({REASONS[index]: int((reasons == index).sum()) for index in np.unique(reasons[~kept])}),
            fallback_bytes=sum(
                int(table[side.values].sum()) for table, side in zip(self._fallback, (source, target), strict=True)
            ),
            held_out_text=[(sources[place], targets[place]) for place in np.flatnonzero(held_out)],
            test_sources=sorted(self.test_sources.intersection(sources) - self.held_out),
        )

    def to_json(self) -> dict[str, Any]:
        """Values from which `from_json` makes the same encoder."""
        return {
            "tokenizers": self.tokenizers.to_files(),
            "pair_filter": self.pair_filter.__dict__,
            "find_duplicates": self.find_duplicates,
            "held_out": sorted(self.held_out),
            "test_sources": sorted(self.test_sources),
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "BlockEncoder":
        """Reads what `to_json` gave."""
        return cls(
            TokenizerPair.from_files(values["tokenizers"]),
            PairFilter(**values["pair_filter"]),
            values["find_duplicates"],
            frozenset(values["held_out"]),
            frozenset(values["test_sources"]),
        )
