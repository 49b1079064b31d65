"""Messages of programs, from compiled gettext catalogues (.mo)."""

import random
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from corpora.pairs import TextPair, one_line
from transformer.text.spans import kept_pattern
from transformer.text.substitution import COUNTS, NAMES

MAGIC: Final = 0x950412DE
TAG: Final = re.compile(r"<[^<>]{1,80}>")
ACCELERATOR: Final = re.compile(r"[&_~](?=[^\W_])")
MARKED_LETTER: Final = re.compile(r"\s*\([&_~]\w\)")
ESCAPE: Final = re.compile(r"\\[nrt]")
PLACEHOLDER: Final = kept_pattern(["placeholders"])
COUNT: Final = re.compile(r"%[^a-z]*[diu]|\{\{?(?:n|i|num\w*|count|total)\}?\}")
HIDDEN_SHARE: Final = 0.8
"""Share of the messages whose placeholders become words; the others keep them."""


def read_catalogues(package: Path, language: str) -> Iterator[TextPair]:
    """Yields the messages of all catalogues of a package in a language, cleaned of what is not text."""
    for path in sorted(package.rglob(f"{language}/LC_MESSAGES/*.mo")):
        for source, target in _read(path.read_bytes()):
            yield TextPair(clean(source), clean(target))


def clean(message: str) -> str:
    """Returns a message without tags, marks of accelerator keys, and line breaks."""
    message = MARKED_LETTER.sub("", TAG.sub("", message))
    if len(ACCELERATOR.findall(message)) == 1:  # more are the underscores of names
        message = ACCELERATOR.sub("", message)
    return one_line(ESCAPE.sub(" ", message))


def hide_placeholders(pair: TextPair, rng: random.Random, share: float = HIDDEN_SHARE) -> TextPair | None:
    """Replaces placeholders by the words that stand for them when the program translates.

    Returns:
        The pair, at times as it is; None if its sides do not have the same placeholders.
    """
    placeholders, others = (PLACEHOLDER.findall(side) for side in (pair.english, pair.german))
    if sorted(placeholders) != sorted(others):
        return None
    if not placeholders or rng.random() >= share:
        return pair
    names, counts = rng.sample(NAMES, len(NAMES)), rng.sample(COUNTS, len(COUNTS))
    words: dict[str, str] = {}
    for placeholder in dict.fromkeys(placeholders):
        words[placeholder] = (counts if COUNT.match(placeholder) else names).pop() if names and counts else placeholder
    english, german = (PLACEHOLDER.sub(lambda match: words[match[0]], side) for side in (pair.english, pair.german))
    return TextPair(english, german)


def _read(data: bytes) -> Iterator[tuple[str, str]]:
    """Yields messages and translations of a catalogue; of a plural, the first and the second form."""
    order = "<" if struct.unpack("<I", data[:4])[0] == MAGIC else ">"
    n, sources, targets = struct.unpack(f"{order}3I", data[8:20])
    for index in range(n):
        source, target = (
            data[offset : offset + length]
            for length, offset in (
                struct.unpack(f"{order}2I", data[at + 8 * index : at + 8 * index + 8]) for at in (sources, targets)
            )
        )
        try:
            forms = source.decode().rpartition("\x04")[2].split("\0"), target.decode().split("\0")
        except UnicodeDecodeError:
            continue
        if forms[0][0]:
            yield from zip(*(side[:2] for side in forms), strict=False)
