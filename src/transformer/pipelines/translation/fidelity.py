"""Fidelity: numbers and addresses of a line that its translation must not change, and substitutes that survive it."""

import re
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import regex

from transformer.pipelines.translation.inline_tags import TAG
from transformer.pipelines.translation.results import Translation
from transformer.pipelines.translation.terminology import ADDRESS, PATTERNS
from transformer.text.sentences import has_letter

_TAG: Final = regex.compile(TAG)
_NUMBER: Final = regex.compile(PATTERNS["numbers"])
_AMOUNT: Final = rf"[+#$€£¥]?{_NUMBER.pattern}(?: {_NUMBER.pattern})*+(?: ?[%€])?"
"""A number with its sign or currency, or several with a space between, such as a telephone number."""
_SPAN: Final = regex.compile(rf"(?P<tag>{TAG})|(?P<span>{ADDRESS.pattern}|{_AMOUNT})")
_DIGITS: Final = re.compile(r"\d+")
_SEPARATOR: Final = re.compile(r"(?<=\d)[.,'\u00a0\u202f](?=\d)")
"""Separator of thousands or decimals, which differ between languages."""
_WRITTEN_OUT: Final = 2
"""Maximum number of digits of a number that a translation may write as a word, or the other way round."""
_REPEATS: Final = 3
"""Number of times in a row that a word of a translation may not occur, unless one of the source does."""
_SUBSTITUTES: Final = ("30", "50", "40", "20", "70", "60", "80", "90")
"""Numbers that models copy reliably, since they are frequent in all corpora."""
MAX_SPANS: Final = len(_SUBSTITUTES)
"""Maximum number of numbers and addresses of a line that is translated again."""
ATTEMPTS: Final = 3
"""Number of choices of substitutes that a line is translated with."""


def changed_spans(line: str, translation: str) -> list[str]:
    """Returns the numbers and addresses of a line that its translation changed; empty if none, or if it has no letter.

    A number may have other separators (1,000 and 1.000). A time of the day may be given by 24 hours (2:30 and 14:30).
    A number of at most two digits may be written as a word.
    """
    plain = _TAG.sub(" ", line), _TAG.sub(" ", translation)
    if not any(map(str.isdigit, plain[0])) and not ADDRESS.search(plain[0]):
        return []
    if not has_letter(plain[0]):
        return []
    addresses = [Counter(ADDRESS.findall(text)) for text in plain]
    if addresses[0] != addresses[1]:
        return [*(addresses[0] - addresses[1])] or [*addresses[0]] or [*(addresses[1] - addresses[0])]
    texts = [ADDRESS.sub(" ", text) for text in plain]
    return _changed_numbers(*texts)


def _changed_numbers(line: str, translation: str) -> list[str]:
    """Returns the numbers that a translation lacks; those that it invents, if it lacks none."""
    if Counter(_DIGITS.findall(line)) == Counter(_DIGITS.findall(translation)):
        return []
    source, target = (Counter(map(_ascii, _DIGITS.findall(_SEPARATOR.sub("", text)))) for text in (line, translation))
    missing, invented = source - target, target - source
    for hour in list(missing):
        afternoon = str(int(hour) + 12) if len(hour) <= len("12") else ""
        if invented[afternoon]:
            missing -= Counter([hour])
            invented -= Counter([afternoon])
    if not invented:
        missing = Counter({number: n for number, n in missing.items() if len(number) > _WRITTEN_OUT})
    if not missing:  # a number with leading zeros was never written as a word
        short = {_ascii(number) for number in _DIGITS.findall(translation) if len(number) <= _WRITTEN_OUT}
        return [number for number in invented if number not in short or number in source]
    standing = [match[0] for match in _NUMBER.finditer(line)]
    return [
        number
        for number in dict.fromkeys(standing)
        if missing.keys() & set(map(_ascii, _DIGITS.findall(_SEPARATOR.sub("", number))))
    ]


def _ascii(digits: str) -> str:
    """Returns a number without leading zeros, in the digits 0 to 9; one of a thousand digits as it is."""
    return str(int(digits)) if len(digits) < 1000 else digits


def count_spans(line: str) -> int:
    """Returns how many numbers and addresses a line has, without those in tags."""
    return sum(match["span"] is not None for match in _SPAN.finditer(line))


def repeats_word(line: str, translation: str) -> bool:
    """Whether a word of a translation occurs three times in a row, unlike any word of its line."""
    return _longest_run(translation) >= _REPEATS > _longest_run(line)


def _longest_run(text: str) -> int:
    """Returns how often a word of letters occurs in a row at most."""
    longest = run = 0
    before = ""
    for word in re.findall(r"\w+", _TAG.sub(" ", text).casefold()):
        run = run + 1 if word == before else 1
        longest, before = max(longest, run if word.isalpha() else 0), word
    return longest


@dataclass(frozen=True)
class SubstitutedLine:
    """A line in which other numbers stand for numbers and addresses, so that the model copies them.

    Attributes:
        text: The line with substitutes.
        originals: What each substitute stands for.
    """

    text: str
    originals: dict[str, str]

    @classmethod
    def of(cls, line: str, changed: list[str], attempt: int) -> "SubstitutedLine | None":
        """Replaces spans of a line; None if there are none, or more than substitutes.

        Args:
            line: The line, whose tags stay as they are.
            changed: Spans that a translation changed; if none of them is a span of the line, all are replaced.
            attempt: Number of the attempt from 0; each has other substitutes.
        """
        spans = [match["span"] for match in _SPAN.finditer(line) if match["span"]]
        replaced = {span for span in spans if any(part in span for part in changed)} or set(spans)
        n_spans = sum(span in replaced for span in spans)
        free = [number for number in _SUBSTITUTES if number not in line]
        if not 1 <= n_spans <= len(free):
            return None
        rotated = free[attempt % len(free) :] + free[: attempt % len(free)]
        originals: dict[str, str] = {}

        def substitute(match: regex.Match[str]) -> str:
            if match["span"] not in replaced:
                return match[0]
            number = rotated[len(originals)]
            originals[number] = match["span"]
            return number

        return cls(_SPAN.sub(substitute, line), originals)

    def restore(self, translation: Translation) -> Translation | None:
        """Puts the originals back into a translation; None if its best text does not have each substitute once."""
        alternatives = [
            replace(other, text=text) for other in translation.alternatives if (text := self._restored(other.text))
        ]
        if not alternatives or not self._restored(translation.text):
            return None
        words = None
        if any(" " in original for original in self.originals.values()):
            seen = translation.words or (range(len(self.text.split())), range(len(translation.text.split())))
            maps = self._word_map(self.text), self._word_map(translation.text)
            words = [maps[0][word] for word in seen[0]], [maps[1][word] for word in seen[1]]
        return replace(translation, alternatives=tuple(alternatives), words=words or translation.words)

    def _word_map(self, text: str) -> list[int]:
        """Returns for each word of a text with substitutes its word in the text with the originals."""
        added, words = 0, []
        for index, word in enumerate(text.split()):
            words.append(index + added)
            added += sum(self.originals[match[0]].count(" ") for match in self._numbers.finditer(word))
        return words

    @cached_property
    def _numbers(self) -> re.Pattern[str]:
        return re.compile(r"(?<![\w.,:/-])(?:" + "|".join(self.originals) + r")(?![\w:/])(?![.,]\d)")

    def _restored(self, text: str) -> str:
        """Returns a text with the originals; empty if it does not have each substitute once, as a word of its own."""
        numbers = [match[0] for match in self._numbers.finditer(text)]
        if sorted(numbers) != sorted(self.originals):
            return ""
        return self._numbers.sub(lambda match: self.originals[match[0]], text)
