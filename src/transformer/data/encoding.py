"""Encoding of blocks of pairs to token ids, and the checks that need one pair alone: the parallel part of the work."""

import os
from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from multiprocessing import current_process
from typing import Final

import numpy as np
from numpy.typing import NDArray

from transformer.data.augment.augmenter import Augmenter
from transformer.data.duplicates import pair_digests
from transformer.data.filters import KEPT, REASONS, PairFilter
from transformer.data.language_pairs import NO_DIRECTION, Direction
from transformer.data.quality.traits import TraitCounts
from transformer.data.ragged import Ragged
from transformer.data.readers import Pair
from transformer.data.segmentation import encode_words, without_word_starts
from transformer.data.source_text import SourceText
from transformer.runtime.function_pool import FunctionPool
from transformer.runtime.pool import CAN_FORK
from transformer.text.lines import MAX_LINE_CHARACTERS
from transformer.tokenizers.byte_pair import BytePairTokenizer
from transformer.tokenizers.pair import TokenizerPair

BLOCK_PAIRS: Final = 2048
BLOCK_CHARACTERS: Final = 2 * MAX_LINE_CHARACTERS
"""Maximum characters of a block of several pairs, which bounds the memory of the tokenizer."""
SMALL_PAIRS: Final = 10_000
"""Size below which a corpus is encoded faster than worker processes start."""


@dataclass(frozen=True)
class Block:
    """Consecutive pairs of a file.

    Attributes:
        first: Number of the first pair in the corpus.
        pairs: The pairs.
        direction: Their languages, where the model has several directions; empty otherwise.
    """

    first: int
    pairs: list[Pair]
    direction: Direction = NO_DIRECTION


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
        fallback_bytes: Bytes of characters that were split into single bytes, over all pairs.
        n_tokens: Number of source and target tokens, over all pairs.
        n_fallback: Number of those that stand for a part of a character or for unknown text.
        traits: Number of lines with each trait, by side.
        held_out_text: Text of the held-out pairs.
        test_sources: Lines of the test set that are among the kept sources.
        source_text: Statistics of the kept sources.
        augmented: Number of changed copies by kind; they follow the other pairs.
    """

    source: Ragged
    target: Ragged
    held_out: NDArray[np.bool_]
    digests: NDArray[np.uint64]
    read: int
    dropped: Counter[str] = field(default_factory=Counter)
    fallback_bytes: int = 0
    n_tokens: tuple[int, int] = (0, 0)
    n_fallback: tuple[int, int] = (0, 0)
    traits: TraitCounts = field(default_factory=TraitCounts)
    held_out_text: list[tuple[str, str]] = field(default_factory=list)
    test_sources: list[str] = field(default_factory=list)
    source_text: SourceText = field(default_factory=SourceText)
    augmented: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class BlockEncoder:
    """Encodes and filters blocks.

    Attributes:
        tokenizers: Tokenizers of both sides.
        pair_filter: Filter that decides which pairs are kept.
        find_duplicates: Whether digests are computed.
        held_out: Sources that are held out for validation.
        test_sources: Lines of the test set.
        language: Language of the sources (BCP 47), in which sentences are counted; "" if it is not known.
        augmenter: Makes changed copies of the pairs that are kept; None without augmentation.
        keeps_words: Whether the tokens that begin words are marked, see `encode_words`.
        target_language: Target language of the block, where the model has several directions; otherwise "".
    """

    tokenizers: TokenizerPair
    pair_filter: PairFilter
    find_duplicates: bool
    held_out: frozenset[str] = frozenset()
    test_sources: frozenset[str] = frozenset()
    language: str = ""
    augmenter: Augmenter | None = None
    keeps_words: bool = False
    target_language: str = ""
    _fallback: list[tuple[NDArray[np.int64], NDArray[np.bool_]]] = field(default_factory=list, init=False)
    _directed: dict[Direction, "BlockEncoder"] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        sides = (self.tokenizers.source, self.tokenizers.target)
        self._fallback.extend((np.array(side.fallback_bytes()), side.is_fallback()) for side in sides)

    def encode(self, block: Block) -> EncodedBlock:
        """Encodes the pairs of a block, drops those that the filter rejects, and adds changed copies of the others."""
        encoder = self.for_direction(block.direction)
        return self._encode(block) if encoder is self else encoder._encode(block)

    def for_direction(self, direction: Direction) -> "BlockEncoder":
        """Returns the encoder of one of several directions: sources begin with the tag of the target language."""
        source, target = direction
        if not target:
            return self
        if direction not in self._directed:
            self._directed[direction] = replace(
                self, tokenizers=self.tokenizers.to_language(target), language=source, target_language=target,
                augmenter=self.augmenter and replace(self.augmenter, languages=direction),
            )  # fmt: skip
        return self._directed[direction]

    def _encode(self, block: Block) -> EncodedBlock:
        sources, targets = zip(*block.pairs, strict=True)
        source, target = self._tokenize(sources, targets)
        sides = self._without_word_starts(source, target)
        traits = TraitCounts()
        for pair in block.pairs:
            traits.add(*pair)
        reasons = self.pair_filter.reasons(sources, targets, source.lengths, target.lengths)
        kept = reasons == KEPT
        rows = np.flatnonzero(kept).tolist()
        sources, targets = [sources[row] for row in rows], [targets[row] for row in rows]
        held_out = np.array([self._is_held_out(pair) for pair in zip(sources, targets, strict=True)], bool)
        source_text = SourceText()
        source_text.count(map(self.tokenizers.source.normalize, sources), self.language)
        encoded = EncodedBlock(
            source if kept.all() else source.select(kept),
            target if kept.all() else target.select(kept),
            held_out,
            self._digests(sources, targets),
            read=len(reasons),
            dropped=Counter({REASONS[index]: int((reasons == index).sum()) for index in np.unique(reasons[~kept])}),
            fallback_bytes=sum(
                int(sizes[side.values].sum()) for (sizes, _), side in zip(self._fallback, sides, strict=True)
            ),
            n_tokens=(len(sides[0].values), len(sides[1].values)),
            n_fallback=(
                int(self._fallback[0][1][sides[0].values].sum()),
                int(self._fallback[1][1][sides[1].values].sum()),
            ),
            traits=traits,
            held_out_text=[(sources[row], targets[row]) for row in np.flatnonzero(held_out)],
            test_sources=sorted(self.test_sources.intersection(sources) - self.held_out),
            source_text=source_text,
        )
        trained = [(block.first + row, block.pairs[row]) for row in rows if not self._is_held_out(block.pairs[row])]
        return encoded if self.augmenter is None else self._with_copies(encoded, self.augmenter.augment(trained))

    def _with_copies(self, encoded: EncodedBlock, copies: list[tuple[str, Pair]]) -> EncodedBlock:
        """Returns a block with changed copies behind its pairs; copies that the filter rejects are left out."""
        if not copies:
            return encoded
        sources, targets = zip(*(pair for _, pair in copies), strict=True)
        source, target = self._tokenize(sources, targets)
        kept = self.pair_filter.reasons(sources, targets, source.lengths, target.lengths) == KEPT
        kept &= [not self._is_held_out(pair) for pair in zip(sources, targets, strict=True)]
        rows = np.flatnonzero(kept).tolist()
        return replace(
            encoded,
            source=Ragged.join(encoded.source, source.select(kept)),
            target=Ragged.join(encoded.target, target.select(kept)),
            held_out=np.concatenate([encoded.held_out, np.zeros(len(rows), bool)]),
            digests=np.concatenate(
                [encoded.digests, self._digests([sources[row] for row in rows], [targets[row] for row in rows])]
            ),
            augmented=Counter(copies[row][0] for row in rows),
        )

    def _is_held_out(self, pair: Pair) -> bool:
        """Whether a pair is held out: its source is, or with several directions, which share texts, its target."""
        return pair[0] in self.held_out or (self.target_language != "" and pair[1] in self.held_out)

    def _tokenize(self, sources: Sequence[str], targets: Sequence[str]) -> tuple[Ragged, Ragged]:
        """Returns the tokens of both sides as they are stored."""
        source, target = self.tokenizers.source, self.tokenizers.target
        if self.keeps_words and isinstance(source, BytePairTokenizer) and isinstance(target, BytePairTokenizer):
            return encode_words(source, sources), encode_words(target, targets)
        return Ragged(*source.encode_flat(sources)), Ragged(*target.encode_flat(targets))

    def _without_word_starts(self, source: Ragged, target: Ragged) -> tuple[Ragged, Ragged]:
        """Returns the tokens of both sides without marks."""
        if not self.keeps_words:
            return source, target
        sizes = self.tokenizers.source.vocab_size, self.tokenizers.target.vocab_size
        return without_word_starts(source, sizes[0]), without_word_starts(target, sizes[1])

    def _digests(self, sources: Sequence[str], targets: Sequence[str]) -> NDArray[np.uint64]:
        if not self.find_duplicates:
            return np.zeros((0, 2), np.uint64)
        tag = f"{self.target_language}\n" if self.target_language else ""
        return pair_digests([tag + source for source in sources] if tag else sources, targets)


def worker_count(requested: int | None, pairs: int) -> int:
    """Returns the number of processes to start: the requested number, else one per core, or 0 for a small corpus.

    It is always 0 where processes cannot be forked, such as in a daemonic process.
    """
    if not CAN_FORK or current_process().daemon or (requested is None and pairs < SMALL_PAIRS):
        return 0
    return requested or len(os.sched_getaffinity(0))


def encode_blocks(encoder: BlockEncoder, blocks: Iterable[Block], workers: int) -> Generator[EncodedBlock]:
    """Yields the encoded blocks in their order, whatever the number of processes.

    This uses processes instead of threads, because most of the work outside the tokenizer holds the GIL.

    Args:
        encoder: Encoder of the blocks.
        blocks: Blocks of pairs, read a few ahead of the results.
        workers: Number of processes; 0 encodes in the calling process.

    Raises:
        WorkerError: Processes were killed, e.g. for lack of memory.
    """
    if workers:
        with closing(FunctionPool(encoder.encode, workers, "set data.workers lower")) as pool:
            yield from pool.map(blocks, ahead=2 * workers)
    else:
        yield from map(encoder.encode, blocks)
