"""What a translation must hold and must not hold, given its source: terms, placeholders, tags."""

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from transformer.errors import ConfigError, DataError
from transformer.pipelines.translation.inline_tags import TAG, TagFreeLine, without_tags

PATTERNS: Final[dict[str, str]] = {
    "urls": r"(?:https?://|www\.)[^\s<>\"']*[^\s<>\"'.,;:!?)\]}]|(?<![\w.+-])[\w.+-]++@[\w-]+(?:\.[\w-]+)+",
    "tags": TAG,
    "entities": r"&(?:\w+|#\w+);",
    "placeholders": r"\{\{[^{}]*\}\}|\$\{[^{}]*\}|\{[\w.:!-]*\}"
    r"|(?<!%)%(?:\d+\$|\([\w.]+\))?[-+#]?\d*(?:\.\d+)?[a-zA-Z@](?!\w)|%\w+%",
    "numbers": r"(?<![\w.,:/])\d++(?:[.,:/]\d++)*+(?!\w)",
}


@dataclass(frozen=True)
class Terminology:
    """Words and spans that a translation is bound to.

    Attributes:
        banned: never written as whole words, in this spelling; but within a protected span.
        glossary: source term and target term; where the first stands in a line as whole words, the second must stand
            in its translation as whole words.
        protected: kinds of spans of a line that must stand in its translation unchanged, as often as in the line:
            placeholders (`{name}`, `%s`, `${x}`), entities (`&amp;`), urls (and mail addresses), numbers; and tags
            (`<b>`), which are not translated but put back.
        normalize: what the target's tokenizer makes of a text before it reads it, e.g. lower case.

    Raises:
        ConfigError: an unknown kind.
        DataError: an empty phrase or term, or a term that holds a banned phrase.
    """

    banned: Sequence[str] = ()
    glossary: Sequence[tuple[str, str]] = ()
    protected: Sequence[str] = ()
    normalize: Callable[[str], str] = str

    def __post_init__(self) -> None:
        """Refuses what binds nothing."""
        for kind in self.protected:
            if kind not in PATTERNS:
                raise ConfigError(f"protected={kind!r} is unknown; choose of {', '.join(sorted(PATTERNS))}")
        for phrase in [*self.banned, *(term for pair in self.glossary for term in pair)]:
            if not phrase.strip():
                raise DataError("an empty phrase or term binds nothing; leave it out")
        for _, target in self.glossary:
            if held := [phrase for phrase in self.banned if _holds(target, phrase)]:
                raise DataError(f"the term {target!r} is required, but {held[0]!r} is banned; leave out one of the two")

    @property
    def binds(self) -> bool:
        """Whether there is anything in it."""
        return bool(self.banned or self.glossary or self.protected)

    @property
    def requires(self) -> bool:
        """Whether a translation may have to be searched for that holds something; tags are put back after it."""
        return bool(self.glossary or set(self.protected) - {"tags"})

    def terms(self, line: str) -> list[tuple[str, str]]:
        """The entries of the glossary whose source term stands in a line; a longer term hides those within it."""
        if self._terms is None:
            return []
        found = dict.fromkeys(match.group() for match in self._terms.finditer(line))
        return [(term, self._targets[term]) for term in found]

    def spans(self, line: str) -> list[str]:
        """The protected spans of a line, in order, as a translation writes them."""
        return [self.normalize(match.group()) for match in self._spans.finditer(line)] if self._spans else []

    def joined(self, line: str) -> set[str]:
        """The protected spans that follow a character other than a space, in the line or in what is made of it."""
        found = self._spans.finditer(line) if self._spans else ()
        return {self.normalize(match.group()) for match in found if line[: match.start()][-1:].strip()}

    def untagged(self, line: str) -> TagFreeLine:
        """A line without its tags, if tags are protected; none is to come back within a protected span or an entity."""
        return without_tags(line, self._whole) if "tags" in self.protected else TagFreeLine(line)

    def standing(self, text: str, *, parted: bool = False) -> Counter[str]:
        """The protected spans of a text, tags too, and how often each stands there.

        Args:
            text: a line, or its translation.
            parted: whether a span counts that has a tag within it.
        """
        untagged = self.untagged(text)
        spans = [match.span() for match in self._spans.finditer(untagged.text)] if self._spans else []
        whole = [
            self.normalize(untagged.text[start:end])
            for start, end in spans
            if parted or bisect_right(untagged.places, start) == bisect_left(untagged.places, end)
        ]
        return Counter([*untagged.tags, *whole])

    def required(self, line: str) -> dict[str, int]:
        """What the translation of a line must hold, and how often: a span as often as the line, a term once."""
        terms = Counter({target for _, target in self.terms(line)})
        return dict(Counter(self.spans(line)) | terms)

    def violations(self, line: str, translation: str) -> list[str]:
        """What a translation lacks, has too often, or must not hold; empty where all is well. Tags may be in both."""
        if not self.binds:
            return []
        lacks, text = self.standing(line, parted=True), self.untagged(translation).text
        lacks.subtract(self.standing(translation))
        found = [f"{span!r} is missing" for span, count in lacks.items() if count > 0]
        found += [f"{span!r} is not in the source so often" for span, count in lacks.items() if count < 0]
        found += [f"{term!r} is not translated by {target!r}" for term, target in self.terms(self.untagged(line).text)
                  if not _holds(text, target)]  # fmt: skip
        free = self._spans.sub(" ", text) if self._spans else text
        banned = [phrase for phrase in self.banned if _holds(free, self.normalize(phrase))]
        return found + [f"the banned {phrase!r} is written" for phrase in banned]

    @cached_property
    def _targets(self) -> dict[str, str]:
        return {source: self.normalize(target) for source, target in self.glossary}

    @cached_property
    def _terms(self) -> re.Pattern[str] | None:
        longest_first = sorted(self._targets, key=len, reverse=True)
        return re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first))})(?!\w)") if longest_first else None

    @cached_property
    def _whole(self) -> re.Pattern[str]:
        kinds = {*self.protected, "entities"} - {"tags"}
        return re.compile("|".join(pattern for kind, pattern in PATTERNS.items() if kind in kinds))

    @cached_property
    def _spans(self) -> re.Pattern[str] | None:
        chosen = [pattern for kind, pattern in PATTERNS.items() if kind in self.protected]
        return re.compile("|".join(chosen)) if chosen else None


@dataclass
class Tally:
    """How much of what was required stands.

    Attributes:
        terms: that had to stand.
        kept_terms: of them, those that do.
        spans: that had to stand.
        kept_spans: of them, those that do.
    """

    terms: int = 0
    kept_terms: int = 0
    spans: int = 0
    kept_spans: int = 0

    def add(self, lexicon: Terminology, line: str, translation: str) -> None:
        """Counts one line."""
        if not lexicon.binds:
            return
        terms, spans = lexicon.terms(lexicon.untagged(line).text), lexicon.standing(line, parted=True)
        text = lexicon.untagged(translation).text
        self.terms += len(terms)
        self.kept_terms += sum(_holds(text, target) for _, target in terms)
        self.spans += spans.total()
        self.kept_spans += (spans & lexicon.standing(translation)).total()

    def __str__(self) -> str:
        """One line for a reader."""
        terms, spans = f"{self.kept_terms:,} of {self.terms:,}", f"{self.kept_spans:,} of {self.spans:,}"
        return f"glossary: {terms} terms; protected: {spans} spans"


def _holds(text: str, phrase: str) -> bool:
    """Whether a phrase stands in a text as whole words: no letter or digit before its first or after its last one."""
    return re.search(rf"(?!(?<=\w)\w){re.escape(phrase)}(?!(?<=\w)\w)", text) is not None


def read_glossary(lines: Iterable[str], name: str) -> list[tuple[str, str]]:
    """Terms of a file: source term, tab, target term; empty lines and lines that begin with # are left out.

    Raises:
        DataError: a line is no pair, or says of a term what an earlier line says otherwise.
    """
    terms: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = [field.strip() for field in line.split("\t")]
        if len(fields) != 2 or not all(fields):
            raise DataError(f"{name}, line {number}: not a source term, a tab and a target term; correct the line")
        source, target = fields
        if terms.setdefault(source, target) != target:
            raise DataError(f"{name}, line {number}: {source!r} is {terms[source]!r} before; keep one of the two")
    return list(terms.items())
