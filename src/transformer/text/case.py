"""Letter case: words in capitals and in Title Case, their ordinary case (truecasing), and the way back."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import regex

from transformer.text.languages import base_language
from transformer.text.sentences import Span

LetterCase = Literal["capitals", "title"]
ALL_CASES: Final[tuple[LetterCase, ...]] = ("capitals", "title")
_Kind = Literal["capitals", "title", "lower", "letter", "mixed", "kept"]
Cost = Callable[[str], tuple[int, int]]
"""Number of tokens of a word in a vocabulary, and a rank that is lower for more frequent tokens."""

MAX_ACRONYM: Final = 5
"""Maximum number of capitals of a word that may be an acronym."""
MAX_UNKNOWN: Final = 3
"""Maximum number of capitals of a word of several tokens that is rather an acronym, such as USA, than a word."""
MAX_SMALL: Final = 3
"""Maximum number of letters of a word that Title Case may leave in lower case."""
MIN_TITLE: Final = 3
"""Minimum number of words with a capital of a line in Title Case; 5 if other words are in lower case."""
MIN_TITLE_WITH_SMALL: Final = 5
SHARE: Final = 0.5
"""Minimum share of the words with a capital that would have none in a sentence, for Title Case."""
ADVANTAGE: Final = 2
"""Factor by which the tokens of a form with a capital must be more frequent than those in lower case.

With 2, 99.3 % of the words of 3,000 English sentences of Tatoeba in capitals get their case back, and 94 % of the
German ones.
"""
NOUNS_WITH_CAPITALS: Final = frozenset({"de", "lb"})
"""Languages that write nouns with a capital."""
_DOTTED: Final = frozenset({"az", "tr"})
"""Languages that write I and ı, İ and i."""
_WORD: Final = regex.compile(r"\p{L}[\p{L}\p{M}]*+(?:['’]\p{L}[\p{L}\p{M}]*+)*+")
_CASED: Final = regex.compile(r"[\p{Lu}\p{Ll}\p{Lt}]")
_CAPITALS: Final = regex.compile(r"\p{Lu}\p{M}*['’-]?\p{Lu}")
_LONG_LOWER: Final = regex.compile(rf"(?<![\p{{L}}\p{{M}}\p{{N}}'’-])\p{{Ll}}[\p{{L}}\p{{M}}]{{{MAX_SMALL},}}")
_SENTENCE_END: Final = regex.compile(r"[.!?…][\p{Pe}\p{Pf}\"'’”]*+\Z")
_NO_SPACE: Final = regex.compile(r"\S+")
_PRONOUN: Final = regex.compile(r"I(?:['’]|\Z)")
_POLITE: Final = regex.compile(r"Sie|Ihnen|Ihr(?:e[mnrs]?)?")
_ONLY_SIGNS: Final = regex.compile(r"[^\p{L}\p{N}]*+")


@dataclass(frozen=True)
class CaseRun:
    """Consecutive words, separated by white space, in capitals or in Title Case.

    Attributes:
        case: Case of the words.
        start: Number of words before it.
        end: Number of words up to its end.
        is_whole: Whether the line has no other words with letters of either case.
        has_small: Whether short words in it are in lower case, as in English titles.
    """

    case: LetterCase
    start: int
    end: int
    is_whole: bool = False
    has_small: bool = False


@dataclass(frozen=True)
class Truecased:
    """A text in ordinary case.

    Attributes:
        text: The text; it has the words of the original one.
        runs: Words that were changed, as they were.
        kept: Words that stayed as they are, such as iPhone.
    """

    text: str
    runs: tuple[CaseRun, ...] = ()
    kept: frozenset[str] = frozenset()


def line_case(line: str) -> LetterCase | None:
    """Returns the case of the words of a line; None for that of sentences, and if there are fewer than three words."""
    if _LONG_LOWER.search(line):
        return None
    words = [match[0] for match in _WORD.finditer(line) if _CASED.search(match[0])]
    if len(words) < MIN_TITLE:
        return None
    if line.replace("ß", "").isupper():
        return "capitals"
    is_title = all(word[0] != word[0].lower() for word in words) and not any(map(_is_mixed, words))
    return "title" if is_title else None


def to_capitals(text: str, language: str = "") -> str:
    """Returns a text in capitals, with SS for ß."""
    return (text.replace("i", "İ") if base_language(language) in _DOTTED else text).upper()


def to_lower(text: str, language: str = "") -> str:
    """Returns a text in lower case."""
    text = text.replace("I", "ı") if base_language(language) in _DOTTED else text
    return text.replace("İ", "i").lower()  # "İ".lower() has two characters


def to_title(text: str, language: str = "") -> str:
    """Returns a text whose first letter is a capital."""
    return to_capitals(text[:1], language) + text[1:]


def may_be_changed(text: str) -> bool:
    """Whether a text may have words in capitals or be in Title Case, at first sight."""
    if text[1:].islower():
        return False
    n_capitals = sum(map(str.isupper, text))
    return n_capitals > 1 and (_CAPITALS.search(text) is not None or not _LONG_LOWER.search(text))


class Truecaser:
    """Finds words in capitals and in Title Case, and writes them in the case that a vocabulary suggests (truecasing).

    A form of a word is likely if it has few tokens: `Tom` and `Zug` are single tokens of a model that has seen these
    words, `zug` is not. The first word of a sentence gets a capital.

    Args:
        cost: Cost of a form of a word in the vocabulary.
        language: Language of the text.
    """

    def __init__(self, cost: Cost, language: str = "") -> None:
        self._cost, self._language = cost, language
        self._has_nouns = base_language(language) in NOUNS_WITH_CAPITALS

    def truecase(self, text: str, cases: Collection[LetterCase], kept: Sequence[Span] = ()) -> Truecased:
        """Returns a text in ordinary case. Only words in capitals, and those of a line in Title Case, change.

        Args:
            text: Text of a line.
            cases: Cases that are changed.
            kept: Spans of characters that stay as they are, such as addresses.
        """
        words = [_Word.of(text, match.span(), kept) for match in _NO_SPACE.finditer(text)]
        runs = [run for run in self._runs(words) if run.case in cases]
        if not runs:
            return Truecased(text)
        first = next(number for number, word in enumerate(words) if not _ONLY_SIGNS.fullmatch(word.text))
        parts, done = [], 0
        for number in (number for run in runs for number in range(run.start, run.end)):
            word = words[number]
            begins = number <= first or _SENTENCE_END.search(words[number - 1].text) is not None
            for start, part in word.parts if word.kind in {"capitals", "title", "letter"} else ():
                form = self._best(part)
                parts += [text[done:start], to_title(form, self._language) if begins else form]
                begins, done = False, start + len(part)
        mixed = frozenset(word.text for word in words if word.kind in {"mixed", "kept"} and _CASED.search(word.text))
        return Truecased("".join((*parts, text[done:])), tuple(runs), mixed)

    def _runs(self, words: Sequence["_Word"]) -> Iterator[CaseRun]:
        """Yields the runs of words that are changed, in order."""
        cased = [number for number, word in enumerate(words) if word.kind not in {"kept", "mixed"}]
        kinds = {words[number].kind for number in cased}
        if kinds <= {"capitals", "letter"}:
            if "capitals" in kinds and (len(cased) > 1 or not self._may_be_acronym(words[cased[0]].letters)):
                yield CaseRun("capitals", cased[0], cased[-1] + 1, is_whole=True)
        elif self._is_title([words[number] for number in cased]):
            yield CaseRun("title", cased[0], cased[-1] + 1, is_whole=True, has_small="lower" in kinds)
        else:
            yield from self._inner_runs(words)

    def _inner_runs(self, words: Sequence["_Word"]) -> Iterator[CaseRun]:
        """Yields the runs of capitals within a line of another case; acronyms and unknown names are none."""
        start = 0
        while start < len(words):
            end = start + 1
            if words[start].kind == "capitals":
                while end < len(words) and words[end].kind in {"capitals", "letter"}:
                    end += 1
                inside = [word.letters for word in words[start:end] if word.kind == "capitals"]
                if (len(inside) > 1 or len(inside[0]) > MAX_ACRONYM) and not all(map(self._may_be_acronym, inside)):
                    yield CaseRun("capitals", start, end)
            start = end

    def _may_be_acronym(self, word: str) -> bool:
        """Whether the vocabulary does not know a word in capitals in another case."""
        best = self._best(word)
        return best == word or self._cost(best)[0] > 1

    def _is_title(self, words: Sequence["_Word"]) -> bool:
        """Whether words are in Title Case: most of those with a capital would have none in a sentence."""
        titles = [word.letters for word in words[1:] if word.kind == "title"]
        inner = [word for word in titles if not (self._has_nouns and _POLITE.fullmatch(word))]
        small = [word for word in words if word.kind == "lower"]
        minimum = MIN_TITLE_WITH_SMALL if small else MIN_TITLE
        is_other = any(self._has_nouns or len(word.letters) > MAX_SMALL for word in small)
        if is_other or words[0].kind == "lower" or len(titles) + 1 < minimum:
            return False
        lowered = sum(map(self._is_lowered, inner))
        return lowered >= max(1 + self._has_nouns, SHARE * len(inner))

    def _is_lowered(self, word: str) -> bool:
        """Whether a word with a capital has none in a sentence: in lower case it is known, or has fewer tokens."""
        best = self._best(word)
        n_tokens = self._cost(best)[0]
        return best == to_lower(word, self._language) and (n_tokens == 1 or n_tokens < self._cost(word)[0])

    def _best(self, word: str) -> str:
        """Returns the likeliest form of a word: one with the fewest tokens, the more frequent ones first."""
        lower = to_lower(word, self._language)
        if base_language(self._language) == "en" and _PRONOUN.match(word):
            return to_title(lower)

        def key(form: str) -> tuple[int, int]:
            n_tokens, rank = self._cost(form)
            return n_tokens, rank * (1 if form == lower else ADVANTAGE)

        best = min(self._forms(word, lower), key=key)
        is_short = 1 < len(word) <= MAX_UNKNOWN and word.isupper()
        return word if is_short and 1 < self._cost(word)[0] <= self._cost(best)[0] else best

    def _forms(self, word: str, lower: str) -> list[str]:
        """Returns the forms that a word may have, with ß for SS where that is a letter."""
        forms = [lower]
        if base_language(self._language) == "de" and word == word.upper():
            forms += [f"{lower[: match.start()]}ß{lower[match.end() :]}" for match in regex.finditer("ss", lower)]
        return [*forms, *(to_title(form, self._language) for form in forms), word]


def restore_case(
    text: str, run: CaseRun, language: str = "", kept: Sequence[Span] = (), words: Collection[int] | None = None
) -> str:
    """Returns a translation with words in the case of a run of its source.

    Args:
        text: Translation.
        run: Run of the source.
        language: Language of the translation.
        kept: Spans of characters that stay as they are.
        words: Words that are changed, separated by white space; None for all.
    """
    change = to_capitals if run.case == "capitals" else to_title
    parts, done = [], 0
    for number, word in enumerate(_NO_SPACE.finditer(text)):
        if words is not None and number not in words:
            continue
        for match in _WORD.finditer(text, *word.span()):
            is_small = run.has_small and number and len(match[0]) <= MAX_SMALL
            if not is_small and not _overlaps(match.span(), kept):
                parts += [text[done : match.start()], change(match[0], language)]
                done = match.end()
    return "".join((*parts, text[done:]))


@dataclass(frozen=True)
class _Word:
    """A word between white space, its parts of letters and apostrophes with positions, and the kind of its case."""

    text: str
    parts: tuple[tuple[int, str], ...]
    kind: "_Kind"

    @classmethod
    def of(cls, text: str, span: Span, kept: Sequence[Span]) -> "_Word":
        """Returns the word at a span of a text, without letters in kept spans."""
        word = text[slice(*span)]
        matches = [match for match in _WORD.finditer(text, *span) if not _overlaps(match.span(), kept)]
        parts = tuple((match.start(), match[0]) for match in matches)
        return cls(word, parts, _kind(word, [part for _, part in parts]))

    @property
    def letters(self) -> str:
        """The longest part of the word that has letters and apostrophes alone."""
        return max((part for _, part in self.parts), key=len, default="")


def _kind(word: str, parts: Sequence[str]) -> "_Kind":
    letters = "".join(letter for part in parts for letter in part if letter.isalpha() and letter != "ß")
    if not _CASED.search(letters) or any(map(str.isdecimal, word)):
        return "kept"
    if letters == letters.lower():
        return "lower"
    if letters == letters.upper():
        return "letter" if len(letters) == 1 else "capitals"
    return "mixed" if any(map(_is_mixed, parts)) or parts[0] == parts[0].lower() else "title"


def _overlaps(span: Span, others: Sequence[Span]) -> bool:
    return any(start < span[1] and span[0] < end for start, end in others)


def _is_mixed(word: str) -> bool:
    """Whether a part of a word has a capital beside its first letter, as in McDonald, and is not in capitals."""
    parts = (part.replace("ß", "") for part in regex.split("['’]", word))
    return any(part[1:] != part[1:].lower() and part != part.upper() for part in parts)
