"""Readers of parallel text files, and of trees with their words."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from pathlib import Path
from typing import Literal, NoReturn

from transformer.data.documents import is_bilingual, read_document_pairs
from transformer.errors import DataError, counted
from transformer.text.lines import MAX_LINE_CHARACTERS, Invalid, LineCounts, Overlong, is_overlong, read_lines
from transformer.text.trees import is_treebank, read_trees

Pair = tuple[str, str]
Side = Literal[0, 1]
"""Source or target."""


@dataclass
class PairCounts:
    """Counts of the lines read; a file with both sides counts as source.

    Attributes:
        source: Counts of the source lines.
        target: Counts of the target lines.
        line_breaks: Number of pairs with line breaks inside a text, which were replaced by spaces.
        headers: Number of first rows that name two languages or sides; they are headers.
        too_long: Number of pairs left out because a text is too long for a tokenizer.
        damaged: Number of pairs left out because a text holds a character that its format does not allow.
        unused: Number of translations of documents that are not used, by reason.
    """

    source: LineCounts = field(default_factory=LineCounts)
    target: LineCounts = field(default_factory=LineCounts)
    line_breaks: int = 0
    headers: int = 0
    too_long: int = 0
    damaged: int = 0
    unused: Counter[str] = field(default_factory=Counter[str])

    @property
    def left_out(self) -> int:
        """Number of pairs that the readers left out."""
        return self.too_long + self.damaged + self.unused.total()

    def describe_left_out(self) -> str:
        """Describes why pairs were left out."""
        reasons = {
            f"longer than {MAX_LINE_CHARACTERS:,} characters": self.too_long,
            "with a character that XML does not allow": self.damaged,
            **self.unused,
        }
        return ", ".join(f"{count:,} {reason}" for reason, count in reasons.items() if count)

    def add(self, other: "PairCounts") -> None:
        """Adds the counts of another file."""
        self.line_breaks += other.line_breaks
        self.headers += other.headers
        self.too_long += other.too_long
        self.damaged += other.damaged
        self.unused += other.unused
        for total, counts in ((self.source, other.source), (self.target, other.target)):
            total.lines += counts.lines
            total.carriage_returns += counts.carriage_returns
            total.replaced += counts.replaced


def read_pairs(
    source: Path, target: Path, counts: PairCounts | None = None, invalid: Invalid = "error"
) -> Iterator[Pair]:
    """Yields line n of the source with line n of the target; pairs with an overlong line are counted instead.

    Raises:
        DataError: a file cannot be read, both files are empty, or one has more lines than the other. Different lengths
            are detected at the end of the shorter file, and the message contains both line counts.
    """
    counts = counts if counts is not None else PairCounts()
    for pair in read_all_pairs(source, target, counts, invalid):
        if any(map(is_overlong, pair)):
            counts.too_long += 1
        else:
            yield pair


def read_all_pairs(
    source: Path, target: Path, counts: PairCounts | None = None, invalid: Invalid = "error"
) -> Iterator[Pair]:
    """Same as `read_pairs`, but also yields the pairs with an overlong line, which is cut, see `decode_lines`.

    Of a file that is both source and target, yields the words and the symbols of each tree, or the translations of a
    document (PO, XLIFF) with their sources.
    """
    counts = counts if counts is not None else PairCounts()
    if source == target and is_bilingual(source):
        yield from read_document_pairs(source, counts.unused)
        return
    if source == target and is_treebank(source):
        yield from read_trees(read_lines(source, counts.source, invalid), str(source))
        return
    sources = read_lines(source, counts.source, invalid, overlong="cut")
    targets = read_lines(target, counts.target, invalid, overlong="cut")
    for pair in zip_longest(sources, targets):
        if pair[0] is None or pair[1] is None:
            for _ in chain(sources, targets):  # count the remaining lines of the longer file
                pass
            raise_unequal_lines(source, target, (counts.source.lines, counts.target.lines))
        yield pair
    if not counts.source.lines:
        raise DataError(f"{source} and {target} are empty; give text files with one sentence a line")


def read_side(
    path: Path,
    side: Side,
    invalid: Invalid = "error",
    overlong: Overlong = "error",
    counts: PairCounts | None = None,
    languages: tuple[str | None, str | None] = (None, None),
) -> list[str]:
    """Returns the lines of one side of a test set: of a text file, or one side of a file of trees or translations.

    Args:
        path: Path of the file.
        side: Side of a file that holds both.
        invalid: Treatment of bytes that are not UTF-8, as in `read_lines`.
        overlong: Treatment of overlong lines, as in `read_lines`.
        counts: Counts that are updated while reading.
        languages: Source and target language, which choose the texts of a translation memory (TMX).

    Raises:
        DataError: The file cannot be read, or is a translation memory and the languages are not known.
    """
    if ".tmx" in path.suffixes[-2:]:
        return [replace_line_ends(pair[side]) for pair in _memory_pairs(path, languages, counts, invalid)]
    if is_treebank(path) or is_bilingual(path):
        return [replace_line_ends(pair[side]) for pair in read_all_pairs(path, path, counts, invalid)]
    return list(read_lines(path, invalid=invalid, overlong=overlong))


def replace_line_ends(text: str) -> str:
    """Replaces line ends within a text by spaces."""
    return text.replace("\r\n", " ").replace("\n", " ")


def _memory_pairs(
    path: Path, languages: tuple[str | None, str | None], counts: PairCounts | None, invalid: Invalid
) -> Iterator[Pair]:
    from transformer.data.tmx import read_tmx  # which imports this module

    source, target = languages
    if not source or not target:
        raise DataError(f"{path} may hold more than two languages; give --source-language and --target-language")
    pairs = read_tmx(path, (source, target), counts, invalid)
    return (pair for pair in pairs if all(map(str.strip, pair)))


def raise_unequal_lines(source: Path, target: Path, lines: tuple[int, int]) -> NoReturn:
    """Raises an error that names the shorter file and, if it can be detected, the place of the missing line.

    Args:
        source: Source file.
        target: Target file.
        lines: Number of lines of source and target.

    Raises:
        DataError: always.
    """
    from transformer.data.quality.shifts import first_shift  # rarely needed

    (n_shorter, shorter), (n_longer, longer) = sorted(zip(lines, (source, target), strict=True))
    can_read_again = source.is_file() and target.is_file()
    shift = first_shift(source, target) if can_read_again else None
    if shift is None:
        hint = "`transformer check` may find the line"
    elif shift.source_line > lines[0] or shift.target_line > lines[1]:
        hint = f"it seems that {shorter.name} was cut at its end"
    else:
        hint = f"it seems that {shift.describe(source.name, target.name)}"
    raise DataError(
        f"{longer} has {counted(n_longer, 'line')}, {shorter} has {n_shorter:,}: line {n_shorter + 1:,} of "
        f"{longer.name} has no partner; line n of one must be the translation of line n of the other, so find what "
        f"{shorter.name} lacks; {hint}"
    )
