"""Spans that a translation should keep, and differences between them in the two sides of a pair."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

import regex

from transformer.text.number_comparison import compare_numbers
from transformer.text.sentences import has_letter
from transformer.text.spans import ADDRESS, PATTERNS, blank_addresses, blank_tags

_PLACEHOLDER: Final = regex.compile(PATTERNS["placeholders"])
_TAG: Final = regex.compile(PATTERNS["tags"])
_POSITION: Final = regex.compile(r"^%\d+\$")
"""Beginning of a placeholder with its number, such as %2$s, which a translation needs where the order differs."""
_FINAL_MARK: Final = regex.compile(r"[.!?…:;。！？：；؟।]")
_CLOSING: Final = "\"'»«”“’)]}」』 \u00a0"
_SAME_MARKS: Final = str.maketrans({"。": ".", "！": "!", "？": "?", "：": ":", "；": ";", "؟": "?", "।": "."})
MIN_CASED, ONE_CASE_SHARE = 50, 0.95
"""Number of lines from which the case of a side is looked at, and share of lines in one case."""
_LOOKALIKES: Final = "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧουνρκιτ"
_OTHER: Final = rf"[\p{{Cyrillic}}{_LOOKALIKES}]"
_MIXED_WORD: Final = regex.compile(rf"\p{{L}}*?(?:\p{{Latin}}{_OTHER}|{_OTHER}\p{{Latin}})\p{{L}}*+")


def pair_differences(source: str, target: str, languages: tuple[str, str]) -> Iterator[tuple[str, str]]:
    """Yields what one side of a pair has and the other has not, each kind of finding with its reason.

    Args:
        source: Source line.
        target: Target line.
        languages: Languages of both (BCP 47); empty if not known.
    """
    for kind, pattern in (("addresses", ADDRESS), ("placeholders", _PLACEHOLDER), ("tags", _TAG)):
        if reason := _difference(pattern, source, target):
            yield kind, reason
    plain = tuple(blank_addresses(blank_tags(_PLACEHOLDER.sub(" ", text))) for text in (source, target))
    numbers = compare_numbers((plain[0], plain[1]), languages)
    if numbers.missing or numbers.invented:
        sides = [", ".join(number.text for number in side) for side in (numbers.missing, numbers.invented)]
        yield "numbers", f"{sides[0] or 'none'} in the source, {sides[1] or 'none'} in the target"
    marks = _final_mark(source), _final_mark(target)
    if marks[0] != marks[1] and has_letter(source) and has_letter(target):
        yield "final-mark", f"{marks[0] or 'none'} in the source, {marks[1] or 'none'} in the target"


def _difference(pattern: regex.Pattern[str], source: str, target: str) -> str:
    """Returns the matches that only one of two texts has, in words; empty if they have the same."""
    counts = [Counter(match[0] for match in pattern.finditer(text)) for text in (source, target)]
    plain = [sorted(_POSITION.sub("%", span) for span in count.elements()) for count in counts]
    if plain[0] == plain[1]:
        return ""
    sides = [", ".join((counts[side] - counts[1 - side]).elements()) for side in (0, 1)]
    return f"{sides[0] or 'none'} in the source, {sides[1] or 'none'} in the target"


def _final_mark(line: str) -> str:
    """Returns the punctuation at the end of a line, in its Latin form; empty if there is none."""
    last = line.rstrip(_CLOSING)[-1:]
    return last.translate(_SAME_MARKS) if _FINAL_MARK.fullmatch(last) else ""


def mixed_word(line: str) -> str:
    """Returns a word with letters of two scripts, such as a Cyrillic а in a Latin word; empty if there is none."""
    match = None if line.isascii() else _MIXED_WORD.search(line)
    return match[0] if match else ""


class CaseCounts:
    """Numbers of lines of a side with letters that have a case, in lower case and in capitals."""

    def __init__(self) -> None:
        self.cased, self.counts = 0, {"lower case": 0, "capitals": 0}

    def add(self, line: str) -> None:
        """Counts a line."""
        if line.lower() != line.upper():
            self.cased += 1
            self.counts["lower case"] += line == line.lower()
            self.counts["capitals"] += line == line.upper()

    def only(self) -> str:
        """Returns `lower case` or `capitals` if nearly all lines are in it; empty if not, or of a few lines."""
        most = max(self.counts, key=self.counts.__getitem__)
        return most if self.cased >= MIN_CASED and self.counts[most] >= ONE_CASE_SHARE * self.cased else ""
