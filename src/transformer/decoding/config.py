"""Configuration of a search (`Search`), and the sentences to search for (`Request`).

`Search` corresponds to `GenerationConfig` of transformers and to the generation options of fairseq.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Final, Literal, TypedDict, TypeVar

from transformer.decoding.constrained import Constraint
from transformer.decoding.length_penalties import LengthPenalty, paper_length_penalty
from transformer.decoding.sampling import Sampling
from transformer.errors import ConfigError

T = TypeVar("T")
Tokens = tuple[int, ...]
Average = Literal["log_probability", "probability"]
OLD_NAMES: Final = {"penalty": "length_penalty", "guard": "retry_degenerate"}
"""Deprecated names of the options of `Search`, with the present ones."""


def _accept_old_names(cls: type[T]) -> type[T]:
    """Makes the constructor of `Search` accept `OLD_NAMES`, with a warning; an old name overrides the present one."""
    init: Callable[..., None] = cls.__init__

    @wraps(init)
    def init_with_old_names(self: T, *args: object, **options: object) -> None:
        for old in OLD_NAMES.keys() & options.keys():
            _warn_of_old_name(old)
            options[OLD_NAMES[old]] = options.pop(old)
        init(self, *args, **options)

    cls.__init__ = init_with_old_names
    return cls


def _warn_of_old_name(old: str) -> None:
    warnings.warn(f"Search.{old} is deprecated; use {OLD_NAMES[old]}", DeprecationWarning, stacklevel=3)


@_accept_old_names
@dataclass(frozen=True)
class Search:
    """Options of beam search, greedy search and sampling; the defaults are greedy search.

    Attributes:
        beam: Number of hypotheses per sentence that are active at a time; 1 is greedy search, the paper uses 4.
        length_penalty: Divisor by which hypotheses of different lengths are compared.
        stopping: "early" finishes a sentence once `beam` of its hypotheses are finished; "exhaustive" continues while
            an active hypothesis could still, at the limit, be ranked above the worst of them.
        n_best: Number of hypotheses returned per sentence, at most `beam`.
        min_tokens: Number of tokens before which EOS is not generated.
        max_tokens: Maximum number of tokens of a hypothesis, EOS excluded; None lets a translator take 50 more than the
            source has, or than `min_tokens`.
        no_repeat_ngram: Size of the n-grams that are generated at most once; 0 allows all repetitions.
        repetition_penalty: Factor by which the log-probability of a token that was generated before is multiplied
            where hypotheses are compared (Keskar et al. 2019, "CTRL", Sec. 4.1); 1 changes nothing.
        banned: Sequences of tokens that are never generated.
        allow_unknown: Whether [UNK] may be generated.
        groups: Number of groups that the beam is divided into, a divisor of it. Each group avoids the tokens that those
            before it choose at the same step (Vijayakumar et al. 2018, "Diverse Beam Search", Sec. 4).
        diversity: Penalty of a token for each time that an earlier group chose it, in nats.
        sampling: Options for drawing tokens instead of taking the best ones; `beam` is then the number of samples.
        average: Mean by which the predictions of several models are combined, see `Ensemble`.
        coverage: Weight of the coverage penalty that a translator adds to finished hypotheses, for source tokens that
            were attended to too little, see `coverage_penalty`; 0 disables it.
        limit_ends: Whether a hypothesis that reaches its limit counts as finished, as in a language model that is asked
            for a number of tokens. Otherwise, hypotheses that reached EOS are ranked above it.
        retry_degenerate: Whether a translator searches again, without repeating `RETRY_NGRAM` tokens in a row, if a
            translation repeats itself or does not end; and whether it tries those once more that are empty, repeat a
            word, or change a number or an address, see `Retrier`.

    Raises:
        ConfigError: A value, or a combination of values, is invalid.
    """

    beam: int = 1
    length_penalty: LengthPenalty = field(default_factory=lambda: paper_length_penalty(0.6))
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
    retry_degenerate: bool = True

    def __post_init__(self) -> None:
        """Validates the options."""
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
                raise ConfigError(f"{name}={getattr(self, name)} is not a finite number of at least 0; choose e.g. 0")
        if self.max_tokens is not None and self.max_tokens < max(1, self.min_tokens):
            raise ConfigError(
                f"max_tokens={self.max_tokens} is below the minimum of {max(1, self.min_tokens)}; choose more"
            )
        if self.coverage and self.beam == 1:
            raise ConfigError("coverage has no effect with beam=1, which has nothing to compare; choose e.g. 4")
        if not 0 < self.repetition_penalty < float("inf"):
            raise ConfigError(f"repetition_penalty={self.repetition_penalty} is not above 0; choose e.g. 1.2")
        if not all(self.banned):
            raise ConfigError("an empty sequence cannot be banned; leave it out")

    @property
    def ranks_by_log_probability(self) -> bool:
        """Whether hypotheses are compared by the model's unprocessed log-probabilities, in a single group."""
        is_processed = self.repetition_penalty != 1 or self.no_repeat_ngram or self.banned or self.sampling
        return self.groups == 1 and not is_processed

    @property
    def penalty(self) -> LengthPenalty:
        """Deprecated name of `length_penalty`."""
        _warn_of_old_name("penalty")
        return self.length_penalty

    @property
    def guard(self) -> bool:
        """Deprecated name of `retry_degenerate`."""
        _warn_of_old_name("guard")
        return self.retry_degenerate


class SearchOptions(TypedDict, total=False):
    """The fields of `Search` as keyword arguments of a call, so that editors complete and type checkers check them."""

    beam: int
    length_penalty: LengthPenalty
    stopping: str
    min_tokens: int
    max_tokens: int | None
    no_repeat_ngram: int
    repetition_penalty: float
    banned: Sequence[Tokens]
    allow_unknown: bool
    groups: int
    diversity: float
    sampling: Sampling | None
    average: Average
    coverage: float
    limit_ends: bool
    retry_degenerate: bool


RETRY_NGRAM: Final = 3
"""Size of the n-grams that are not repeated when a degenerate translation is searched for again."""
GREEDY: Final = Search()
"""Greedy search: the most probable token at each step."""


@dataclass(frozen=True)
class Request:
    """One sentence to search for.

    Attributes:
        source: Source tokens with EOS last; for a language model, the prompt without its last token.
        limit: Maximum number of tokens of a hypothesis, EOS included; at least 1.
        prefix: Tokens that every hypothesis begins with.
        number: Number of the sentence's random stream, which makes its samples independent of other sentences.
        required: Constraints that a hypothesis must satisfy before it ends. A beam of several times as many hypotheses
            as they have tokens finds good positions for them; a narrow one places them as soon as it can.
        decoder_start_token_id: Token that the decoder reads first; None is BOS of this package's vocabularies.
        reserve_eos: Whether the last token within the limit may only be EOS, so that a truncated hypothesis has one
            token fewer.
    """

    source: Sequence[int]
    limit: int
    prefix: Tokens = ()
    number: int = 0
    required: tuple[Constraint, ...] = ()
    decoder_start_token_id: int | None = None
    reserve_eos: bool = False
