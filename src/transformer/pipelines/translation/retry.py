"""The last stage of a translation: lines with a problem are searched for once more, and better translations are kept.

Only this file decides which lines are tried again, how, and at what cost. A line is tried again at most once, in other
words or with one more rule of the search; only a line with one substitute may be tried with another. A second search
stops where its translation would be longer than the first one or than usual, so lines that the model cannot translate
cost at most about as much again. No search is required to write a number that the first one changed: a model
that does not expect a number writes it first and then little that makes sense.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from transformer.decoding import RETRY_NGRAM, Search
from transformer.pipelines.translation.assemble import Assembler, restore_originals
from transformer.pipelines.translation.checks import (
    CheckedLine,
    Checker,
    Problem,
    is_degenerate,
    longest_translation,
)
from transformer.pipelines.translation.config import TranslatorConfig
from transformer.pipelines.translation.results import Translation
from transformer.pipelines.translation.search import SearchedSegment, SegmentSearcher, group_by_line
from transformer.pipelines.translation.segment import SegmentedLine, Segmenter
from transformer.text.substitution import HIDING_ATTEMPTS, SubstitutedLine

RETRY_WITHOUT_PAIRS: Final = 2
"""Length of the n-grams that may not be repeated where a word was."""
_CHANGES: Final = (Problem.CHANGES_SPANS, Problem.CHANGES_NUMBERS)
ATTEMPTS: Final = 2
"""Number of choices of substitutes that a line is translated with, one after another until one is kept."""
CONFIDENT: Final = -0.8
"""Mean log-probability of a token above which the translation with a substitute suggests that another may be kept."""
RETRY_RATIO: Final = 1.5
"""Length of a second translation in usual lengths up to which its search goes on, unless the first one was longer."""


@dataclass(frozen=True)
class Attempt:
    """A second search for one line.

    Attributes:
        first: The line with its first translation.
        line: The line, or a text that stands for it, with the segments of the second translation.
        search: Options of the search.
        note: Flag of the translation if it is taken.
        known: Results of segments that need no second search, by their places.
        substituted: What stands for the numbers of the line; None if it is the line itself.
    """

    first: CheckedLine
    line: SegmentedLine
    search: Search
    note: str = ""
    known: dict[int, SearchedSegment] = field(default_factory=dict)
    substituted: SubstitutedLine | None = None


@dataclass(frozen=True)
class Retrier:
    """Tries lines with a problem once more, and keeps what is better.

    Attributes:
        config: Options of the call.
        segmenter: The first stage.
        searcher: The second stage.
        assembler: The third stage.
        checker: The fourth stage.
    """

    config: TranslatorConfig
    segmenter: Segmenter
    searcher: SegmentSearcher
    assembler: Assembler
    checker: Checker

    def retry(
        self, checked: Sequence[CheckedLine], on_ready: Callable[[Mapping[int, CheckedLine]], object] | None = None
    ) -> list[CheckedLine]:
        """Returns the lines with better translations where a second search found them.

        Args:
            checked: Lines with their translations, checked.
            on_ready: Function to call before the second search, if only some of the lines need one, with the others,
                by their places.
        """
        results, remaining = list(checked), [*range(len(checked))]
        for number in range(ATTEMPTS):
            attempts = {i: attempt for i in remaining if (attempt := self._attempt(checked[i], number))}
            if on_ready is not None and number == 0 and 0 < len(attempts) < len(checked):
                on_ready({i: line for i, line in enumerate(checked) if i not in attempts})
            searched = self._search([*attempts.values()])
            finished = self._finish([*attempts.values()], searched)
            remaining = []
            for (i, attempt), parts, second in zip(attempts.items(), searched, finished, strict=True):
                if second is not None and _is_better(second, checked[i]):
                    flags = (*second.translation.flags, *([attempt.note] if attempt.note else []))
                    results[i] = replace(second, translation=replace(second.translation, flags=flags))
                elif _may_try_others(attempt, parts):
                    remaining.append(i)
        return results

    def _attempt(self, checked: CheckedLine, number: int) -> Attempt | None:
        """Returns what is tried for the problem of a line; None if nothing is."""
        line, search = checked.line, self.config.search
        if checked.problem is Problem.DEGENERATE:
            limit = min(search.no_repeat_ngram or RETRY_NGRAM, RETRY_NGRAM)
            known = {i: part for i, part in enumerate(checked.searched) if not is_degenerate(part, search)}
            attempt = Attempt(checked, line, replace(search, no_repeat_ngram=limit), known=known)
        elif checked.problem is Problem.LACKS_SENTENCES:
            note = "the translation lacked sentences; translated sentence by sentence"
            attempt = Attempt(checked, self.segmenter.by_sentence(line), search, note)
        elif checked.problem is Problem.EMPTY:
            note = "the first translation was empty; searched again"
            attempt = Attempt(checked, line, replace(search, min_tokens=1), note)
        elif checked.problem is Problem.REPEATS_WORD:
            note = "the first translation repeated a word; searched again"
            attempt = Attempt(checked, line, replace(search, no_repeat_ngram=RETRY_WITHOUT_PAIRS), note)
        elif checked.problem is Problem.CHANGES_SPANS and line.hidden:
            attempt = Attempt(checked, self.segmenter.substituted(line, line.text, HIDING_ATTEMPTS - 1), search)
        elif checked.problem in _CHANGES:
            languages = self.config.source_language, self.config.target_language
            substituted = SubstitutedLine.of_numbers(line.text, checked.changes.missing, number, languages)
            if substituted is None:
                return None
            segmented = self.segmenter.substituted(line, substituted.text, number)
            attempt = Attempt(checked, segmented, search, substituted=substituted)
        else:
            return None
        return replace(attempt, line=self._limited(attempt.line, checked.searched))

    def _limited(self, line: SegmentedLine, first: Sequence[SearchedSegment]) -> SegmentedLine:
        """Limits the segments of a second search to the length of the first translation, or half again the usual one.

        The limit depends on the line alone, so that its translation does not depend on its neighbours.
        """
        search = self.config.search
        if search.max_tokens is not None:  # a limit of the caller's own, which may cut a translation
            return line
        n_source, n_target = sum(len(part.segment.tokens) for part in first), sum(part.best.length for part in first)
        ratio = max(n_target / max(n_source, 1), RETRY_RATIO * self.config.length_ratio)
        segments = (
            replace(segment, limit=min(segment.limit, max(longest_translation(segment, ratio), search.min_tokens) + 1))
            for segment in line.segments
        )
        return replace(line, segments=tuple(segments))

    def _search(self, attempts: Sequence[Attempt]) -> list[list[SearchedSegment]]:
        """Returns the segments of all attempts, searched for with others of the same options."""
        by_search: dict[Search, list[int]] = defaultdict(list)
        for number, attempt in enumerate(attempts):
            by_search[attempt.search].append(number)
        searched: dict[int, list[SearchedSegment]] = {}
        for search, numbers in by_search.items():
            asked = [
                [segment for i, segment in enumerate(attempts[n].line.segments) if i not in attempts[n].known]
                for n in numbers
            ]
            parts = self.searcher.search_again(
                [segment for segments in asked for segment in segments], self.config, search
            )
            for number, new in zip(numbers, group_by_line([*map(len, asked)], parts, len(asked)), strict=True):
                searched[number] = self._merge_segments(attempts[number], new)
        return [searched[number] for number in range(len(attempts))]

    def _merge_segments(self, attempt: Attempt, new: Sequence[SearchedSegment]) -> list[SearchedSegment]:
        """Returns the segments of an attempt, new and known ones; those that were degenerate before if they still are.

        The others of these are marked as `retried`.
        """
        remaining, search = iter(new), self.config.search
        merged = [attempt.known.get(i) or next(remaining) for i in range(len(attempt.line.segments))]
        if attempt.first.problem is not Problem.DEGENERATE:
            return merged
        return [
            old if is_degenerate(second, search) else second if second is old else replace(second, retried=True)
            for old, second in zip(attempt.first.searched, merged, strict=True)
        ]

    def _finish(
        self, attempts: Sequence[Attempt], searched: Sequence[Sequence[SearchedSegment]]
    ) -> list[CheckedLine | None]:
        """Checks attempts as translations of their lines; None if a substitute was lost, or nothing has changed."""
        changed = [
            number
            for number, (attempt, parts) in enumerate(zip(attempts, searched, strict=True))
            if attempt.first.problem is not Problem.DEGENERATE or any(part.retried for part in parts)
        ]
        lines, parts = [attempts[number].line for number in changed], [searched[number] for number in changed]
        finished: list[CheckedLine | None] = [None] * len(attempts)
        for number, line, translation in zip(changed, lines, self.assembler.assemble(lines, parts), strict=True):
            attempt, first = attempts[number], attempts[number].first
            restored = restore_if_complete(attempt.substituted, translation) if attempt.substituted else translation
            if restored is None:
                continue
            if first.problem in _CHANGES:
                line = replace(line, text=first.line.text, unseen=first.line.unseen, outer=first.line.outer)
                restored = restored.with_outer_space(line.text, *line.outer)
            (finished[number],) = self.checker.check([line], [searched[number]], [restored])
        return finished


def restore_if_complete(substituted: SubstitutedLine, translation: Translation) -> Translation | None:
    """Restores the originals in a translation; None unless its best text has each substitute once.

    Args:
        substituted: Line with substitutes.
        translation: Translation of it; alternatives that lost a substitute are dropped.
    """
    complete = tuple(other for other in translation.alternatives if substituted.is_complete(other.text))
    if not substituted.is_complete(translation.text):
        return None
    return restore_originals(substituted, replace(translation, alternatives=complete))


def _is_better(second: CheckedLine, first: CheckedLine) -> bool:
    """Whether a second translation has no problem, or a lesser one, or has lost fewer spans.

    Some segments of one that looped may loop less than before.
    """
    if first.problem is Problem.DEGENERATE:
        return any(segment.retried for segment in second.searched)
    if first.problem is second.problem is Problem.CHANGES_SPANS:
        return len(second.changes.missing) < len(first.changes.missing)
    return second.problem is None or (first.problem is not None and second.problem > first.problem)


def _may_try_others(attempt: Attempt, searched: Sequence[SearchedSegment]) -> bool:
    """Whether other substitutes may be kept: there is one, and the model finds the translation with it probable."""
    n_tokens, score = sum(part.best.length for part in searched), sum(part.best.score for part in searched)
    return attempt.substituted is not None and len(attempt.substituted.spans) == 1 and score > CONFIDENT * n_tokens
