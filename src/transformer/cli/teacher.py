"""Teachers: models whose translations of a text a smaller model is trained on."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from shutil import copyfileobj
from typing import TYPE_CHECKING

from transformer.cli.files import check_files
from transformer.cli.outputs import open_output
from transformer.cli.pairs_file import Facts, PairsFile, check_same_facts, with_seed
from transformer.cli.sharding import ShardingOptions, model_identity
from transformer.cli.shards import Shard, lines_of
from transformer.cli.translate_shards import pairs_in_shards, translation_settings
from transformer.options.search import Search
from transformer.storage.atomic import replace_text

if TYPE_CHECKING:
    from transformer.cli.search import Loading
    from transformer.pipelines.translation.results import Translation
    from transformer.pipelines.translation.translator import Translator
    from transformer.text.lines import Invalid

NAME = "distilled"
"""Name of the table of all pairs, without its end, in the folder of the command."""
SHARDS = "distilled-shards"
"""Folder of the results of `--shards`."""


@dataclass(frozen=True)
class Teacher:
    """Models that translate a text for a student.

    Attributes:
        models: The models.
        source: The text.
        references: Its translations by people, by which hypotheses are chosen; None for the most probable ones.
        invalid: Handling of bytes that are not UTF-8.
    """

    models: list[Path]
    source: Path
    references: Path | None
    invalid: "Invalid"

    def translate(self, folder: Path, loading: "Loading", search: Search, shard: Shard | None) -> Path:
        """Writes the pairs of the text and its translations, unless they are there, and returns their file.

        Args:
            folder: Folder of the command.
            loading: Options for loading the models.
            search: Options of the search.
            shard: Part of the text; None for the whole.

        Raises:
            DataError: The file of pairs belongs to another command, or the references have another number of lines.
        """
        output = shard_file(folder, shard)
        facts_file, facts = output.with_suffix(".json"), self._facts(loading, search)
        if output.exists():
            check_same_facts(facts, facts_file, output)
            return output
        if shard is None and (joined := join_shards(folder, facts)):
            return joined
        folder.mkdir(parents=True, exist_ok=True)
        check_files([], [output])
        pairs = PairsFile.begin(output, facts)
        first, lines = lines_of(shard, self.source, self.invalid)
        if self.references is None:
            row = _best
        else:
            search = replace(search, n_best=search.beam)
            references = lines_of(shard, self.references, self.invalid)[1]
            row = _by_reference(islice(references, pairs.n_done, None))
        translator = self._load(loading, with_seed(search, pairs.facts["seed"]))
        with closing(translator):
            pairs.write(translator, lines, row, first, facts_file)
        return output

    def translate_shards(self, folder: Path, loading: "Loading", search: Search, n_shards: int) -> Path:
        """Writes the pairs with all processes that run the same command, and returns the file of all pairs.

        Args:
            folder: Folder of the command.
            loading: Options for loading the models.
            search: Options of the search.
            n_shards: Number of shards.

        Raises:
            DataError: The file of pairs or the shards belong to another command.
        """
        from transformer.pipelines.translation.bayes_risk import most_like

        output, facts = shard_file(folder, None), self._facts(loading, search)
        facts_file = output.with_suffix(".json")
        if output.exists():
            check_same_facts(facts, facts_file, output)
            return output
        sharding = ShardingOptions(n_shards, None)
        inputs = [self.source] if self.references is None else [self.source, self.references]
        paths, parts = sharding.check(inputs, "a text", folder / SHARDS, {})
        search = search if self.references is None else replace(search, n_best=search.beam)

        def pair(row: tuple[str, ...], translation: "Translation") -> tuple[str, str]:
            if len(row) == 1:
                return row[0], translation.text
            return row[0], most_like([alternative.text for alternative in translation.alternatives], row[1])

        settings = translation_settings(
            self.models[0], search, loading, {"source_language": None, "target_language": None},
            teachers=[model_identity(model) for model in self.models],
        )  # fmt: skip
        job = pairs_in_shards(
            "distill", sharding, paths, parts, settings, search, partial(self._load, loading), pair, self.invalid
        )
        replace_text(facts_file, json.dumps({**facts, "seed": job.settings["seed"]}))
        job.join(output)
        job.close()
        return output

    def _facts(self, loading: "Loading", search: Search) -> Facts:
        """Returns what decides the translations."""
        from transformer.data.fingerprint import file_checksum

        return {
            "teachers": [str(model) for model in self.models],
            "text": file_checksum(self.source),
            "references": self.references and file_checksum(self.references),
            "options": repr(sorted(loading.options.items())),
            "search": repr(with_seed(search, 0)),
            "seed": search.sampling.seed if search.sampling else 0,
        }

    def _load(self, loading: "Loading", search: Search) -> "Translator":
        """Loads the models as one translator."""
        ensemble = [*self.models[1:], *loading.options.get("ensemble", ())]
        options = {**loading.options, **({"ensemble": ensemble} if ensemble else {})}
        return replace(loading, options=options).translator(
            self.models[0], search, source_language=None, target_language=None
        )


def shard_file(folder: Path, shard: Shard | None) -> Path:
    """Returns the table of the pairs of a shard, or of the whole text."""
    return folder / (f"{NAME}-{shard.number}-of-{shard.count}.tsv" if shard else f"{NAME}.tsv")


def join_shards(folder: Path, facts: Facts) -> Path | None:
    """Joins the tables of all shards to that of the whole text, and returns it; None if some are missing.

    Args:
        folder: Folder of the tables.
        facts: Facts of the command.

    Raises:
        DataError: A table belongs to another command.
    """
    counts = sorted({int(path.stem.rpartition("-")[2]) for path in folder.glob(f"{NAME}-*-of-*.tsv")})
    for count in counts:
        files = [shard_file(folder, Shard(number, count)) for number in range(1, count + 1)]
        if all(file.exists() for file in files):
            break
    else:
        return None
    for file in files:
        facts = {**facts, **check_same_facts(facts, file.with_suffix(".json"), file)}
    output = shard_file(folder, None)
    replace_text(output.with_suffix(".json"), json.dumps(facts))
    with open_output(output, whole=True) as sink:
        for file in files:
            with file.open("rb") as part:
                copyfileobj(part, sink)
    return output


def _best(line: str, translation: "Translation") -> tuple[str, str]:
    """Returns the pair of a line and its best translation."""
    return line, translation.text


def _by_reference(references: Iterator[str]) -> "Callable[[str, Translation], tuple[str, str]]":
    """Returns a function that pairs each line with the translation most like the next reference."""
    from transformer.pipelines.translation.bayes_risk import most_like

    def row(line: str, translation: "Translation") -> tuple[str, str]:
        return line, most_like([alternative.text for alternative in translation.alternatives], next(references))

    return row
