"""What a translator makes of a line: pieces, and their translation."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from transformer.decoding import RETRY_NGRAM, Constraint, Hypothesis, Search, Tokens, normalized_score, repeats_itself
from transformer.decoding.length_penalties import LengthPenalty
from transformer.pipelines.translation.inline_tags import TagFreeLine
from transformer.text.sentence_splitting import SplitLine
from transformer.tokenizers.base import Tokenizer

LONG_RATIO, LONG_EXTRA = 4, 5
"""More than so many times the source, and so many tokens beside, is far too long: no such pair is trained on."""


@dataclass
class Segment:
    """A part of a line: its tokens with EOS, what is asked of its translation, and whether that was searched twice."""

    line: int
    tokens: list[int]
    prefix: Tokens
    number: int
    required: tuple[Constraint, ...]
    retried: bool = False


def longest_first(pieces: Sequence[Segment]) -> list[int]:
    """The order in which pieces are searched for, so that a lack of memory shows at once."""
    return sorted(range(len(pieces)), key=lambda index: -len(pieces[index].tokens))


def is_degenerate(piece: Segment, best: Hypothesis, search: Search) -> bool:
    """Whether a translation is cut unasked, is far too long, or repeats itself where its source does not."""
    is_cut = not best.finished and search.max_tokens is None
    loops = repeats_itself(best.tokens) and not repeats_itself(piece.tokens)
    return is_cut or loops or is_long(piece, best, search)


def is_long(piece: Segment, best: Hypothesis, search: Search) -> bool:
    """Whether a translation is longer than any of a pair that a corpus keeps, what must stand in it left aside."""
    owed = len(piece.prefix) + sum(phrase.times * max(map(len, phrase.variants)) for phrase in piece.required)
    return len(best.tokens) > max(LONG_RATIO * len(piece.tokens) + LONG_EXTRA + owed, search.min_tokens)


def quality_warnings(own: Sequence[tuple[Segment, Sequence[Hypothesis]]], search: Search) -> list[str]:
    """What a reader should know of the best hypotheses of the pieces of a line."""
    bests = [(piece, best) for piece, (best, *_) in own]
    flags: list[str] = []
    if not all(best.finished for _, best in bests):
        flags.append("the translation did not end and was cut at the limit")
    elif any(is_long(piece, best, search) for piece, best in bests):
        flags.append("the translation is far longer than its source")
    elif any(is_degenerate(piece, best, search) for piece, best in bests):
        flags.append("the translation repeats itself")
    if any(piece.retried for piece, _ in bests):
        flags.append(f"searched for again without {RETRY_NGRAM} tokens in a row twice: it looped or did not end")
    return flags


@dataclass
class PendingTranslation:
    """Lines that are being translated.

    Attributes:
        lines: as given.
        untagged: without what is put back at the end.
        splits: how each is split.
        pieces: of all, in order.
        results: of the pieces, the longest first, as they are found.
    """

    lines: Sequence[str]
    untagged: list[TagFreeLine]
    splits: list[SplitLine]
    pieces: list[Segment]
    results: Iterator[tuple[int, list[Hypothesis]]]


@dataclass(frozen=True)
class Alternative:
    """One of the best translations of a line.

    Attributes:
        text: without line ends.
        score: log-probability of its tokens, summed over the pieces of a split line; 0.0 for an empty line.
        value: what it was ranked by: the score after rules, divided by the length penalty, summed likewise.
        finished: it ended by itself; False means cut at the limit.
        tokens: its ids, piece of the line by piece, without EOS.
        tokenizer: of the tokens.
    """

    text: str
    score: float
    value: float
    finished: bool
    tokens: tuple[Tokens, ...] = ()
    tokenizer: Tokenizer | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, parts: Sequence[Hypothesis], tokenizer: Tokenizer, penalty: LengthPenalty) -> "Alternative":
        """The hypotheses of all pieces of a line, put together."""
        text = " ".join(tokenizer.decode(part.tokens) for part in parts).replace("\n", " ").replace("\r", " ")
        return cls(
            text,
            sum((part.score for part in parts), 0.0),
            sum((normalized_score(part, penalty) for part in parts), 0.0),
            all(part.finished for part in parts),
            tuple(tuple(part.tokens) for part in parts),
            tokenizer,
        )

    @property
    def pieces(self) -> tuple[str, ...]:
        """Printable tokens, `▁` for a space."""
        if self.tokenizer is None:
            return ()
        return tuple(piece for part in self.tokens for piece in self.tokenizer.pieces(part))


@dataclass(frozen=True)
class Translation:
    """One translated line.

    Attributes:
        alternatives: the best translations, best first, as many as `Search.n_best` where there are so many.
        flags: what a reader should know, e.g. that the line was cut; empty where all is well.
        sources: ids of the line, piece by piece, each with EOS; none of an empty line.
        words: of a line that was split, and of one with tags that were put back: for each word that was translated or
            written the one that it is in, of the line as given and of the best translation as it stands.
    """

    alternatives: tuple[Alternative, ...]
    flags: tuple[str, ...] = ()
    sources: tuple[Tokens, ...] = ()
    words: tuple[list[int], list[int]] | None = None

    @property
    def text(self) -> str:
        """The best translation."""
        return self.alternatives[0].text

    @property
    def score(self) -> float:
        """Log-probability of the best translation's tokens."""
        return self.alternatives[0].score


NOTHING = Alternative("", 0.0, 0.0, finished=True)
"""The translation of an empty line."""


def lines_done(
    n_lines: int, lines_of_pieces: Iterable[int], done: Callable[[int], None] | None
) -> Callable[[int], None] | None:
    """Counts lines of which the last piece is done.

    Args:
        n_lines: in all; those without pieces are told of at once.
        lines_of_pieces: the line of each piece.
        done: is told how many more lines are done.

    Returns:
        What is to be told the line of each piece that is done; None where no one counts.
    """
    if done is None:
        return None
    left = Counter(lines_of_pieces)
    done(n_lines - len(left))

    def one(line: int) -> None:
        left[line] -= 1
        if not left[line]:
            done(1)

    return one
