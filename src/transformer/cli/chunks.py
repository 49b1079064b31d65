"""Chunks of lines, which commands translate while the next ones are read."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from transformer.errors import TransformerError

if TYPE_CHECKING:
    from transformer.pipelines.translation.results import Translation
    from transformer.pipelines.translation.translator import Translator

CHUNK_LINES, CHUNK_CHARACTERS = 1024, 1 << 20


def split_into_chunks(lines: Iterator[str]) -> Iterator[list[str]]:
    """Yields chunks of lines; lines that precede an error are yielded before it is raised."""
    chunk: list[str] = []
    characters = 0
    failure: TransformerError | None = None
    try:
        for line in lines:
            chunk.append(line)
            characters += len(line)
            if len(chunk) == CHUNK_LINES or characters >= CHUNK_CHARACTERS:
                yield chunk
                chunk, characters = [], 0
    except TransformerError as error:
        failure = error
    if chunk:
        yield chunk
    if failure is not None:
        raise failure


def translate_chunks(
    translator: "Translator",
    chunks: Iterator[tuple[list[str], list[str] | None]],
    done: Callable[[int], None] | None,
    first: int = 0,
) -> Iterator[tuple[Sequence[str], "list[Translation]"]]:
    """Yields each chunk with its translations; the worker processes already search for the next chunk meanwhile.

    An empty chunk means that no more input has arrived yet, and the chunk before it is finished. Chunks that precede an
    error are yielded before the error is raised.

    Args:
        translator: Translator of the lines.
        chunks: Chunks of lines, each with the required prefixes of the translations, or None.
        done: Callback for progress, called with the number of lines translated since the last call.
        first: Number of lines before these, which determines their random streams.
    """
    number, pending, failure = first, None, None
    while failure is None:
        following = None
        try:
            if (chunk := next(chunks, None)) is not None:
                following = translator.begin(*chunk, number)
        except Exception as error:
            failure = error
        if pending is not None and pending.lines:
            yield pending.lines, translator.finish(pending, done)
        if following is None:
            break
        number += len(following.lines)
        pending = following
    if failure is not None:
        raise failure
