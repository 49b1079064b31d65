"""Constituency trees: bracketed files, and trees as lines of symbols that a model can write.

The tree `(S (NP (DT The) (NN cat)) (VP (VBZ sleeps)) (. .))` has the words `The cat sleeps .` and is written as the
symbols `(S (NP XX XX )NP (VP XX )VP . )S`. As in Vinyals et al. 2015, "Grammar as a Foreign Language", a closing
bracket repeats the label of its constituent, and `XX` stands for a word with its part of speech. Marks of punctuation
keep their tags, by which EVALB recognizes them.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from transformer.errors import DataError

SUFFIXES: Final = frozenset({".trees", ".mrg"})
"""Suffixes of files of bracketed trees; those of the Penn Treebank end in .mrg."""
WORD: Final = "XX"
"""Symbol of a word."""
PUNCTUATION: Final = frozenset({",", ":", "``", "''", "."})
"""Tags of punctuation, which are their own symbols; the list is that of EVALB's COLLINS.prm."""
ROOTS: Final = frozenset({"", "TOP", "S1", "ROOT"})
"""Labels of the node around the whole tree."""
TRACE: Final = "-NONE-"
"""Tag of an empty element, which the sentence does not have as a word."""
_TOKEN: Final = re.compile(r"[()]|[^\s()]+")
Constituent = tuple[str, int, int]
"""Label of a constituent, its first word, and the word after its last one."""


@dataclass
class _Node:
    """A bracket that is still open, with what is known of it."""

    label: str | None = None
    word: str | None = None
    has_children: bool = False
    words: list[str] = field(default_factory=list)
    symbols: list[str] = field(default_factory=list)

    def add(self, child: "_Node") -> None:
        """Adds the words and symbols of a closed bracket; traces, and constituents of traces alone, have none."""
        label = child.label or ""
        category = re.split("[-=]", label, maxsplit=1)[0]
        if child.word is not None and label != TRACE:
            self.words.append(child.word)
            self.symbols.append(label if label in PUNCTUATION else WORD)
        elif child.symbols:
            self.words += child.words
            self.symbols += child.symbols if category in ROOTS else [f"({category}", *child.symbols, f"){category}"]


def is_treebank(path: Path) -> bool:
    """Whether a file is one of bracketed trees, by its name; it may be compressed."""
    return not SUFFIXES.isdisjoint(path.suffixes[-2:])


def read_trees(lines: Iterable[str], name: str) -> Iterator[tuple[str, str]]:
    """Yields the words and the symbols of each bracketed tree, which may extend over several lines.

    Functions (`NP-SBJ`), indices (`NP=2`), traces and the node around the whole tree are left out, as is usual.

    Args:
        lines: Lines of the file.
        name: Name of the file in messages.

    Raises:
        DataError: The brackets do not match, a node has no child, or a word has brothers or no tag.
    """
    stack = [_Node("", has_children=True)]
    for number, line in enumerate(lines, start=1):
        for token in _TOKEN.findall(line):
            if not _take(token, stack):
                raise DataError(
                    f"{name}: line {number:,}: {token} cannot stand here in a tree like (NP (DT the) (NN cat))"
                )
            if len(stack) == 1 and stack[0].symbols:
                yield " ".join(stack[0].words), " ".join(stack[0].symbols)
                stack = [_Node("", has_children=True)]
    if len(stack) > 1:
        raise DataError(f"{name}: the last tree lacks closing brackets: {len(stack) - 1:,}")


def _take(token: str, stack: list[_Node]) -> bool:
    """Adds a bracket, label or word to the open nodes; returns False if it cannot stand there."""
    node = stack[-1]
    if token == "(" and node.word is None:
        node.label, node.has_children = node.label or "", True
        stack.append(_Node())
    elif token == ")" and len(stack) > 1 and (node.has_children or node.word is not None):
        stack[-2].add(stack.pop())
    elif token in "()":
        return False
    elif node.label is None:
        node.label = token
    elif node.word is None and not node.has_children:
        node.word = token
    else:
        return False
    return True


def constituents(symbols: str, skipped: frozenset[str] = frozenset()) -> tuple[list[Constituent], int] | None:
    """Returns the constituents of a line of symbols, in the order of their ends, and its number of words.

    Args:
        symbols: The line.
        skipped: Symbols of words that are not counted.

    Returns:
        None if the brackets do not match.
    """
    closed: list[Constituent] = []
    opened: list[tuple[str, int]] = []
    position = 0
    for symbol in symbols.split():
        bracket, label = symbol[0], symbol[1:]
        if bracket == "(":
            opened.append((label, position))
        elif bracket != ")":
            position += symbol not in skipped
        elif opened and opened[-1][0] == label:
            closed.append((*opened.pop(), position))
        else:
            return None
    return None if opened else (closed, position)


def bracketed(words: str, symbols: str) -> str | None:
    """Returns a line of symbols as a bracketed tree of the words, which `read_trees` reads, with symbols as tags.

    Returns:
        None if the symbols do not form a tree of so many words.
    """
    leaves = words.split()
    tree = constituents(symbols)
    if tree is None or tree[1] != len(leaves):
        return None
    remaining = iter(leaves)
    pieces = (
        symbol if symbol[0] == "(" else ")" if symbol[0] == ")" else f"({symbol} {next(remaining)})"
        for symbol in symbols.split()
    )
    return " ".join(pieces).replace(" )", ")")
