"""`transformer embed --shards` and `transformer classify --shards`: texts encoded by any number of processes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from transformer.cli.sharded_lines import LineWork, Result, Row
from transformer.cli.sharding import ShardedCommand, ShardingOptions, Work, model_identity, work_in_shards
from transformer.cli.verbosity import say

if TYPE_CHECKING:
    from transformer.pipelines.classification import TextEncoder
    from transformer.sharding.job import Job
    from transformer.text.lines import Invalid


@dataclass(frozen=True)
class ShardedEncoding:
    """Lines that a text encoder reads in shards.

    Attributes:
        name: Name of the command.
        model: Path or name of the model.
        options: What else determines the results.
        invalid: Handling of bytes that are not UTF-8; "error" sets the line apart.
        load: Function that loads the encoder.
        chunk: Number of lines that are sorted by length together.
        encode: Function of the encoder and a chunk that returns the results of its lines.
        unreadable: Function of the encoder that returns the result of a line that cannot be read.
        suffix: End of the names of the results.
        write_joined: Function that writes all results to the joined file; None writes them one after another.
    """

    name: str
    model: Path
    options: object
    invalid: "Invalid"
    load: "Callable[[], TextEncoder]"
    chunk: int
    encode: "Callable[[TextEncoder, Sequence[str]], Iterable[bytes]]"
    unreadable: "Callable[[TextEncoder], bytes]"
    suffix: str = ".txt"
    write_joined: "Callable[[Job, BinaryIO], None] | None" = None

    def run(self, sharding: ShardingOptions, path: Path, folder: Path) -> None:
        """Encodes shards until all are there.

        Args:
            sharding: Options of the command line.
            path: The input file.
            folder: Folder of the results.

        Raises:
            TransformerError: The model cannot be loaded, or the folder holds other results or cannot be written.
        """
        from transformer.sharding.lines import TextFiles
        from transformer.text.lines import MAX_LINE_CHARACTERS

        files = TextFiles([path], self.chunk)
        loaded: list[TextEncoder] = []

        def prepare(decided: object) -> Work:
            del decided
            encoder = self.load()
            loaded.append(encoder)
            unreadable = self.unreadable(encoder)

            def do_rows(n_before: int, rows: Iterator[Row]) -> Iterator[Result]:
                del n_before
                while chunk := [line for (line,) in islice(rows, self.chunk)]:
                    yield from map(Result, self.encode(encoder, chunk))

            return LineWork(files, MAX_LINE_CHARACTERS, self.invalid, lambda number: unreadable).by(do_rows)

        settings = {"model": model_identity(self.model), "options": repr((self.options, self.invalid))}
        command = ShardedCommand(self.name, settings, prepare, self.suffix, write_joined=self.write_joined)
        work_in_shards(sharding, files, folder, command)
        for encoder in loaded:
            report_truncated(encoder)


def report_truncated(encoder: "TextEncoder") -> None:
    """Reports the number of truncated texts on standard error."""
    if encoder.n_truncated:
        max_tokens = encoder.config.max_text_tokens
        say(f"note: {encoder.n_truncated:,} texts exceed the model's {max_tokens} tokens and were truncated")
