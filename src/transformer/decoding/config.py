"""What is asked of a search."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from transformer.decoding.constrained import Constraint
from transformer.decoding.length_penalties import LengthPenalty, paper_length_penalty
from transformer.decoding.sampling import Sampling
from transformer.errors import ConfigError

Tokens = tuple[int, ...]
Average = Literal["log_probability", "probability"]


@dataclass(frozen=True)
class Search:
    """How translations are searched for; the defaults are greedy search.

    Attributes:
        beam: hypotheses of a sentence that are followed at a time; 1 is greedy, the paper takes 4.
        penalty: compares hypotheses of different lengths.
        stopping: "early" ends a sentence once `beam` hypotheses of it have ended; "exhaustive" goes on while one that
            is followed could still, at its limit, come before the worst of them.
        n_best: hypotheses returned, at most `beam`.
        min_tokens: EOS is not written before so many tokens.
        max_tokens: most tokens of a hypothesis besides EOS; where not given, a translator takes 50 more than the source
            has, or than `min_tokens`.
        no_repeat_ngram: no sequence of so many tokens is written twice; 0 lets all be.
        repetition_penalty: the log-probability of a token that was written already is multiplied by it where
            hypotheses are compared (Keskar et al. 2019, "CTRL", Sec. 4.1); 1 changes nothing.
        banned: sequences of tokens that are never written.
        allow_unknown: whether [UNK] may be written.
        groups: parts of the beam, a divisor of it, of which each avoids the tokens that those before it choose at the
            same step (Vijayakumar et al. 2018, "Diverse Beam Search", Sec. 4).
        diversity: what a token loses for each time that an earlier group chose it, in nats.
        sampling: draws tokens in place of taking the best; `beam` is then the number of samples.
        average: how the predictions of several models are averaged, see `Ensemble`.
        coverage: what a translator adds, where it compares hypotheses that have ended, for each source token that was
            attended to too little, see `coverage_penalty`; 0 for nothing.
        limit_ends: whether a hypothesis at its limit counts as one that ended, as a language model's does that is asked
            for so many tokens; if not, those that reached EOS come before it.
        guard: whether a translator searches again, without repeating `GUARD_NGRAM` tokens in a row, where a
            translation repeats itself or does not end.

    Raises:
        ConfigError: a value, or a combination, that means nothing.
    """

    beam: int = 1
    penalty: LengthPenalty = field(default_factory=lambda: paper_length_penalty(0.6))
    stopping: str = "early"
    n_best: int = 1
    min_tokens: int = 0
    max_tokens: int | None = None
    no_repeat_ngram: int = 0
    repetition_penalty: float = 1.0
    banned: Sequence[Tokens] = ()
    allow_unknown: bool = False
    groups: int = 1
    diversity: float = 0.0
    sampling: Sampling | None = None
    average: Average = "log_probability"
    coverage: float = 0.0
    limit_ends: bool = False
    guard: bool = True

    def __post_init__(self) -> None:
        """Refuses what is no search."""
        if self.beam < 1:
            raise ConfigError(f"beam={self.beam} is below 1; choose 1 for greedy search, or more")
        if self.stopping not in ("early", "exhaustive"):
            raise ConfigError(f"stopping={self.stopping!r} is unknown; choose 'early' or 'exhaustive'")
        if not 1 <= self.n_best <= self.beam:
            raise ConfigError(f"n_best={self.n_best} is not between 1 and beam={self.beam}; choose a wider beam")
        if self.groups < 1 or self.beam % self.groups:
            raise ConfigError(f"groups={self.groups} does not divide beam={self.beam}; choose a divisor")
        if self.groups > 1 and self.sampling:
            raise ConfigError("groups and sampling exclude each other; samples differ by themselves")
        for name in ("min_tokens", "no_repeat_ngram", "diversity", "coverage"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ConfigError(f"{name}={getattr(self, name)} is not a number from 0 on")
        if self.max_tokens is not None and self.max_tokens < max(1, self.min_tokens):
            raise ConfigError(
                f"max_tokens={self.max_tokens} is below {max(1, self.min_tokens)}, the fewest there can be; choose more"
            )
        if self.coverage and self.beam == 1:
            raise ConfigError("coverage does nothing with beam=1, which has nothing to compare; choose e.g. 4")
        if not 0 < self.repetition_penalty < float("inf"):
            raise ConfigError(f"repetition_penalty={self.repetition_penalty} is not above 0; choose e.g. 1.2")
        if not all(self.banned):
            raise ConfigError("an empty sequence cannot be banned; leave it out")

    @property
    def follows_the_model(self) -> bool:
        """Whether hypotheses are compared by the model's log-probabilities alone, all with all."""
        changes = self.repetition_penalty != 1 or self.no_repeat_ngram or self.banned or self.sampling
        return self.groups == 1 and not changes


GUARD_NGRAM: Final = 3
GREEDY: Final = Search()
"""The most probable token at each step."""


@dataclass(frozen=True)
class Request:
    """One sentence to be searched for.

    Attributes:
        source: its tokens, EOS last; of a language model, the prompt without its last token.
        limit: most tokens of a hypothesis, EOS included; at least 1.
        prefix: tokens that every hypothesis begins with.
        number: tells its random numbers from those of other sentences.
        required: phrases that a hypothesis must hold before it ends. A beam of several times as many hypotheses as
            they have tokens finds good places for them; a narrow one writes them as soon as it can.
        first: what the model reads before it writes; BOS of our vocabularies if not given.
        reserve_eos: whether the last token within the limit may be EOS alone, so that what is cut has one fewer.
    """

    source: Sequence[int]
    limit: int
    prefix: Tokens = ()
    number: int = 0
    required: tuple[Constraint, ...] = ()
    first: int | None = None
    reserve_eos: bool = False
