"""Running text in passages, encoded to the tokens that the whole would have."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from transformer.tokenizers.base import Tokenizer

LINES, MOST_LINES = 64, 4096
"""Lines of a passage: at least so many, and at most, where no good place to cut comes."""
AT_ONCE, MOST_CHARACTERS = 16, 1 << 20
"""Passages that are encoded side by side: so many, or fewer that have so many characters."""


@dataclass(frozen=True)
class TextChunk:
    """Some lines of a running text, their ends included.

    Attributes:
        lines: how many they are.
        text: all of them.
        before: the line before, and all from the last one that has a sign; empty at the beginning.
        after: the line after; empty at the end.
    """

    lines: int
    text: str
    before: str = ""
    after: str = ""


def split_chunks(lines: Iterable[str]) -> Iterator[TextChunk]:
    """Yields the lines of a text in passages.

    A tokenizer may make one token of line ends and spaces that stand together, wherever they are cut; what stands
    around a passage therefore reaches to the next line that has a sign, on both sides.

    Args:
        lines: with their ends.
    """
    own: list[str] = []
    before = ""
    for line in lines:
        if (len(own) >= LINES and not line.isspace()) or len(own) >= MOST_LINES:
            yield TextChunk(len(own), "".join(own), before, line)
            before, own = _end(own), []
        own.append(line)
    if own:
        yield TextChunk(len(own), "".join(own), before)


def _end(lines: list[str]) -> str:
    """The last line that has a sign, and all after it; the last lines alone where none has."""
    signs = (place for place in range(len(lines) - 1, -1, -1) if not lines[place].isspace())
    return "".join(lines[next(signs, -LINES) :])


def _side_by_side(waiting: Iterator[TextChunk]) -> Iterator[list[TextChunk]]:
    """Some passages at a time."""
    some: list[TextChunk] = []
    characters = 0
    for each in waiting:
        some.append(each)
        characters += len(each.text)
        if len(some) >= AT_ONCE or characters >= MOST_CHARACTERS:
            yield some
            some, characters = [], 0
    if some:
        yield some


def encode_lines(tokenizer: Tokenizer, lines: Iterable[str]) -> Iterator[tuple[int, list[int]]]:
    """Yields the tokens of a running text part by part, each with how many lines it has.

    Args:
        tokenizer: of the text.
        lines: with their ends.
    """
    for some in _side_by_side(split_chunks(lines)):
        found = tokenizer.encode_running([each.text for each in some], [(each.before, each.after) for each in some])
        yield sum(each.lines for each in some), list(chain.from_iterable(found))
