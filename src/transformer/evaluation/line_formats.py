"""Checks of lines that are to be scored: formats other than plain text, other tokenizations and other orders."""

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

SAMPLE_LINES: Final = 1000
"""Maximum number of lines that are examined."""
MOST: Final = 0.9
"""Share of the lines by which a text counts as of a format."""
MANY, FEW = 0.5, 0.1
"""Shares of the lines by which two texts differ in a trait: of one and of the other."""
MIN_LINES: Final = 10
"""Number of different lines up to which an order is not told."""
MIN_SHARED: Final = 3
"""Minimum number of rare words that a line shares with the line of the reference that it belongs to."""
RARE, MAX_PLACES = 0.1, 100
"""Share of the lines of the reference, and number of them, up to which a word tells one of them from others."""
_NBEST: Final = re.compile(r"\s*\d+ \|\|\| ")
_SPACED: Final = re.compile(r"\S [.,](?:\s|$)")


def format_notes(name: str, lines: Sequence[str], reference: Sequence[str]) -> Iterator[str]:
    """Yields one note for each reason why translations are unlike the reference in more than their words.

    Args:
        name: Name of the translations.
        lines: The translations.
        reference: The first reference.
    """
    pairs = [pair for pair in zip(lines, reference, strict=True) if pair[0].strip()][:SAMPLE_LINES]
    sample, expected = [line for line, _ in pairs], [line for _, line in pairs]
    if _share(sample, _is_nbest) >= MOST:
        yield f"{name} is an n-best list, not one translation a line; keep the best of each, without the other columns"
    elif _share(sample, _is_json) >= MOST:
        yield f"{name} is JSON, not text; extract the translations, one per line"
    elif _differs(sample, expected, _has_pieces):
        yield f"{name} has subword pieces (@@ or \\u2581); join them before scoring"
    elif _differs(sample, expected, _is_tokenized):
        yield f"{name} is tokenized, and the reference is not; detokenize it before scoring"
    elif _differs(expected, sample, _is_tokenized):
        yield f"the reference is tokenized, and {name} is not; detokenize the reference, or tokenize both the same way"
    elif _is_elsewhere(lines, reference):
        yield f"{name} is in another order than the reference: most lines are like other lines of the reference"
    forms = [_form(text) for text in (sample, expected)]
    if forms[0] != forms[1] and "" not in forms:
        yield f"{name} is in Unicode {forms[0]}, the reference in {forms[1]}; normalize one of them before scoring"


def _share(lines: Sequence[str], is_such: Callable[[str], bool]) -> float:
    return sum(map(is_such, lines)) / len(lines) if lines else 0.0


def _differs(lines: Sequence[str], others: Sequence[str], is_such: Callable[[str], bool]) -> bool:
    """Whether many lines have a trait that few others have."""
    return _share(lines, is_such) >= MANY and _share(others, is_such) <= FEW


def _is_nbest(line: str) -> bool:
    return _NBEST.match(line) is not None


def _is_json(line: str) -> bool:
    try:
        return line.lstrip()[:1] in ("{", "[", '"') and json.loads(line) is not None
    except (ValueError, RecursionError):
        return False


def _has_pieces(line: str) -> bool:
    return "\u2581" in line or "@@ " in line


def _is_tokenized(line: str) -> bool:
    """Whether a space stands before a full stop or a comma; other marks have one in French."""
    return _SPACED.search(line) is not None


def _form(lines: Sequence[str]) -> str:
    """Returns the Unicode normalization form of a text; empty if it has no character that tells."""
    text = "\n".join(lines)
    composed, decomposed = (unicodedata.normalize(form, text) for form in ("NFC", "NFD"))
    if composed == decomposed:
        return ""
    return "NFC" if text == composed else "NFD" if text == decomposed else ""


def _is_elsewhere(lines: Sequence[str], reference: Sequence[str]) -> bool:
    """Whether most lines share most of their rare words with another line of the reference, and few with their own."""
    first = {line: number for number, line in reversed([*enumerate(lines[:SAMPLE_LINES])])}  # equal lines count once
    places: dict[str, list[int]] = {word: [] for line in first for word in line.lower().split()}
    for number, line in enumerate(reference):
        for word in set(line.lower().split()) & places.keys():
            places[word].append(number)
    counts = Counter[str]()
    most = min(RARE * len(reference), MAX_PLACES)
    for line, number in first.items():
        words = [word for word in set(line.lower().split()) if len(places[word]) <= most]
        shared = Counter(place for word in words for place in places[word])
        best = max(shared.values(), default=0)
        if best >= max(MIN_SHARED, len(words) / 2):
            counts["own" if 2 * shared[number] > best else "other"] += 1
    return counts["other"] > MOST * max(counts.total(), MIN_LINES)
