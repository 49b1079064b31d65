"""Tables of pairs that commands translate chunk by chunk, and continue where they were stopped."""

import io
import json
import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformer.cli.chunks import split_into_chunks, translate_chunks
from transformer.cli.progress import progress_bar
from transformer.cli.verbosity import say
from transformer.errors import DataError
from transformer.options.search import Search
from transformer.storage.atomic import OutputFile, replace_text

if TYPE_CHECKING:
    from transformer.pipelines.translation.results import Translation
    from transformer.pipelines.translation.translator import Translator

UNFINISHED, FACTS = ".part", ".part.json"
"""Ends of the names of the pairs so far, and of what made them, until all are there."""
Facts = dict[str, Any]


@dataclass(frozen=True)
class PairsFile:
    """A table of pairs, of which some may have been written before.

    Attributes:
        output: File of the whole table.
        facts: Facts that decide what the pairs are, as JSON; "seed" is that of the first call.
        n_done: Number of rows that were written before.
    """

    output: Path
    facts: Facts
    n_done: int

    @classmethod
    def begin(cls, output: Path, facts: Facts) -> "PairsFile":
        """Returns the table of a command, after a check of the rows that were written before.

        The seed may differ, since each call chooses another one unless it is given. A last row that was cut is removed.

        Raises:
            DataError: The rows belong to another command.
        """
        pairs = _beside(output, UNFINISHED)
        if not pairs.exists():
            return cls(output, facts, 0)
        earlier = check_same_facts(facts, _beside(output, FACTS), pairs)
        n_done = size = 0
        with pairs.open("rb+") as file:
            for row in file:
                if row.endswith(b"\n"):
                    n_done, size = n_done + 1, size + len(row)
            file.truncate(size)
        say(f"continues behind line {n_done:,}")
        return cls(output, earlier, n_done)

    def write(
        self,
        translator: "Translator",
        lines: Iterable[str],
        row: "Callable[[str, Translation], tuple[str, str]]",
        first: int = 0,
        facts_file: Path | None = None,
    ) -> None:
        """Translates the lines that are left, and moves the table to its place when all are there.

        Args:
            translator: Translator of the lines.
            lines: All lines of the table.
            row: Function that returns the pair of a line and its translation.
            first: Number of the first line, which determines the random streams.
            facts_file: File for the facts of the whole table; None removes them.
        """
        pairs, facts = _beside(self.output, UNFINISHED), _beside(self.output, FACTS)
        replace_text(facts, json.dumps(self.facts))
        with ExitStack() as stack:
            opened = OutputFile(pairs, os.O_WRONLY | os.O_CREAT | os.O_APPEND, pairs)
            sink = stack.enter_context(io.BufferedWriter(opened))
            done = stack.enter_context(progress_bar("lines"))
            chunks = ((chunk, None) for chunk in split_into_chunks(islice(lines, self.n_done, None)))
            for chunk, translations in translate_chunks(translator, chunks, done, first + self.n_done):
                rows = [row(line, translation) for line, translation in zip(chunk, translations, strict=True)]
                sink.write("".join(map(as_tsv, rows)).encode())
                sink.flush()
        if facts_file is not None:
            replace_text(facts_file, json.dumps(self.facts))
        pairs.replace(self.output)
        facts.unlink()


def check_same_facts(facts: Facts, file: Path, written: Path) -> Facts:
    """Returns the facts in a file after a check that they are those of this command, apart from the seed.

    Args:
        facts: Facts of this command.
        file: File of the facts.
        written: File that was made with them, for messages.

    Raises:
        DataError: They differ.
    """
    earlier: Facts = {}
    with suppress(OSError, ValueError, TypeError):  # missing or damaged: then nothing tells what made the file
        earlier = dict(json.loads(file.read_text(encoding="utf-8")))
    names = dict.fromkeys((*facts, *earlier))
    if changed := [name for name in names if name != "seed" and earlier.get(name) != facts.get(name)]:
        raise DataError(f"{written} was written with another {' and '.join(changed)}; remove it to start anew")
    return earlier


def with_seed(search: Search, seed: int) -> Search:
    """Returns the search with another seed of its samples."""
    return replace(search, sampling=replace(search.sampling, seed=seed)) if search.sampling else search


def _beside(output: Path, end: str) -> Path:
    return output.with_name(output.name + end)


def as_tsv(pair: tuple[str, str]) -> str:
    """Returns the row of a pair, with spaces instead of tabs inside the texts."""
    return "\t".join(side.replace("\t", " ") for side in pair) + "\n"
