"""Options of a search (`Search`), and of sampling in it (`Sampling`).

`Search` corresponds to `GenerationConfig` of transformers and to the generation options of fairseq.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Annotated, Final, Literal, TypedDict, TypeVar

from annotated_types import Ge, Gt, Le

from transformer.errors import ConfigError
from transformer.options.fields import Count, Doc, Positive, Remedy, check_bounds
from transformer.options.length_penalties import LengthPenalty, paper_length_penalty

T = TypeVar("T")
Tokens = tuple[int, ...]
Average = Literal["log_probability", "probability"]
Utility = Literal["chrf", "bleu"]
MIN_MBR: Final = 3
"""Minimum number of hypotheses of which one can be more like the others."""
MIN_TEMPERATURE: Final = 0.001
"""Below it, float32 cannot distinguish the best token from others, or the best token is always drawn."""
KEEP_ALL: Final = Remedy("choose 0 to keep all tokens")
Beam = Annotated[
    Positive,
    Remedy("choose 1 for greedy search, or more"),
    Doc("beam size, the number of hypotheses that are followed; 1 is greedy search, the paper uses 4"),
]
TopK = Annotated[Count, KEEP_ALL, Doc("number of most probable tokens to draw from; 0: all")]
TopP = Annotated[
    float,
    Gt(0),
    Le(1),
    Remedy("choose 1 to keep all tokens"),
    Doc("total probability of the tokens to draw from, the fewest most probable ones"),
]
Seed = Annotated[int, Doc("seed of the random numbers; default of commands and servers: another one each time")]
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


@dataclass(frozen=True)
class Sampling:
    """Options for drawing tokens.

    Each sentence has its own random stream, so that samples depend neither on the other sentences of a batch nor on
    their order. Top-k is described by Fan et al. 2018, Sec. 5.4, top-p by Holtzman et al. 2020, Sec. 3.1, and min-p by
    Nguyen et al. 2024.

    Raises:
        ConfigError: A value is out of its range.
    """

    temperature: Annotated[
        float,
        Ge(MIN_TEMPERATURE),
        Remedy("leave sampling out for greedy search"),
        Doc("divisor of the logits; below 1, probable tokens become more probable"),
    ] = 1.0
    top_k: TopK = 0
    top_p: TopP = 1.0
    min_p: Annotated[
        float, Ge(0), Le(1), KEEP_ALL, Doc("minimum probability of a token, relative to the most probable one")
    ] = 0.0
    seed: Seed = 1

    def __post_init__(self) -> None:
        """Validates the options."""
        check_bounds(self)


@_accept_old_names
@dataclass(frozen=True)
class Search:
    """Options of beam search, greedy search and sampling; the defaults are greedy search.

    Limits of tokens and penalties of repetition change which tokens are chosen, not their scores. The penalty of
    repetition is described by Keskar et al. 2019, "CTRL", Sec. 4.1, and groups by Vijayakumar et al. 2018, "Diverse
    Beam Search". See also `coverage_penalty`, `Ensemble` and `Retrier`.

    Raises:
        ConfigError: A value, or a combination of values, is invalid.
    """

    beam: Beam = 1
    length_penalty: Annotated[LengthPenalty, Doc("divisor by which hypotheses of different lengths are compared")] = (
        field(default_factory=lambda: paper_length_penalty(0.6))
    )
    stopping: Annotated[
        Literal["early", "exhaustive"],
        Doc("early: stop when as many hypotheses as the beam size have ended; exhaustive: when none can improve"),
    ] = "early"
    n_best: Annotated[Positive, Doc("number of results per text, best first; at most the beam size")] = 1
    min_tokens: Annotated[Count, Doc("minimum number of tokens to generate")] = 0
    max_tokens: (
        Annotated[
            Positive,
            Doc("maximum number of tokens, the end not counted; default: source (or minimum) + 50, 200 after a prompt"),
        ]
        | None
    ) = None
    no_repeat_ngram: (
        Annotated[
            Count, Doc("never repeat an n-gram of N tokens, the prompt included; 0: no limit; default: as published")
        ]
        | None
    ) = None
    repetition_penalty: (
        Annotated[
            float,
            Gt(0),
            Doc(
                "divisor of positive logits and factor of negative ones of repeated tokens; default: as published, or 1"
            ),
        ]
        | None
    ) = None
    banned: Annotated[Sequence[Tokens], Doc("sequences of tokens that are never generated")] = ()
    allow_unknown: Annotated[bool, Doc("allow [UNK]; it is left out in text and shown among the tokens")] = False
    groups: Annotated[
        Positive, Doc("number of groups that the beam is divided into, each avoiding the tokens of those before it")
    ] = 1
    diversity: Annotated[
        float,
        Ge(0),
        Doc("penalty of a token for each earlier group that chose it, in nats; on the command line 0.5 with --groups"),
    ] = 0.0
    sampling: Annotated[Sampling | None, Doc("draw tokens instead of taking the best ones")] = None
    average: Annotated[
        Average,
        Doc(
            "how models of an ensemble are averaged: log_probability favours tokens that all models accept, "
            "probability those that any model accepts"
        ),
    ] = "log_probability"
    coverage: Annotated[
        float, Ge(0), Doc("weight of the penalty for source tokens with little attention, e.g. 0.2; needs a beam")
    ] = 0.0
    mbr: (
        Annotated[
            Utility,
            Doc("score by which the hypothesis most like all others is chosen (minimum Bayes risk); default: none"),
        ]
        | None
    ) = None
    rerank_weight: (
        Annotated[
            float,
            Ge(0),
            Doc("weight of the score of the model of the other direction, with rerank (default there: 0.25)"),
        ]
        | None
    ) = None
    limit_ends: Annotated[
        bool, Doc("count a hypothesis that reaches the maximum of tokens as finished, not as worse than finished ones")
    ] = False
    retry_degenerate: Annotated[
        bool, Doc("search again if a translation loops, does not end, is empty, or changes a number or an address")
    ] = True

    def __post_init__(self) -> None:
        """Validates the options."""
        check_bounds(self)
        if self.n_best > self.beam:
            raise ConfigError(f"n_best={self.n_best} is not between 1 and beam={self.beam}; choose a wider beam")
        if self.beam % self.groups:
            raise ConfigError(f"groups={self.groups} does not divide beam={self.beam}; choose a divisor")
        if self.groups > 1 and self.sampling:
            raise ConfigError("groups and sampling exclude each other; samples differ by themselves")
        if self.max_tokens is not None and self.max_tokens < self.min_tokens:
            raise ConfigError(f"max_tokens={self.max_tokens} is below the minimum of {self.min_tokens}; choose more")
        if self.coverage and self.beam == 1:
            raise ConfigError("coverage has no effect with beam=1, which has nothing to compare; choose e.g. 4")
        if self.mbr and self.beam < MIN_MBR:
            raise ConfigError(
                f"mbr has no effect with beam={self.beam}, of which none is most like the others; choose 16"
            )
        if self.mbr and self.coverage:
            raise ConfigError("mbr and coverage both rank the hypotheses; leave out one of them")
        if self.rerank_weight is not None and (self.mbr or self.coverage):
            other = "mbr" if self.mbr else "coverage"
            raise ConfigError(f"{other} and rerank_weight both rank the hypotheses; leave out one of them")
        if not all(self.banned):
            raise ConfigError("an empty sequence cannot be banned; leave it out")

    @property
    def ranks_by_log_probability(self) -> bool:
        """Whether hypotheses are compared by the model's unprocessed log-probabilities, in a single group."""
        is_processed = self.penalizes_repetition or self.no_repeat_ngram or self.banned or self.sampling
        return self.groups == 1 and not is_processed

    @property
    def penalizes_repetition(self) -> bool:
        """Whether the repetition penalty changes anything."""
        return self.repetition_penalty not in (None, 1)

    def with_defaults(self, repetition_penalty: float | None = None, no_repeat_ngram: int | None = None) -> "Search":
        """Returns these options, in which the given values replace those that are None."""
        return replace(
            self,
            repetition_penalty=repetition_penalty if self.repetition_penalty is None else self.repetition_penalty,
            no_repeat_ngram=no_repeat_ngram if self.no_repeat_ngram is None else self.no_repeat_ngram,
        )

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
    no_repeat_ngram: int | None
    repetition_penalty: float | None
    banned: Sequence[Tokens]
    allow_unknown: bool
    groups: int
    diversity: float
    sampling: Sampling | None
    average: Average
    coverage: float
    mbr: Utility | None
    rerank_weight: float | None
    limit_ends: bool
    retry_degenerate: bool


RETRY_NGRAM: Final = 3
"""Size of the n-grams that are not repeated when a degenerate translation is searched for again."""
GREEDY: Final = Search()
"""Greedy search: the most probable token at each step."""
