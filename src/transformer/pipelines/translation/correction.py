"""Correction: lines whose translations are empty, repeat a word, or change a number or an address, translated again."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Final

from transformer.pipelines.translation.config import TranslatorConfig
from transformer.pipelines.translation.constraints import ConstraintTokenizer
from transformer.pipelines.translation.fidelity import (
    ATTEMPTS,
    MAX_SPANS,
    SubstitutedLine,
    changed_spans,
    count_spans,
    repeats_word,
)
from transformer.pipelines.translation.results import Translation
from transformer.pipelines.translation.segment_search import SearchedSegment, SegmentSearcher
from transformer.pipelines.translation.segmentation import SEEDS_PER_LINE, SegmentedLine, Segmenter
from transformer.pipelines.translation.unseen import UNSEEN, unseen_flag
from transformer.text.sentences import has_letter

RETRY_WITHOUT_PAIRS: Final = 2
"""Length of the n-grams that may not be repeated where a word was."""
REQUIRING_BEAM: Final = 8
"""Beam size of a second search that must write the only number or address of a line. More of them take too long."""
SPANS: Final = ("numbers", "urls")
"""Kinds of spans that a translation must not change."""
Assemble = Callable[[Sequence[SegmentedLine], Sequence[list[SearchedSegment]]], list[Translation]]
"""Joins the translations of the segments of lines."""


@dataclass(frozen=True)
class Corrector:
    """Translates lines again whose translations cannot be right, and keeps what is better.

    Attributes:
        config: Completed options of the translator.
        segmenter: Splits lines into segments.
        searcher: Searches for the translations of segments.
        assemble: Joins the translations of segments to translations of lines.
        can_require: Whether the search can be required to write phrases; a shortlist may lack their tokens.
    """

    config: TranslatorConfig
    segmenter: Segmenter
    searcher: SegmentSearcher
    assemble: Assemble
    can_require: bool = True

    def correct(self, lines: Sequence[SegmentedLine], translations: Sequence[Translation]) -> list[Translation]:
        """Returns the translations, with better ones where possible, and with flags where something is wrong.

        Nothing is done for a task, whose output need not have the numbers of its input, or without
        `Search.retry_degenerate`.

        Args:
            lines: Lines with their segments.
            translations: Their translations, in order.
        """
        config, corrected = self.config, list(translations)
        if not config.search.retry_degenerate or config.task:
            return corrected
        translated = [i for i, line in enumerate(lines) if line.segments and not line.prefix]
        empty = [i for i in translated if not corrected[i].text.strip() and has_letter(lines[i].text)]
        self._search_again(lines, corrected, empty, "the first translation was empty", min_tokens=1)
        repeating = [i for i in translated if repeats_word(lines[i].text, corrected[i].text)]
        self._search_again(
            lines, corrected, repeating, "the first translation repeated a word", no_repeat_ngram=RETRY_WITHOUT_PAIRS
        )
        if not config.terminology.requires_phrases:
            self._keep_spans(lines, corrected, translated)
        return corrected

    def _search_again(
        self, lines: Sequence[SegmentedLine], corrected: list[Translation], chosen: list[int], flag: str, **search: int
    ) -> None:
        """Searches again with other options; a translation that is empty or repeats a word is not taken."""
        again = self._translate([lines[i] for i in chosen], **search)
        for i, translation in zip(chosen, again, strict=True):
            if translation.text.strip() and not repeats_word(lines[i].text, translation.text):
                corrected[i] = replace(translation, flags=(*translation.flags, f"{flag}; searched again"))

    def _keep_spans(
        self, lines: Sequence[SegmentedLine], corrected: list[Translation], translated: Sequence[int]
    ) -> None:
        """Translates lines again whose translations change a number or an address: first with substitutes for them.

        Where no substitute survives, the numbers and addresses are required of the translation, which then tends to be
        less fluent. A line with more than `MAX_SPANS` of them would take long, and is only reported.
        """
        changed = {i: spans for i in translated if (spans := changed_spans(lines[i].text, corrected[i].text))}
        attempts = [
            (i, attempt)
            for i, spans in changed.items()
            for number in range(ATTEMPTS)
            if (attempt := SubstitutedLine.of(lines[i].text, spans, number))
        ]
        again = self._translate([self._segment(self.segmenter, text.text, lines[i]) for i, text in attempts])
        for (i, attempt), translation in zip(attempts, again, strict=True):
            restored = attempt.restore(translation) if i in changed else None
            if restored is not None and not changed_spans(lines[i].text, restored.text):
                flag = f"the first translation changed {_listed(changed.pop(i))}; translated with other numbers instead"
                corrected[i] = _corrected(lines[i], restored, flag)
        if self.can_require and not (self.config.search.sampling or self.config.search.groups > 1):
            self._require_spans(lines, corrected, changed, self.config.search.beam, MAX_SPANS)
            if self.config.search.beam < REQUIRING_BEAM:
                self._require_spans(lines, corrected, changed, REQUIRING_BEAM, 1)
        for i, spans in changed.items():
            corrected[i] = replace(
                corrected[i], flags=(*corrected[i].flags, f"the translation changes {_listed(spans)}")
            )

    def _require_spans(
        self,
        lines: Sequence[SegmentedLine],
        corrected: list[Translation],
        changed: dict[int, list[str]],
        beam: int,
        max_spans: int,
    ) -> None:
        """Translates lines with at most `max_spans` numbers and addresses again, and requires these.

        Removes the lines from `changed` that succeed.
        """
        few = [i for i in changed if count_spans(lines[i].text) <= max_spans]
        again = self._translate([self._segment(self._requiring, lines[i].text, lines[i]) for i in few], beam=beam)
        for i, translation in zip(few, again, strict=True):
            if not changed_spans(lines[i].text, translation.text):
                first = f"the first translation changed {_listed(changed.pop(i))}"
                corrected[i] = _corrected(lines[i], translation, f"{first}; searched again with the original required")

    @cached_property
    def _requiring(self) -> Segmenter:
        """A segmenter whose segments require numbers and addresses."""
        terminology = replace(self.config.terminology, protected=(*self.config.terminology.protected, *SPANS))
        constraints = ConstraintTokenizer(self.segmenter.tokenizers.target, terminology)
        return replace(self.segmenter, constraint_tokenizer=constraints)

    @staticmethod
    def _segment(segmenter: Segmenter, text: str, line: SegmentedLine) -> SegmentedLine:
        """Returns the segments of a text that stands for a line, with the same random streams."""
        return segmenter.segment([text], None, line.segments[0].number // SEEDS_PER_LINE)[0]

    def _translate(self, lines: Sequence[SegmentedLine], **search: int) -> list[Translation]:
        """Returns the translations of lines, searched for with other options."""
        if not lines:
            return []
        segments = [segment for line in lines for segment in line.segments]
        searched = iter(self.searcher.search_again(segments, **search) if segments else ())
        return self.assemble(lines, [[*islice(searched, len(line.segments))] for line in lines])


def _corrected(line: SegmentedLine, translation: Translation, flag: str) -> Translation:
    """Returns the translation of a text that stands for a line with the line's outer white space and flags."""
    unseen = [unseen_flag(line.unseen)] if line.unseen else []
    others = (other for other in translation.flags if not other.startswith(UNSEEN))
    corrected = replace(translation, flags=(*others, *unseen, flag), unseen=line.unseen)
    return corrected.with_outer_space(line.text, *line.outer)


def _listed(spans: Sequence[str]) -> str:
    return f"{', '.join(map(repr, spans)):.100}"
