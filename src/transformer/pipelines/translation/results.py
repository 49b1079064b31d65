"""Translations of lines."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from transformer.options.length_penalties import LengthPenalty
from transformer.text.joining import join_sentences
from transformer.tokenizers.base import Tokenizer

if TYPE_CHECKING:  # the process of the server does without PyTorch
    from transformer.decoding import Hypothesis, Tokens

UNSEEN: Final = "never seen in training: "
"""Beginning of the flag that names characters which the training text does not have."""
UNSURE: Final = "unsure (confidence "
"""Beginning of the flag of a translation whose confidence is below the threshold."""


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
    tokens: "tuple[Tokens, ...]" = ()
    tokenizer: Tokenizer | None = field(default=None, repr=False, compare=False)

    @classmethod
    def join(cls, hypotheses: "Sequence[Hypothesis]", tokenizer: Tokenizer, penalty: LengthPenalty) -> "Alternative":
        """Joins the hypotheses of all segments of a line."""
        text = join_sentences([tokenizer.decode(hypothesis.tokens) for hypothesis in hypotheses])
        return cls(
            text.replace("\n", " ").replace("\r", " "),
            sum([hypothesis.score for hypothesis in hypotheses], 0.0),
            sum([hypothesis.normalized_score(penalty) for hypothesis in hypotheses], 0.0),
            all(hypothesis.finished for hypothesis in hypotheses),
            tuple([tuple(hypothesis.tokens) for hypothesis in hypotheses]),
            tokenizer,
        )

    @property
    def pieces(self) -> tuple[str, ...]:
        """Printable tokens, with `▁` for a space."""
        if self.tokenizer is None:
            return ()
        return tuple(piece for tokens in self.tokens for piece in self.tokenizer.pieces(tokens))


@dataclass(frozen=True, repr=False)
class Translation:
    """One translated line.

    Attributes:
        alternatives: Best translations, best first; up to `Search.n_best`.
        flags: Warnings for the reader, e.g. that the line was cut; empty if there are none.
        sources: Source token ids of each segment, each with EOS; empty for an empty line.
        words: Only for a line that was split, whose tags were restored, or of which the model does not see every word
            (one of invisible characters). For each word of the segments' sources that the model sees, the word of the
            input line that contains it; for each word of their translations, the word of the final text.
        unseen: Characters of the line that did not occur in training, which a flag names too.
        is_copied: Whether the line was copied because there is nothing to translate in it; False for an empty line.
        confidence: Expected chrF of the best translation over 100, from 0 to 1; None for an empty line, or if the model
            was not calibrated.
    """

    alternatives: tuple[Alternative, ...]
    flags: tuple[str, ...] = ()
    sources: "tuple[Tokens, ...]" = ()
    words: tuple[list[int], list[int]] | None = None
    unseen: tuple[str, ...] = ()
    is_copied: bool = False
    confidence: float | None = None

    def __str__(self) -> str:
        """Returns the best translation."""
        return self.text

    def __repr__(self) -> str:
        """Returns what readers look for; `vars` shows all fields."""
        more = f", {len(self.alternatives)} alternatives" if len(self.alternatives) > 1 else ""
        flags = f", flags={self.flags!r}" if self.flags else ""
        return f"<Translation {self.text!r}: score {self.score:.4f}{more}{flags}>"

    @property
    def is_unsure(self) -> bool:
        """Whether the confidence is below the threshold of the model."""
        return any(flag.startswith(UNSURE) for flag in self.flags)

    @property
    def text(self) -> str:
        """The best translation."""
        return self.alternatives[0].text

    @property
    def score(self) -> float:
        """Log-probability of the best translation's tokens."""
        return self.alternatives[0].score

    def with_outer_space(self, line: str, before: str, after: str) -> "Translation":
        """Returns the translation with what stood before and after its line.

        Args:
            line: The line without both.
            before: White space and invisible characters before the line.
            after: White space and invisible characters after the line; line ends are left out.
        """
        if not before and not after:
            return self
        before, after = before.replace("\n", ""), after.replace("\n", "")
        if not before and not after:
            return self
        alternatives = tuple(replace(other, text=before + other.text + after) for other in self.alternatives)
        n_words = len(f"{before}x".split()) - 1  # invisible characters can be words
        words = self.words
        if n_words:
            source, target = words or (range(len(line.split())), range(len(self.text.split())))
            words = [word + n_words for word in source], [word + n_words for word in target]
        return replace(self, alternatives=alternatives, words=words)


EMPTY_ALTERNATIVE = Alternative("", 0.0, 0.0, finished=True)
"""The translation of an empty line."""
