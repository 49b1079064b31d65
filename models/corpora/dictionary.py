"""Entries of the Ding dictionary (German :: English), as pairs of words, phrases and sentences."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from corpora.pairs import TextPair, one_line

NOTES: Final = re.compile(r"\{[^{}]*\}|\[[^\[\]]*\]|<[^<>]*>|\([^()]*\)|/[^/\s]*/")
ABBREVIATIONS: Final = (
    (
        (r"sb\./sth\.", "somebody or something"), (r"sb\.'s|sb\.’s", "somebody's"), (r"sb\.", "somebody"),
        (r"sth\.", "something"), (r"so\.", "someone"), (r"smb\.", "somebody"), (r"smth\.", "something"),
    ),
    (
        (r"jdn\./etw\.", "jemanden oder etwas"), (r"jdm\./etw\.", "jemandem oder etwas"),
        (r"jd\./etw\.", "jemand oder etwas"), (r"etw\.", "etwas"), (r"jdn\.", "jemanden"), (r"jdm\.", "jemandem"),
        (r"jds\.", "jemandes"), (r"jd\.", "jemand"),
    ),
)  # fmt: skip
"""Abbreviations of English and of German entries, and what they stand for."""
OTHER_SIGNS: Final = re.compile(r"[|{}\[\]<>()~=+*]|\.\.\.|…|\d\)|\w/\w|\w\.\w")
INFLECTION: Final = re.compile(r"(?:ich|du|er|sie|es|wir|ihr|man)\b(?!.*[.!?]$)", re.IGNORECASE)
"""Beginning of the inflected forms of a verb, which an entry has behind its infinitive."""


def read_dictionary(path: Path) -> Iterator[TextPair]:
    """Yields pairs of the entries of a dictionary.

    Each part of an entry corresponds to the part of the other language at the same place. Of the alternatives of a
    part, those at the same place correspond, too, if both sides have equally many; else the first ones.
    """
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("#") or " :: " not in line:
            continue
        german, _, english = line.partition(" :: ")
        parts = [clean(side).split("|") for side in (german, english)]
        if len(parts[0]) == len(parts[1]):
            for part in zip(*parts, strict=True):
                yield from _pairs(*([text for text in map(one_line, side.split(";")) if text] for side in part))


def clean(text: str) -> str:
    """Returns a side of an entry without grammar, subject, region and explanations."""
    while (shorter := NOTES.sub(" ", text)) != text:
        text = shorter
    return text.replace("’", "'")


def _pairs(german: list[str], english: list[str]) -> Iterator[TextPair]:
    """Yields the pairs of one part of an entry."""
    count = len(german) if len(german) == len(english) else min(1, len(german), len(english))
    for side in zip(english[:count], german[:count], strict=True):
        if not any(map(OTHER_SIGNS.search, side)) and not INFLECTION.match(side[1]):
            first, second = (_written_out(text, table) for text, table in zip(side, ABBREVIATIONS, strict=True))
            yield TextPair(first, second)


def _written_out(text: str, abbreviations: tuple[tuple[str, str], ...]) -> str:
    for pattern, words in abbreviations:
        text = re.sub(rf"(?<!\w){pattern}(?!\w)", words, text)
    return one_line(text.replace(" ,", ",").replace(" .", ".").replace(" !", "!").replace(" ?", "?"))
