"""Terminology: terms, placeholders and tags that a translation must contain or must not contain, given its source."""

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import regex

from transformer.errors import ConfigError, DataError
from transformer.pipelines.translation.inline_tags import TagFreeLine, strip_tags
from transformer.text.normalization import normalize_spaces
from transformer.text.spans import KEPT_KINDS, PATTERNS, is_plain, kept_pattern
from transformer.text.substitution import MARK

MIN_NEAR: Final = 3
"""Minimum number of letters of a source term whose other forms are named."""
_ENDINGS: Final = ("'s", "’s", "es", "s", "en", "n")
_PUNCTUATION: Final = ".,;:!?…()[]\"'„“”‚‘’«»"
_TAG_OR_MARK: Final = regex.compile(f"[<{MARK}]")


@dataclass(frozen=True)
class Terminology:
    """Constraints on the words and spans of translations.

    Attributes:
        banned: Phrases that must not occur as whole words, in this spelling, except within a protected span.
        glossary: Pairs of source term and target term. If the source term occurs in a line as whole words, the target
            term replaces the words of the translation that correspond to it. Kinds of white space and invisible
            characters make no difference in a source term.
        protected: Kinds of spans that must occur in the translation unchanged, as often as in the line, see
            `PATTERNS`; None for all but numbers. Tags (`<b>`) are removed before translation and restored after it, and
            words that the model copies stand for other spans.
        normalize: Normalization of the target tokenizer, e.g. to lower case.

    Raises:
        ConfigError: The kind of a protected span is unknown.
        DataError: A phrase or term is empty, or a target term contains a banned phrase.
    """

    banned: Sequence[str] = ()
    glossary: Sequence[tuple[str, str]] = ()
    protected: Sequence[str] | None = None
    normalize: Callable[[str], str] = str

    def __post_init__(self) -> None:
        """Validates the constraints."""
        for kind in self.kinds:
            if kind not in PATTERNS:
                raise ConfigError(f"protected={kind!r} is unknown; choose from {', '.join(sorted(PATTERNS))}")
        for phrase in [*self.banned, *(term for pair in self.glossary for term in pair)]:
            if not normalize_spaces(phrase):
                raise DataError("an empty phrase or term has no effect; leave it out")
        targets = [target for _, target in self.glossary]
        joined = "\n".join(targets)  # one search for each phrase, not one for each pair
        for phrase in self.banned:
            if _contains(joined, phrase) and (term := next((term for term in targets if _contains(term, phrase)), "")):
                raise DataError(f"the term {term!r} is required, but {phrase!r} is banned; leave out one of the two")

    @property
    def is_active(self) -> bool:
        """Whether there is any constraint beside the default."""
        return bool(self.banned or self.glossary or self.protected is not None)

    @property
    def kinds(self) -> Sequence[str]:
        """The kinds of spans that are kept."""
        return KEPT_KINDS if self.protected is None else self.protected

    def terms(self, line: str) -> list[tuple[str, str]]:
        """Returns the glossary entries whose source term occurs in a line; a longer term hides those within it."""
        if self._term_pattern is None:
            return []
        sources = dict.fromkeys(match.group() for match in self._term_pattern.finditer(normalize_spaces(line)))
        return [(source, self._targets[source]) for source in sources]

    def protected_spans(self, line: str) -> list[str]:
        """Returns the protected spans of a line, in order."""
        return [match.group() for match in self.span_pattern.finditer(line)]

    def tag_free(self, line: str) -> TagFreeLine:
        """Removes the tags of a line if tags are protected; they must not split protected spans or entities."""
        if not _TAG_OR_MARK.search(line):
            return TagFreeLine(line)
        return strip_tags(line, self._indivisible, has_tags="tags" in self.kinds)

    def count_spans(self, text: str, *, allow_split: bool = False) -> Counter[str]:
        """Counts the occurrences of each protected span of a text, including tags.

        Args:
            text: Line or translation.
            allow_split: Whether a span with a tag inside counts.
        """
        tag_free = self.tag_free(text)
        spans = [match.span() for match in self.span_pattern.finditer(tag_free.text)]
        counted = [
            tag_free.text[start:end]
            for start, end in spans
            if allow_split or bisect_right(tag_free.offsets, start) == bisect_left(tag_free.offsets, end)
        ]
        return Counter([*tag_free.tags, *counted])

    def near_terms(self, line: str) -> list[tuple[str, str]]:
        """Returns words of a line that differ from a source term in case or a short ending alone, with that term."""
        if not self.glossary:
            return []
        words = (self._term_pattern.sub(" ", normalize_spaces(line)) if self._term_pattern else line).split()
        near: dict[str, str] = {}
        for n_words in self._near_lengths:
            for start in range(len(words) - n_words + 1):
                phrase = " ".join(words[start : start + n_words]).strip(_PUNCTUATION)
                endings = (*_ENDINGS, "e") if phrase[:1].isupper() else _ENDINGS  # Hunde, but not care
                stems = (phrase.casefold(), *(phrase.casefold().removesuffix(ending) for ending in endings))
                if source := next((self._near[stem] for stem in stems if stem in self._near), ""):
                    near[phrase] = source
        return list(near.items())

    @cached_property
    def _near(self) -> dict[str, str]:
        return {source.casefold(): source for source in self._targets if len(source) >= MIN_NEAR}

    @cached_property
    def _near_lengths(self) -> list[int]:
        return sorted({source.count(" ") + 1 for source in self._near})

    def may_have_spans(self, text: str) -> bool:
        """Whether a text may have protected spans, at first sight."""
        return bool(self.kinds) and not is_plain(text)

    def changed_spans(self, line: str, translation: str) -> tuple[Sequence[str], Sequence[str]]:
        """Returns the protected spans that a translation lacks, and those that it adds.

        Args:
            line: Source line, with tags.
            translation: Translation, with tags.
        """
        if not self.may_have_spans(line) and not self.may_have_spans(translation):
            return (), ()
        counts = self.count_spans(line, allow_split=True)
        counts.subtract(self.count_spans(translation))
        return [*(counts).elements()], [*(-counts).elements()]

    def violations(self, line: str, translation: str) -> list[str]:
        """Describes the terms that a translation lacks and the phrases that it must not contain; empty if nothing.

        Args:
            line: Source line, with tags.
            translation: Translation, with tags.
        """
        if not self.glossary and not self.banned:
            return []
        text = self.tag_free(translation).text
        problems = [
            f"{term!r} is not translated as {target!r}"
            for term, target in self.terms(self.tag_free(line).text)
            if not _contains(text, target)
        ]
        problems += [
            f"{phrase!r} is not a term, but {source!r} is"
            for phrase, source in self.near_terms(self.tag_free(line).text)
        ]
        unprotected = self.span_pattern.sub(" ", text)
        banned = [phrase for phrase in self.banned if _contains(unprotected, self.normalize(phrase))]
        return problems + [f"the banned phrase {phrase!r} occurs" for phrase in banned]

    @cached_property
    def _targets(self) -> dict[str, str]:
        return {normalize_spaces(source): self.normalize(target) for source, target in self.glossary}

    @cached_property
    def _term_pattern(self) -> re.Pattern[str] | None:
        longest_first = sorted(self._targets, key=len, reverse=True)
        return re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first))})(?!\w)") if longest_first else None

    @cached_property
    def _indivisible(self) -> regex.Pattern[str]:
        """Spans that tags must not split: protected ones, and entities."""
        kinds = {*self.kinds, "entities"} - {"tags"}
        return regex.compile("|".join(pattern for kind, pattern in PATTERNS.items() if kind in kinds))

    @cached_property
    def span_pattern(self) -> regex.Pattern[str]:
        """Pattern of the protected spans."""
        return kept_pattern(self.kinds)


@dataclass
class TerminologyCounts:
    """Numbers of required and satisfied constraints over many lines.

    Attributes:
        terms: Number of required terms.
        terms_in_place: Number of terms that occur for words of the source.
        spans: Number of required spans.
        satisfied_spans: Number of required spans that occur.
    """

    terms: int = 0
    terms_in_place: int = 0
    spans: int = 0
    satisfied_spans: int = 0

    def add(self, terminology: Terminology, line: str, translation: str, flags: Sequence[str] = ()) -> None:
        """Adds the counts of a line; terms that a flag says to stand beside other words are not in place."""
        if not terminology.is_active:
            return
        terms = terminology.terms(terminology.tag_free(line).text)
        spans = terminology.count_spans(line, allow_split=True)
        text = terminology.tag_free(translation).text
        self.terms += len(terms)
        self.terms_in_place += sum(
            _contains(text, target) and beside_flag(source, target) not in flags for source, target in terms
        )
        self.spans += spans.total()
        self.satisfied_spans += (spans & terminology.count_spans(translation)).total()

    def __str__(self) -> str:
        """Returns a summary on one line."""
        terms, spans = f"{self.terms_in_place:,} of {self.terms:,}", f"{self.satisfied_spans:,} of {self.spans:,}"
        return f"glossary: {terms} terms in place; protected: {spans} spans"


def beside_flag(source: str, target: str) -> str:
    """Returns the flag of a term that no word of the translation was replaced by."""
    return f"no word corresponds to {source!r}; {target!r} stands beside others"


def _contains(text: str, phrase: str) -> bool:
    """Whether a phrase occurs in a text as whole words: its first and last word are not parts of longer words."""
    return phrase in text and re.search(rf"(?!(?<=\w)\w){re.escape(phrase)}(?!(?<=\w)\w)", text) is not None


def read_glossary(lines: Iterable[str], name: str) -> list[tuple[str, str]]:
    """Reads terms, one per line: source term, tab, target term. Empty lines and lines that begin with # are skipped.

    Args:
        lines: Lines of the file.
        name: Name of the file, for error messages.

    Raises:
        DataError: A line is not a pair, or contradicts an earlier line.
    """
    filled = ((number, line) for number, line in enumerate(lines, start=1) if line.strip())
    return glossary_terms(((number, line.split("\t")) for number, line in filled), name)


def glossary_terms(rows: Iterable[tuple[int, list[str]]], name: str) -> list[tuple[str, str]]:
    """Returns the terms of numbered rows, see `read_glossary`."""
    terms: dict[str, str] = {}
    for number, row in rows:
        if row[0].startswith("#"):
            continue
        fields = [field.strip() for field in row]
        if len(fields) != 2 or not all(fields):
            raise DataError(
                f"{name}, line {number}: expected a source term, a tab and a target term (in a .csv, a comma); correct "
                "the line"
            )
        source, target = normalize_spaces(fields[0]), fields[1]
        if terms.setdefault(source, target) != target:
            raise DataError(
                f"{name}, line {number}: {source!r} is translated as {terms[source]!r} in an earlier line; keep one of "
                "the two"
            )
    return list(terms.items())
