"""Splitting of lines that are too long for a model: sentences are packed into pieces of limited length."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import regex

from transformer.text.sentences import CLUSTER, Span

MAX_WORD: Final = 4096
"""Maximum number of characters of a word whose tokens are counted at once."""
MAX_TOKEN: Final = 32
"""Characters per token above which a text is too long for a limit, without its tokens being counted."""
WORD: Final = regex.compile(r"\S+")
LINE_ENDS_AS_SPACES: Final = str.maketrans("\r\n", "  ")
Count = Callable[[list[str]], list[int]]
"""Function that returns the number of tokens of each text."""


@dataclass(frozen=True)
class SplitLine:
    """A line as pieces that are translated separately.

    Attributes:
        pieces: Pieces in order, which have all of the line but white space between them.
        is_clean: Whether every cut is at a sentence end; otherwise, a sentence was cut at a space or within a word.
        words: For each word of the pieces, the index of its word in the line; None if the line was not split.
    """

    pieces: list[str]
    is_clean: bool = True
    words: list[int] | None = None

    def with_prefix(self, prefix: str, *, is_apart: bool = True) -> "SplitLine":
        """Returns the line with a prefix, with which the line begins, before each piece.

        Args:
            prefix: Text added before each piece.
            is_apart: Whether a space follows the prefix in the line.
        """
        n_prefix = len(prefix.split())
        line_words = iter(self.words or ())
        words = [
            word
            for piece in self.pieces
            for word in (*range(n_prefix), *(n_prefix - (not is_apart) + next(line_words) for _ in piece.split()))
        ]
        return replace(self, pieces=[f"{prefix} {piece}" for piece in self.pieces], words=words)


@dataclass(frozen=True)
class _Unit:
    """A part of a line that is not cut: a sentence, or a part of a sentence that is too long.

    Attributes:
        start: First character.
        end: Exclusive last character.
        sentence: Number of the sentence that it belongs to.
        size: Number of tokens.
    """

    start: int
    end: int
    sentence: int
    size: int


@dataclass(frozen=True)
class _Splitter:
    """Splits one line, see `split_line`."""

    line: str
    limit: int
    count: Count
    max_sentences: int

    def split(self, sentences: Sequence[Span]) -> SplitLine:
        sizes = self._sizes(sentences)
        units: list[_Unit] = []
        for number, (span, size) in enumerate(zip(sentences, sizes, strict=True)):
            if size <= self.limit:
                units.append(_Unit(*span, number, size))
            else:
                words = self._words(span)
                parts = zip(words, self._sizes(words), strict=True)
                units += [_Unit(*word, number, word_size) for word, word_size in parts]
        pieces = [self.line[start:end] for start, end in self._pack(units)]
        is_clean = max(sizes, default=0) <= self.limit
        words = [index for indices in word_indices(self.line, pieces) for index in indices]
        return SplitLine(pieces, is_clean, words)

    def _sizes(self, spans: Sequence[Span]) -> list[int]:
        """Counts the tokens of each span; far too long ones count more than the limit, without being tokenized."""
        longest = MAX_TOKEN * self.limit
        counted = iter(self.count([self.line[start:end] for start, end in spans if end - start <= longest]))
        return [next(counted) if end - start <= longest else self.limit + 1 for start, end in spans]

    def _words(self, sentence: Span) -> list[Span]:
        """Returns the words of a sentence; a word that is too long is cut between grapheme clusters."""
        blocks = [
            block
            for word in WORD.finditer(self.line, *sentence)
            for block in ([word.span()] if word.end() - word.start() <= MAX_WORD else self._blocks(word.span()))
        ]
        sized = zip(blocks, self._sizes(blocks), strict=True)
        return [part for block, size in sized for part in ([block] if size <= self.limit else self._halve_word(block))]

    def _blocks(self, word: Span) -> list[Span]:
        """Cuts a very long word into blocks between grapheme clusters."""
        bounds = [word[0]]
        for cluster in CLUSTER.finditer(self.line, *word):
            if cluster.end() - bounds[-1] > MAX_WORD and cluster.start() > bounds[-1]:
                bounds.append(cluster.start())
        return list(pairwise([*bounds, word[1]]))

    def _halve_word(self, block: Span) -> list[Span]:
        """Halves a block between grapheme clusters until each part fits; a single cluster is cut between characters."""
        start, end = block
        edges = [match.start() for match in CLUSTER.finditer(self.line, start, end)]
        if len(edges) < 2:
            edges = list(range(start, end))
        if len(edges) < 2 or self._sizes([block])[0] <= self.limit:
            return [block]
        middle = edges[len(edges) // 2]
        return self._halve_word((start, middle)) + self._halve_word((middle, end))

    def _pack(self, units: Sequence[_Unit]) -> list[Span]:
        """Joins neighbouring units as long as they fit together.

        In most tokenizers, a space is part of the following word, so sizes add up; a character tokenizer needs one
        token for it. Joined units that are still too long are halved.
        """
        for space in (0, 1):
            groups = self._group(units, space)
            pieces = [(group[0].start, group[-1].end) for group in groups]
            sizes = self._sizes(pieces)
            if max(sizes, default=0) <= self.limit:
                return pieces
        return [
            part
            for group, piece, size in zip(groups, pieces, sizes, strict=True)
            for part in ([piece] if size <= self.limit else self._halve_group(group))
        ]

    def _group(self, units: Sequence[_Unit], space: int) -> list[list[_Unit]]:
        groups: list[list[_Unit]] = []
        free = -1
        for unit in units:
            if unit.size > free or unit.sentence - groups[-1][0].sentence >= self.max_sentences:
                groups.append([])
                free = self.limit
            groups[-1].append(unit)
            free -= unit.size + space
        return groups

    def _halve_group(self, group: Sequence[_Unit]) -> list[Span]:
        """Halves a group recursively until each part fits; a single unit is never split."""
        joined = group[0].start, group[-1].end
        if len(group) == 1 or self._sizes([joined])[0] <= self.limit:
            return [joined]
        middle = len(group) // 2
        return self._halve_group(group[:middle]) + self._halve_group(group[middle:])


def split_line(
    line: str, sentences: Sequence[Span], limit: int, count: Count, *, max_sentences: int | None = None
) -> SplitLine:
    """Splits a line into as few pieces of at most `limit` tokens as possible, at sentence ends if that suffices.

    Args:
        line: Line of any length.
        sentences: Its sentences in order, see `sentence_spans`.
        limit: Maximum tokens of a piece.
        count: Function that returns the number of tokens of each text.
        max_sentences: Maximum number of sentences of a piece; None is any number.
    """
    return _Splitter(line, limit, count, max_sentences or len(sentences)).split(sentences)


def word_indices(text: str, pieces: Sequence[str]) -> list[list[int]]:
    """Returns the indices in a text of the words of each of its pieces, in order.

    Words are separated by white space. Pieces may begin within a word of the text, as in scripts without spaces, and
    may have spaces instead of its line ends.
    """
    text = text.translate(LINE_ENDS_AS_SPACES)
    starts = [word.start() for word in WORD.finditer(text)]
    indices: list[list[int]] = []
    position = 0
    for piece in pieces:
        position = text.index(piece.translate(LINE_ENDS_AS_SPACES), position)
        indices.append([bisect_right(starts, position + word.start()) - 1 for word in WORD.finditer(piece)])
        position += len(piece)
    return indices


def merge_overlapping(spans: Iterable[Span]) -> list[Span]:
    """Sorts spans and merges those that overlap."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged
