"""`transformer translate --input FOLDER --shards`: documents translated in place by any number of processes."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from transformer.cli.document_report import open_report
from transformer.cli.documents import DocumentFile, report_total, translate_document
from transformer.cli.notes import Notes
from transformer.cli.sharding import ShardedCommand, ShardingOptions, Work, work_in_shards
from transformer.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Callable

    from transformer.cli.sharding import Settings
    from transformer.pipelines.translation.documents import DocumentOptions, DocumentReport
    from transformer.pipelines.translation.translator import Translator
    from transformer.sharding.job import Job, ShardOutput
    from transformer.sharding.shards import Progress, Shard

PARTS: Final = ".shards"
"""Folder of the reports and leases, in that of the translated documents."""


@dataclass(frozen=True)
class DocumentFolder:
    """Documents of a folder, of which shards have whole ones.

    Attributes:
        folder: The folder.
        documents: The documents, in order.
    """

    folder: Path
    documents: Sequence[DocumentFile]
    unit: str = "documents"

    @property
    def sequential(self) -> Sequence[Path]:
        """Implements `Source.sequential`."""
        return ()

    def facts(self) -> Any:
        """Implements `Source.facts`, by the names, formats and sizes of the documents."""
        names = [(str(file.path.relative_to(self.folder)), file.form.name) for file in self.documents]
        return {"documents": hashlib.sha256(repr((names, self._sizes())).encode()).hexdigest()}

    def divide(self, n_shards: int, done: "Progress") -> "tuple[Shard, ...]":
        """Divides the documents into shards of about equal size."""
        from transformer.sharding.shards import Shard

        sizes, n_before = [size + 1 for size in self._sizes()], 0
        numbers: list[int] = []
        for size in sizes:
            numbers.append(n_before * n_shards // sum(sizes))
            n_before += size
        done(n_before)
        shards: list[Shard] = []
        for _, group in groupby(numbers):
            first = shards[-1].first + shards[-1].n_items if shards else 0
            shards.append(Shard(len(shards), first, len([*group])))
        return tuple(shards)

    def _sizes(self) -> list[int]:
        return [file.path.stat().st_size for file in self.documents]


def translate_folder_in_shards(
    sharding: ShardingOptions,
    source: DocumentFolder,
    output: Path,
    command: "tuple[Settings, Callable[[], Settings], Callable[[Settings], Translator]]",
    options: "DocumentOptions",
    notes: Notes,
    *,
    verbose: bool,
    report: Path | None = None,
) -> None:
    """Translates documents until all are there; one that cannot be translated is named, and the others are translated.

    Args:
        sharding: Options of the command line.
        source: The documents.
        output: Folder of the translated documents.
        command: What determines the translations, the settings that the first process decides, and a function of all
            settings that loads the translator.
        options: Which segments are translated, and how they are marked.
        notes: Collector of the notes.
        verbose: Whether all problems are named.
        report: File for all segments that are unsure or left untranslated; None for none.

    Raises:
        ConfigError: The documents would be replaced, or joined.
        TransformerError: The model cannot be loaded, or the folder holds other results or cannot be written.
    """
    from transformer.pipelines.translation.documents import line_translator

    if sharding.join is not None:
        raise ConfigError("--join writes one file, but translated documents are files of their own; leave it out")
    if output.resolve() == source.folder.resolve():
        raise ConfigError(f"{output} is both input and output, which --shards cannot tell apart; choose another folder")

    def prepare(settings: "Settings") -> Work:
        translator = load(settings)
        translate = line_translator(translator)

        def work(shard: "Shard", results: "ShardOutput") -> None:
            for number in range(shard.first, shard.first + shard.n_items):
                file = source.documents[number]
                try:
                    outcome = translate_document(translator, file, options, translate)
                except DataError as error:
                    results.rejected.append((number + 1, f"left out: {error}"))
                    continue
                row = {"document": str(file.path.relative_to(source.folder)), **outcome.to_json()}
                results.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")

        return work

    settings, decide, load = command
    job = work_in_shards(
        sharding, source, output / PARTS,
        ShardedCommand("translate documents", settings, prepare, ".jsonl", decide),
    )  # fmt: skip
    total = _total_of(job, report)
    report_total(total, notes, n_documents=len(source.documents), verbose=verbose)


def _total_of(job: "Job", report: Path | None) -> "DocumentReport":
    """Returns the sum of the reports of all documents, and writes their problems to the file for them."""
    from transformer.pipelines.translation.documents import DocumentReport

    total = DocumentReport()
    with open_report(report) as add:
        for line in b"".join(job.results()).splitlines():
            row: dict[str, Any] = json.loads(line)
            del row["document"]
            outcome = DocumentReport.from_json(row)
            add(outcome.problems)
            total.add(outcome)
    return total
