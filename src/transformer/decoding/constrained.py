"""Lexically constrained beam search with dynamic beam allocation: sequences that every hypothesis must contain.

At each step, the candidates of a sentence are divided into banks by the number of constraint tokens that they have met,
and every bank gets a share of the beam. A hypothesis that has just generated an unlikely token of a constraint thus
competes only with those that have met as many tokens, and is not pruned by those that avoid the constraint. fairseq
offers this search as `LexicallyConstrainedBeamSearch`, transformers as `ConstrainedBeamSearchScorer`.

Source: Post and Vilar 2018, "Fast Lexically Constrained Decoding with Dynamic Beam Allocation", Sec. 3.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Constraint:
    """A phrase that a hypothesis must contain.

    Attributes:
        variants: Token sequences that the phrase may be written as; any one satisfies the constraint.
        times: Minimum number of occurrences.
        not_before: Tokens that would turn the phrase into something else if they followed, as a digit does to a number.
            They are not generated after it, unless another constraint contains both.
        joined: Subset of `variants` that follow no space.
        not_after: Tokens that would turn a joined variant into something else if they came before. It may be generated
            after them, but does not count as an occurrence.
    """

    variants: tuple[tuple[int, ...], ...]
    times: int = 1
    not_before: frozenset[int] = frozenset()
    joined: frozenset[tuple[int, ...]] = frozenset()
    not_after: frozenset[int] = frozenset()

    def missing(self, tokens: Sequence[int]) -> tuple[int, int]:
        """Returns the number of occurrences still missing, and the position after the last occurrence."""
        times, start, after = self.times, 0, 0
        while times and start < len(tokens):
            sizes = (
                len(variant) for variant in self._valid_variants(tokens, start) if _occurs_at(variant, tokens, start)
            )
            size = max(sizes, default=0)
            if size and (start + size == len(tokens) or tokens[start + size] not in self.not_before):
                times, start = times - 1, start + size
                after = start
            else:
                start += 1
        return times, after

    def partial_matches(self, tokens: Sequence[int], after: int = 0) -> Iterator[tuple[tuple[int, ...], int]]:
        """Yields each variant with the number of its first tokens that `tokens` ends with, from position `after`."""
        for variant in self.variants:
            starts = range(max(after, len(tokens) - len(variant)), len(tokens))
            lengths = (
                len(tokens) - start
                for start in starts
                if _occurs_at(variant[: len(tokens) - start], tokens, start)
                and variant in self._valid_variants(tokens, start)
            )
            yield variant, next(lengths, 0)

    def _valid_variants(self, tokens: Sequence[int], start: int) -> Sequence[tuple[int, ...]]:
        """Returns the variants that count as an occurrence if they begin at `start`."""
        is_inside_word = self.joined and start and tokens[start - 1] in self.not_after
        return [variant for variant in self.variants if variant not in self.joined] if is_inside_word else self.variants


def _occurs_at(variant: Sequence[int], tokens: Sequence[int], start: int) -> bool:
    return list(tokens[start : start + len(variant)]) == list(variant)


@dataclass(frozen=True)
class ConstrainedCandidate:
    """A continuation of one hypothesis.

    Attributes:
        ranking_score: Sum of processed log-probabilities, the new token included.
        beam_index: Index of the hypothesis that is continued.
        token: New token.
        met: Number of constraint tokens that the continuation has met, which selects its bank.
        ends: Whether the token ends the sentence.
    """

    ranking_score: float
    beam_index: int
    token: int
    met: int
    ends: bool


def count_met_tokens(tokens: Sequence[int], constraints: Sequence[Constraint]) -> int:
    """Counts the constraint tokens that a hypothesis has met, including those of a constraint in progress.

    An occurrence counts as many tokens as its longest variant has. If several constraints begin with the same tokens,
    only one of them counts as begun. If each did, their common beginning would count for more than any complete
    constraint, and hypotheses would repeat it.
    """
    met = in_progress = 0
    for constraint in constraints:
        times, after = constraint.missing(tokens)
        met += (constraint.times - times) * max(map(len, constraint.variants))
        if times:
            in_progress = max(in_progress, *(length for _, length in constraint.partial_matches(tokens, after)))
    return met + in_progress


def count_occurrences(tokens: Sequence[int], constraints: Sequence[Constraint]) -> int:
    """Counts the required occurrences of all constraints that a hypothesis contains."""
    return sum(constraint.times - constraint.missing(tokens)[0] for constraint in constraints)


def next_constraint_tokens(tokens: Sequence[int], constraints: Sequence[Constraint]) -> Iterator[int]:
    """Yields the next token of each unsatisfied constraint, and its first token if it has begun already."""
    for constraint in constraints:
        times, after = constraint.missing(tokens)
        if times:
            for variant, length in constraint.partial_matches(tokens, after):
                yield from (variant[length], variant[0]) if length < len(variant) else (variant[0],)


def forbidden_continuations(tokens: Sequence[int], constraints: Sequence[Constraint]) -> set[int]:
    """Returns the tokens that would turn a phrase that has just been completed into something else."""
    forbidden: set[int] = set()
    for constraint in constraints:
        if constraint.not_before and any(
            length == len(variant) for variant, length in constraint.partial_matches(tokens)
        ):
            forbidden |= constraint.not_before
    if forbidden:
        for constraint in constraints:
            forbidden -= {
                variant[length] for variant, length in constraint.partial_matches(tokens) if 0 < length < len(variant)
            }
    return forbidden


def constrained_candidate(
    ranking_score: float,
    beam_index: int,
    token: int,
    generated: Sequence[int],
    constraints: Sequence[Constraint],
    *,
    ends: bool,
) -> ConstrainedCandidate | None:
    """Creates the candidate for a continuation; None if it would end before all constraints are satisfied."""
    if ends and any(constraint.missing(generated)[0] for constraint in constraints):
        return None
    met = count_met_tokens(generated if ends else [*generated, token], constraints)
    return ConstrainedCandidate(ranking_score, beam_index, token, met, ends)


def allocate_banks(
    candidates: Sequence[ConstrainedCandidate], size: int
) -> tuple[list[ConstrainedCandidate], list[ConstrainedCandidate]]:
    """Selects the candidates that stay active, and those that have finished.

    The beam is divided evenly among the banks, where a bank is the candidates that have met equally many constraint
    tokens. The remainder of the division goes to the banks that have met most. Slots that a bank cannot fill are
    filled with the best of all other candidates.

    Args:
        candidates: Distinct continuations.
        size: Maximum number of active candidates.
    """
    banks: dict[int, list[ConstrainedCandidate]] = defaultdict(list)
    for candidate in sorted(candidates, key=lambda candidate: -candidate.ranking_score):
        banks[candidate.met].append(candidate)
    active: list[ConstrainedCandidate] = []
    finished: list[ConstrainedCandidate] = []
    for index, met in enumerate(sorted(banks, reverse=True)):
        share = size // len(banks) + (index < size % len(banks))
        finished += [candidate for candidate in banks[met][: max(1, share)] if candidate.ends]
        active += [candidate for candidate in banks[met] if not candidate.ends][:share]
    unused = [
        candidate for bank in banks.values() for candidate in bank if not candidate.ends and candidate not in active
    ]
    active += sorted(unused, key=lambda candidate: -candidate.ranking_score)[: size - len(active)]
    return sorted(active, key=lambda candidate: -candidate.ranking_score), finished
