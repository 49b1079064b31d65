"""Results of a translator: the segments of a line, and their translations."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from transformer.decoding import RETRY_NGRAM, Constraint, Hypothesis, Search, Tokens, normalized_score, repeats_itself
from transformer.decoding.length_penalties import LengthPenalty
from transformer.pipelines.translation.inline_tags import TagFreeLine
from transformer.text.sentence_splitting import SplitLine
from transformer.tokenizers.base import Tokenizer

LONG_RATIO, LONG_EXTRA = 4, 5
"""A translation of more than LONG_RATIO x source + LONG_EXTRA tokens is too long; such pairs are not trained on."""


@dataclass
class Segment:
    """A line, or a part of a long line, that is translated at once.

    Attributes:
        line: Index of the line.
        tokens: Source tokens, EOS last.
        prefix: Target tokens that the translation must begin with.
        number: Number of its random stream.
        required: Constraints on its translation.
        retried: Whether its translation comes from a second search, see `Search.retry_degenerate`.
    """

    line: int
    tokens: list[int]
    prefix: Tokens
    number: int
    required: tuple[Constraint, ...]
    retried: bool = False


def longest_first(segments: Sequence[Segment]) -> list[int]:
    """Returns the indices of the segments longest first, so that a lack of memory shows early."""
    return sorted(range(len(segments)), key=lambda index: -len(segments[index].tokens))


def is_degenerate(segment: Segment, best: Hypothesis, search: Search) -> bool:
    """Whether a translation was cut at the default limit, is far too long, or repeats itself unlike its source."""
    is_cut = not best.finished and search.max_tokens is None
    loops = repeats_itself(best.tokens) and not repeats_itself(segment.tokens)
    return is_cut or loops or is_long(segment, best, search)


def is_long(segment: Segment, best: Hypothesis, search: Search) -> bool:
    """Whether a translation is longer than in any training pair; its prefix and required phrases do not count."""
    constraints = segment.required
    n_required = sum(constraint.times * max(map(len, constraint.variants)) for constraint in constraints)
    n_fixed = len(segment.prefix) + n_required
    return len(best.tokens) > max(LONG_RATIO * len(segment.tokens) + LONG_EXTRA + n_fixed, search.min_tokens)


def quality_warnings(results: Sequence[tuple[Segment, Sequence[Hypothesis]]], search: Search) -> list[str]:
    """Returns warnings about the best hypotheses of the segments of a line."""
    bests = [(segment, best) for segment, (best, *_) in results]
    flags: list[str] = []
    if not all(best.finished for _, best in bests):
        flags.append("the translation did not end and was cut at the limit")
    elif any(is_long(segment, best, search) for segment, best in bests):
        flags.append("the translation is far longer than its source")
    elif any(is_degenerate(segment, best, search) for segment, best in bests):
        flags.append("the translation repeats itself")
    if any(segment.retried for segment, _ in bests):
        flags.append(
            f"the first translation looped or did not end; searched again without repeated {RETRY_NGRAM}-grams"
        )
    return flags


@dataclass
class PendingTranslation:
    """Lines whose translation has started.

    Attributes:
        lines: Input lines.
        tag_free: Lines without the tags that are restored at the end.
        splits: How each line is split into segments.
        segments: Segments of all lines, in order.
        results: Index in `longest_first` order and hypotheses of each segment, as they are completed.
    """

    lines: Sequence[str]
    tag_free: list[TagFreeLine]
    splits: list[SplitLine]
    segments: list[Segment]
    results: Iterator[tuple[int, list[Hypothesis]]]


@dataclass(frozen=True)
class Alternative:
    """One of the best translations of a line.

    Attributes:
        text: Text without line ends.
        score: Log-probability of its tokens, summed over the segments of a split line; 0.0 for an empty line.
        value: Score that it was ranked by: the processed score divided by the length penalty, summed over segments.
        finished: Whether the model ended it; False means that it was cut at the limit.
        tokens: Token ids of each segment, without EOS.
        tokenizer: Tokenizer of the tokens.
    """

    text: str
    score: float
    value: float
    finished: bool
    tokens: tuple[Tokens, ...] = ()
    tokenizer: Tokenizer | None = field(default=None, repr=False, compare=False)

    @classmethod
    def join(cls, hypotheses: Sequence[Hypothesis], tokenizer: Tokenizer, penalty: LengthPenalty) -> "Alternative":
        """Joins the hypotheses of all segments of a line."""
        texts = (tokenizer.decode(hypothesis.tokens) for hypothesis in hypotheses)
        return cls(
            " ".join(texts).replace("\n", " ").replace("\r", " "),
            sum((hypothesis.score for hypothesis in hypotheses), 0.0),
            sum((normalized_score(hypothesis, penalty) for hypothesis in hypotheses), 0.0),
            all(hypothesis.finished for hypothesis in hypotheses),
            tuple(tuple(hypothesis.tokens) for hypothesis in hypotheses),
            tokenizer,
        )

    @property
    def pieces(self) -> tuple[str, ...]:
        """Printable tokens, with `▁` for a space."""
        if self.tokenizer is None:
            return ()
        return tuple(piece for tokens in self.tokens for piece in self.tokenizer.pieces(tokens))


@dataclass(frozen=True)
class Translation:
    """One translated line.

    Attributes:
        alternatives: Best translations, best first; up to `Search.n_best`.
        flags: Warnings for the reader, e.g. that the line was cut; empty if there are none.
        sources: Source token ids of each segment, each with EOS; empty for an empty line.
        words: Only for a line that was split or whose tags were restored. For each word of the segments' sources, the
            word of the input line that contains it; for each word of their translations, the word of the final text.
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


EMPTY_ALTERNATIVE = Alternative("", 0.0, 0.0, finished=True)
"""The translation of an empty line."""


def count_finished_lines(
    n_lines: int, segment_lines: Iterable[int], done: Callable[[int], None] | None
) -> Callable[[int], None] | None:
    """Converts a callback for finished lines to one for finished segments.

    Args:
        n_lines: Number of lines; those without segments are reported at once.
        segment_lines: Line of each segment.
        done: Callback with the number of lines that were finished since the last call.

    Returns:
        Callback with the line of a finished segment; None if `done` is None.
    """
    if done is None:
        return None
    remaining = Counter(segment_lines)
    done(n_lines - len(remaining))

    def on_segment(line: int) -> None:
        remaining[line] -= 1
        if not remaining[line]:
            done(1)

    return on_segment
