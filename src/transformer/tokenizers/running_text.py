"""Encoding of running text in chunks, with the same tokens as if it were encoded as a whole."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final

from transformer.tokenizers.base import Tokenizer

MIN_LINES, MAX_LINES = 64, 4096
"""Minimum lines of a chunk, and maximum if no suitable cut is found."""
MAX_CHARACTERS: Final = 1 << 16
"""Characters of a line that is cut into parts, and of a chunk that ends before it has `MIN_LINES` lines."""
BATCH_CHUNKS, BATCH_CHARACTERS = 16, 1 << 17
"""Maximum chunks encoded in one batch, and the number of characters that ends a batch."""


@dataclass(frozen=True)
class TextChunk:
    """Consecutive lines of a running text, line ends included.

    Attributes:
        lines: Number of lines.
        text: The lines.
        before: Preceding lines, from the last one that is not blank; empty at the beginning.
        after: Following line; empty at the end.
    """

    lines: int
    text: str
    before: str = ""
    after: str = ""


def split_chunks(lines: Iterable[str]) -> Iterator[TextChunk]:
    """Splits the lines of a text into chunks.

    A tokenizer may merge adjacent line ends and spaces into one token. The context of a chunk therefore extends to the
    nearest line that is not blank, on both sides.

    Args:
        lines: Lines with their line ends.
    """
    chunk: list[str] = []
    before, characters = "", 0
    for line in _cut_long(lines):
        is_full = len(chunk) >= MIN_LINES or characters >= MAX_CHARACTERS
        if (is_full and not line.isspace()) or len(chunk) >= MAX_LINES:
            yield TextChunk(len(chunk), "".join(chunk), before, line)
            before, chunk, characters = _preceding_context(chunk), [], 0
        chunk.append(line)
        characters += len(line)
    if chunk:
        yield TextChunk(len(chunk), "".join(chunk), before)


def _cut_long(lines: Iterable[str]) -> Iterator[str]:
    """Cuts lines of more than `MAX_CHARACTERS`, before a space where there is one."""
    for line in lines:
        start = 0
        while len(line) - start > MAX_CHARACTERS:
            end = start + MAX_CHARACTERS
            space = line.rfind(" ", start + 1, end)
            end = space if space > 0 else end
            yield line[start:end]
            start = end
        yield line[start:] if start else line


def _preceding_context(lines: list[str]) -> str:
    """Returns the lines of a chunk from the last one that is not blank, or the last lines if all are blank."""
    not_blank = (index for index in range(len(lines) - 1, -1, -1) if not lines[index].isspace())
    return "".join(lines[next(not_blank, -MIN_LINES) :])


def _batches(chunks: Iterator[TextChunk]) -> Iterator[list[TextChunk]]:
    """Yields the chunks in batches."""
    batch: list[TextChunk] = []
    characters = 0
    for chunk in chunks:
        batch.append(chunk)
        characters += len(chunk.text)
        if len(batch) >= BATCH_CHUNKS or characters >= BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def encode_lines(tokenizer: Tokenizer, lines: Iterable[str]) -> Iterator[tuple[int, list[int]]]:
    """Yields the tokens of a running text part by part, with the number of lines of each part.

    Args:
        tokenizer: Tokenizer of the text.
        lines: Lines with their line ends.
    """
    for batch in _batches(split_chunks(lines)):
        contexts = [(chunk.before, chunk.after) for chunk in batch]
        ids = tokenizer.encode_running([chunk.text for chunk in batch], contexts)
        yield sum(chunk.lines for chunk in batch), list(chain.from_iterable(ids))
