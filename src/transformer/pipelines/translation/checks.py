"""The fourth stage of a translation: checks that only report what is wrong with it, or what its reader should know."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from typing import Final

from transformer.decoding import RETRY_NGRAM, Search, repeats_itself
from transformer.pipelines.translation.config import TranslatorConfig
from transformer.pipelines.translation.results import UNSEEN, Translation
from transformer.pipelines.translation.search import SearchedSegment
from transformer.pipelines.translation.segment import Segment, SegmentedLine
from transformer.text.markup import TAG
from transformer.text.sentences import count_sentences, has_letter
from transformer.text.span_changes import NO_CHANGES, SpanChanges, compare_spans
from transformer.text.spans import is_plain
from transformer.tokenizers.pair import TokenizerPair

LONG_RATIO: Final = 4
LONG_EXTRA: Final = 5
"""A translation of more than LONG_RATIO x source + LONG_EXTRA tokens is too long; such pairs are not trained on."""
MISSING_PART: Final = 0.5
"""Part of a sentence of mean length by which a translation that lacks sentences must be too short."""
MAX_NAMED: Final = 8
"""Maximum number of characters that a flag names."""
_REPEATS: Final = 3
"""Number of times in a row that a word of a translation may not occur, unless one of the source does."""
_WORD: Final = re.compile(r"\w+")


class Problem(IntEnum):
    """Problem of a translation that a second search may solve; the worst comes first."""

    DEGENERATE = 0
    """It was cut at the default limit, is far too long, or repeats itself unlike its source."""
    LACKS_SENTENCES = 1
    """It has fewer sentences than its source, and is shorter accordingly."""
    EMPTY = 2
    """It is empty, although the source has letters."""
    REPEATS_WORD = 3
    """A word occurs three times in a row, unlike any word of the source."""
    CHANGES_SPANS = 4
    """A protected span or an address of the source is missing, or one was invented."""
    CHANGES_NUMBERS = 5
    """A number of the source is missing, or one was invented."""


@dataclass(frozen=True)
class CheckedLine:
    """A line with its translation and what the checks found.

    Attributes:
        line: The line.
        searched: Its segments with their translations.
        translation: Its translation, with a flag for each finding.
        problem: The worst problem that a second search may solve; None if there is none.
        changes: Numbers and addresses that the translation changed.
    """

    line: SegmentedLine
    searched: Sequence[SearchedSegment]
    translation: Translation
    problem: Problem | None = None
    changes: SpanChanges = NO_CHANGES


@dataclass(frozen=True)
class Checker:
    """Checks translations; changes nothing but their flags.

    Attributes:
        config: Options of the call.
        tokenizers: Tokenizers of both sides.
    """

    config: TranslatorConfig
    tokenizers: TokenizerPair

    def check(
        self,
        lines: Sequence[SegmentedLine],
        searched: Sequence[Sequence[SearchedSegment]],
        translations: Sequence[Translation],
    ) -> list[CheckedLine]:
        """Returns the lines with their translations, flagged, and with the worst problem of each.

        Args:
            lines: Lines.
            searched: Segments of each line, with their translations.
            translations: Translation of each line.
        """
        return [self._check(*triple) for triple in zip(lines, searched, translations, strict=True)]

    def _check(self, line: SegmentedLine, searched: Sequence[SearchedSegment], translation: Translation) -> CheckedLine:
        if line.is_copied:
            too_long = (f"{line.too_long}; copied untranslated",) if line.too_long else ()
            has_code = self.tokenizers.source.language_prefix(line.text)
            flags = (*too_long, *(self._language_warnings(line) if has_code else ()))
            return CheckedLine(line, searched, replace(translation, flags=flags))
        is_compared = self._compares and bool(line.segments) and not line.prefix
        changes = self._compare_spans(line, translation, is_compared=is_compared)
        has_degenerate = any(is_degenerate(segment, self.config.search) for segment in searched)
        flags = (
            *self._language_warnings(line),
            *self._splitting_warnings(line),
            *(self._sentence_warnings(line, searched) if is_compared else ()),
            *quality_warnings(searched, self.config.search, has_degenerate=has_degenerate),
            *self._prefix_warnings(line),
            *translation.flags,
            *self.config.terminology.violations(line.text, translation.text),
            *([unseen_flag(line.unseen)] if line.unseen else []),
            *([changes.flag] if changes else []),
        )
        if self.config.search.retry_degenerate and has_degenerate:
            problem = Problem.DEGENERATE
        elif self.config.split == "auto" and not self.config.task and self._lacks_sentences(line, searched):
            problem = Problem.LACKS_SENTENCES
        else:
            problem = self._lesser_problem(line, translation, changes) if is_compared else None
        if flags:
            translation = replace(translation, flags=flags, unseen=line.unseen)
        return CheckedLine(line, searched, translation, problem, changes)

    @cached_property
    def _compares(self) -> bool:
        """Whether translations must resemble their lines; the output of a task need not, nor one after a prefix."""
        is_task = bool(self.config.task) or self.tokenizers.source.reads_special_tokens
        return self.config.search.retry_degenerate and not is_task

    def _lesser_problem(self, line: SegmentedLine, translation: Translation, changes: SpanChanges) -> Problem | None:
        """Returns the problem of a translation that ends, and has all sentences."""
        if not translation.text.strip() and has_letter(line.text):
            return Problem.EMPTY
        if repeats_word(line.text, translation.text):
            return Problem.REPEATS_WORD
        if not changes:
            return None
        n_changed = len(changes.missing) + len(changes.invented)
        return Problem.CHANGES_SPANS if n_changed > len(changes.numbers) else Problem.CHANGES_NUMBERS

    def _compare_spans(self, line: SegmentedLine, translation: Translation, *, is_compared: bool) -> SpanChanges:
        """Returns the protected spans and the numbers that a translation changes."""
        text = line.without_outer(translation.text)
        if is_plain(line.text) and is_plain(text):
            return NO_CHANGES
        terminology = self.config.terminology
        kept = terminology.changed_spans(line.text, text)
        if not is_compared or "numbers" in terminology.kinds:
            return SpanChanges(*map(tuple, kept))
        languages = self.config.source_language, self.config.target_language
        with_addresses = "urls" not in terminology.kinds
        other = compare_spans(line.text, text, languages, with_addresses=with_addresses)
        return SpanChanges((*kept[0], *other.missing), (*kept[1], *other.invented), other.numbers)

    def _lacks_sentences(
        self, line: SegmentedLine, searched: Sequence[SearchedSegment], missing: float = MISSING_PART
    ) -> bool:
        """Whether the translation of a segment seems to lack sentences of its source, see `lacks_sentences`."""
        config, target = self.config, self.tokenizers.target
        for text, segment in zip(line.split.pieces, searched, strict=True):
            n_tokens = len(segment.segment.tokens), segment.best.length
            if n_tokens[1] >= config.length_ratio * n_tokens[0]:
                continue  # it is not shorter than others
            n_sentences = count_sentences(text, config.source_language)
            if n_sentences < 2:
                continue
            translation = target.decode(segment.best.tokens)
            n_translated = count_sentences(translation, config.target_language)
            if lacks_sentences((n_sentences, n_translated), n_tokens, config.length_ratio, missing):
                return True
        return False

    def _language_warnings(self, line: SegmentedLine) -> list[str]:
        """Returns warnings about a missing or unknown language code, and about special tokens that are not read."""
        text = self.config.task * bool(line.text.strip()) + line.text
        source = self.tokenizers.source
        return [*filter(None, (source.language_warning(text), source.special_token_warning(line.text)))]

    def _splitting_warnings(self, line: SegmentedLine) -> list[str]:
        """Returns warnings about a line that was split."""
        limit = self.config.max_source_tokens
        flags: list[str] = []
        if not line.split.is_clean:
            flags.append(f"longer than {limit} tokens without a sentence end; cut within a sentence")
        if len(line.segments) > 1 and not self.config.task and self.tokenizers.source.kind == "published":
            flags.append(f"longer than {limit} tokens; a prefix for the model only precedes its first part")
        return flags

    def _sentence_warnings(self, line: SegmentedLine, searched: Sequence[SearchedSegment]) -> list[str]:
        """Returns a warning about missing sentences of a line that is not split; otherwise it is tried again."""
        if self.config.split != "none" or not self._lacks_sentences(line, searched, 0.0):
            return []
        return ["the translation seems to lack sentences; --split auto translates them one by one"]

    def _prefix_warnings(self, line: SegmentedLine) -> list[str]:
        """Returns warnings about a requested prefix that was cut."""
        flags: list[str] = []
        prefixed = [segment for segment in line.segments if segment.prefix]
        if any(len(segment.prefix) >= segment.limit for segment in prefixed):
            flags.append("the requested prefix is longer than the model's limit; it was cut")
        if any(self.tokenizers.target.special_tokens.unk in segment.prefix for segment in prefixed):
            flags.append("the requested prefix has characters outside the vocabulary; it was cut before them")
        return flags


def quality_warnings(searched: Sequence[SearchedSegment], search: Search, *, has_degenerate: bool) -> list[str]:
    """Returns warnings about the best translations of the segments of a line.

    Args:
        searched: Segments with their translations.
        search: Options of the search.
        has_degenerate: Whether one of the translations is degenerate.
    """
    flags: list[str] = []
    if not all(segment.best.finished for segment in searched):
        flags.append("the translation did not end and was cut at the limit")
    elif has_degenerate and any(is_long(segment, search) for segment in searched):
        flags.append("the translation is far longer than its source")
    elif has_degenerate:
        flags.append("the translation repeats itself")
    if any(segment.retried for segment in searched):
        flags.append(
            f"the first translation looped or did not end; searched again without repeated {RETRY_NGRAM}-grams"
        )
    return flags


def is_degenerate(searched: SearchedSegment, search: Search) -> bool:
    """Whether a translation was cut at the default limit, is far too long, or repeats itself unlike its source."""
    is_cut = not searched.best.finished and search.max_tokens is None
    loops = repeats_itself(searched.best.tokens) and not repeats_itself(searched.segment.tokens)
    return is_cut or loops or is_long(searched, search)


def is_long(searched: SearchedSegment, search: Search) -> bool:
    """Whether a translation is longer than in any training pair."""
    return len(searched.best.tokens) > max(longest_translation(searched.segment, LONG_RATIO), search.min_tokens)


def longest_translation(segment: Segment, ratio: float) -> int:
    """Returns the number of tokens of the longest translation that is expected of a segment.

    Args:
        segment: Segment; its prefix is added.
        ratio: Target tokens per source token, with LONG_EXTRA additional ones allowed.
    """
    return int(ratio * len(segment.tokens)) + LONG_EXTRA + len(segment.prefix)


def lacks_sentences(
    n_sentences: tuple[int, int], n_tokens: tuple[int, int], length_ratio: float, missing: float = MISSING_PART
) -> bool:
    """Whether a translation seems to lack sentences: it has fewer than its source, and is shorter accordingly.

    A translation of all sentences may have fewer, because it joins some, or because its script does not mark their
    ends; then it is not shorter than others.

    Args:
        n_sentences: Number of sentences of the source and of the translation.
        n_tokens: Number of tokens of both.
        length_ratio: Mean number of target tokens per source token in the training text.
        missing: Part of a sentence of mean length by which the translation must be too short.
    """
    if n_sentences[1] >= n_sentences[0]:
        return False
    return n_tokens[1] < length_ratio * n_tokens[0] * (n_sentences[0] - missing) / n_sentences[0]


def repeats_word(line: str, translation: str) -> bool:
    """Whether a word of a translation occurs three times in a row, unlike any word of its line."""
    return _max_repeats(translation) >= _REPEATS > _max_repeats(line)


def _max_repeats(text: str) -> int:
    """Returns the largest number of times that a word of letters occurs in a row; 0 if no word occurs so often."""
    words = _WORD.findall((TAG.sub(" ", text) if "<" in text else text).casefold())
    if len(words) - len(set(words)) < _REPEATS - 1:
        return 0
    longest = run = 0
    before = ""
    for word in words:
        run = run + 1 if word == before else 1
        longest, before = max(longest, run if word.isalpha() else 0), word
    return longest


def unseen_flag(characters: tuple[str, ...]) -> str:
    """Returns the flag that names unseen characters."""
    more = f" and {len(characters) - MAX_NAMED} more" if len(characters) > MAX_NAMED else ""
    return UNSEEN + ", ".join(map(repr, characters[:MAX_NAMED])) + more
