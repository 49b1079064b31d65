"""`transformer perplexity --shards`: a text scored by any number of processes.

The windows of a text do not end where its lines do, so the first process writes the tokens of the whole text to a file,
and shards are divided by windows. Then the result is that of one process, to the last digit.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from transformer.cli.sharding import Settings, ShardedCommand, ShardingOptions, Work, model_identity, work_in_shards
from transformer.sharding.shards import Progress, Shard

if TYPE_CHECKING:
    from transformer.pipelines.text_generation import Generator, Perplexity
    from transformer.sharding.job import ShardOutput
    from transformer.text.lines import Invalid

TOKENS: Final = "tokens.npy"


@dataclass
class TokenWindows:
    """The windows of a text, whose tokens are in the folder of the results.

    Attributes:
        path: The text.
        folder: Folder of the results.
        window: Number of tokens of a window; None for as many as the model reads, or all of a shorter text.
        invalid: Handling of bytes that are not UTF-8.
        load: Function that loads the language model.
        column: Column of the texts of a Parquet file; None for a text file.
    """

    path: Path
    folder: Path
    window: int | None
    invalid: "Invalid"
    load: "Callable[[], Generator]"
    column: str | None = None
    unit: str = "windows"
    decided: Settings = field(default_factory=dict[str, Any])

    @property
    def sequential(self) -> Sequence[Path]:
        """Implements `Source.sequential`."""
        return ()

    @cached_property
    def generator(self) -> "Generator":
        """The language model, loaded on first use."""
        return self.load()

    def facts(self) -> Any:
        """Implements `Source.facts`."""
        from transformer.sharding.lines import file_facts

        return file_facts(self.path)

    def divide(self, n_shards: int, done: Progress) -> tuple[Shard, ...]:
        """Writes the tokens of the text, and divides its windows.

        Raises:
            ConfigError: The window exceeds the model's positions.
            DataError: The text cannot be read, or is shorter than a window.
        """
        from transformer.data.windows import open_tokens, write_tokens
        from transformer.storage.atomic import atomic_file

        path = self.folder / TOKENS
        with atomic_file(path) as file:
            n_tokens = write_tokens(file, self._lines(), self.generator.tokenizer, lambda n_lines: None)
        done(self.path.stat().st_size)
        window = self.window or self.generator.default_window(n_tokens)
        n_windows = self.generator.count_windows(open_tokens(path), window)
        self.decided = {"window": window, "tokens": n_tokens}
        batch = self.generator.windows_per_batch(window)
        n_batches = -(-n_windows // batch)
        n_shards = min(n_shards, n_batches)
        starts = [number * n_batches // n_shards * batch for number in range(n_shards)]
        ends = [*starts[1:], n_windows]
        return tuple(Shard(index, *pair) for index, pair in enumerate(zip(starts, _lengths(starts, ends), strict=True)))

    def _lines(self) -> Iterator[str]:
        """Yields the lines of the text; those of a table are its texts, one after another, without missing ones."""
        if self.column is None:
            from transformer.data.windows import running_text

            yield from running_text([self.path], self.invalid)
            return
        from transformer.pipelines.translation.columns import arrow_values
        from transformer.sharding.parquet_rows import ParquetRows

        for (text,) in map(arrow_values, ParquetRows(self.path, [self.column]).all()):
            yield from (f"{line}\n" for line in (text.split("\n") if isinstance(text, str) else []))

    def prepare(self, settings: Settings) -> Work:
        """Returns the function that writes the loss of each window of a shard on a line."""
        from transformer.data.windows import open_tokens

        tokens = open_tokens(self.folder / TOKENS)
        generator = self.generator

        def work(shard: Shard, output: "ShardOutput") -> None:
            windows = range(shard.first, shard.first + shard.n_items)
            for losses in generator.window_losses(tokens, settings["window"], windows):
                output.write("".join(f"{loss!r}\n" for loss in losses).encode())

        return work


def _lengths(starts: Sequence[int], ends: Sequence[int]) -> list[int]:
    return [end - start for start, end in zip(starts, ends, strict=True)]


def perplexity_in_shards(
    sharding: ShardingOptions, windows: TokenWindows, model: Path, options: object
) -> "Perplexity":
    """Scores shards until all are there, and returns the result for the whole text.

    Args:
        sharding: Options of the command line.
        windows: The text.
        model: Path or name of the model.
        options: What else determines the results.
    """
    from transformer.pipelines.text_generation import Perplexity

    settings = {
        "model": model_identity(model),
        "options": repr((options, windows.window, windows.invalid, windows.column)),
    }
    command = ShardedCommand("perplexity", settings, windows.prepare, decide=lambda: windows.decided)
    job = work_in_shards(sharding, windows, windows.folder, command)
    loss = math.fsum(float(line) for line in b"".join(job.results()).split())
    n_predicted = job.n_items * job.settings["window"]
    return Perplexity(loss / n_predicted, n_predicted, job.settings["tokens"] - n_predicted - 1)
