"""`transformer translate --shards`: translation of a file by any number of processes."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from transformer.cli.chunks import split_into_chunks, translate_chunks
from transformer.cli.formats import formatter
from transformer.cli.sharding import DoLines, Settings, ShardingOptions, model_identity, work_in_shards
from transformer.options.search import Search

if TYPE_CHECKING:
    from transformer.cli.search import Loading
    from transformer.pipelines.translation.config import Languages
    from transformer.pipelines.translation.terminology import Terminology
    from transformer.text.lines import Invalid


@dataclass(frozen=True)
class OutputFormat:
    """Format of the translations.

    Attributes:
        name: One of `transformer.cli.formats.Format`.
        n_best: Number of alternatives; None writes the best alone.
        min_confidence: Confidence below which the text is marked; None marks none.
    """

    name: str
    n_best: int | None
    min_confidence: float | None


@dataclass(frozen=True)
class ShardedTranslation:
    """A translation in shards.

    Attributes:
        model: Path or name of the model.
        search: The search.
        loading: Options for loading the model.
        terminology: Terms and kept spans.
        languages: `source_language` and `target_language` that were given.
        output: How translations are written.
        invalid: Handling of bytes that are not UTF-8; "error" sets the line apart.
    """

    model: Path
    search: Search
    loading: "Loading"
    terminology: "Terminology"
    languages: "Languages"
    output: OutputFormat
    invalid: "Invalid"

    def run(self, sharding: ShardingOptions, paths: tuple[Path, Path], limit: int) -> None:
        """Translates shards until all are there.

        Args:
            sharding: Options of the command line.
            paths: The input file and the folder of the results.
            limit: Number of characters of a line that are read.

        Raises:
            TransformerError: The model cannot be loaded, or the folder holds other results or cannot be written.
        """
        sampling = self.search.sampling
        settings: Settings = {
            "model": model_identity(self.model),
            "search": repr(self._with_seed(0)),
            "options": repr((sorted(self.loading.options.items()), self.loading.average, self.languages)),
            "terms": repr(self.terminology),
            "format": repr((self.output, self.invalid)),
            "seed": sampling.seed if sampling else 0,
        }
        suffix = ".jsonl" if self.output.name == "jsonl" else ".txt"
        work_in_shards(sharding, paths, settings, self._prepare, suffix=suffix, limit=limit, invalid=self.invalid)

    def _prepare(self, settings: Settings) -> DoLines:
        """Loads the model."""
        search = self._with_seed(settings["seed"])
        translator = self.loading.translator(self.model, search, terminology=self.terminology, **self.languages)
        format_line = formatter(
            self.output.name, all_alternatives=self.output.n_best is not None,
            min_confidence=self.output.min_confidence, seed=settings["seed"] if search.sampling else None,
        )  # fmt: skip

        def translate(n_before: int, lines: Iterator[str]) -> Iterator[bytes]:
            number = n_before
            chunks = ((chunk, None) for chunk in split_into_chunks(lines))
            for chunk, translations in translate_chunks(translator, chunks, None, n_before):
                for source, translation in zip(chunk, translations, strict=True):
                    number += 1
                    yield format_line(number, source, translation).encode() + b"\n"

        return translate

    def _with_seed(self, seed: int) -> Search:
        """Returns the search with another seed of its samples."""
        sampling = self.search.sampling
        return replace(self.search, sampling=replace(sampling, seed=seed)) if sampling else self.search
