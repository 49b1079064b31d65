"""Encoding of a corpus to a folder of tokens, with a report that accounts for every pair."""

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from transformer.data.augment.augmenter import Augmenter
from transformer.data.augment.config import AugmentConfig
from transformer.data.config import DataConfig
from transformer.data.duplicates import DuplicateFinder
from transformer.data.encoding import (
    BLOCK_CHARACTERS,
    BLOCK_PAIRS,
    Block,
    BlockEncoder,
    EncodedBlock,
    encode_blocks,
    worker_count,
)  # fmt: skip
from transformer.data.filters import PairFilter
from transformer.data.inputs import read_files, training_files
from transformer.data.language_pairs import NO_DIRECTION, Direction, pair_name
from transformer.data.languages import identify_languages
from transformer.data.progress import Progress
from transformer.data.quality.kept_spans import pair_differences
from transformer.data.ragged import Ragged
from transformer.data.readers import Pair, PairCounts, read_pairs, read_side
from transformer.data.report import DataReport
from transformer.data.source_text import SourceText
from transformer.data.stages import StageConfig, own_validation
from transformer.data.token_store import TokenStore, TokenWriter, write_pairs
from transformer.errors import DataError
from transformer.tokenizers.pair import TokenizerPair

REPORT_FILE: Final = "account.json"
CHANGED_VALIDATION: Final = "validation-"
"""Beginning of the name of a folder with changed validation pairs; the kind of change follows."""
STAGE_VALIDATION: Final = "stage-"
"""Beginning of the name of a folder with the validation pairs of a stage; its name follows."""
MAX_CHANGED: Final = 500
"""Maximum number of validation pairs that are changed in each way."""
MAX_COMPARED: Final = 5000
"""Approximate number of pairs whose numbers, placeholders, tags, addresses and final punctuation are compared."""


@dataclass(frozen=True)
class EncodingJob:
    """Encodes a corpus.

    Attributes:
        settings: The `data` section of the recipe.
        tokenizers: Tokenizers of both sides.
        max_lengths: Maximum source and target length, EOS included.
        held_out: Sources held out for validation.
        pairs: Number of pairs in the corpus.
        progress: Callback for progress.
        seed: Random seed of the run, which determines the changed copies.
        keeps_words: Whether the training pairs are stored with the beginnings of their words, for BPE dropout.
    """

    settings: DataConfig
    tokenizers: TokenizerPair
    max_lengths: tuple[int, int]
    held_out: frozenset[str]
    pairs: int
    progress: Progress
    seed: int = 0
    keeps_words: bool = False

    def run(self, folder: Path) -> None:
        """Writes `train`, `validation` and the report to an empty folder.

        Raises:
            DataError: a file cannot be used, or no pair remains for training or validation.
        """
        test = self._test_lines()
        encoder = _CorpusEncoder(self, frozenset(test or ()))
        encoder.encode(folder)
        report = encoder.report
        if test is not None:
            report.test_lines = len(test)
            report.test_overlap = sum(line in encoder.test_sources for line in test)
        if not report.kept:
            advice = report.advice() or "give more pairs"
            raise DataError(f"{self.settings.name}: no pair is left to train on; {report.summary()}; {advice}")
        groups = self._validation_groups(encoder.held_out_text)
        self._write_validation(folder / "validation", groups)
        self._write_changed_validation(folder, groups, encoder.languages)
        pairs = [pair for group in groups.values() for pair in group]
        content: dict[str, object] = {
            "report": report.to_dict(),
            "validation": pairs,
            "source_text": encoder.source_text.to_dict(),
        }
        if self.settings.language_pairs:
            content["validation_groups"] = [[*direction, len(group)] for direction, group in groups.items()]
        if stages := own_validation(self.settings.stages or ()):
            content["stages"] = {stage.name: self._stage_validation(folder, stage) for stage in stages}
        (folder / REPORT_FILE).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")

    @property
    def vocab_size(self) -> int:
        """Vocabulary size of the larger side."""
        return max(self.tokenizers.source.vocab_size, self.tokenizers.target.vocab_size)

    def _test_lines(self) -> list[str] | None:
        path, invalid = self.settings.test_source, self.settings.invalid_utf8
        return None if path is None else read_side(Path(path), 0, invalid, "cut")

    def _validation_groups(self, held_out: Mapping[Direction, dict[str, str]]) -> dict[Direction, list[Pair]]:
        """Returns the validation pairs by direction: those of the files, or else those that are held out."""
        tables = [table for table in self.settings.language_pairs if table.validation_source is not None]
        if tables:
            groups: dict[Direction, list[Pair]] = {table.direction: [] for table in tables}
            for table in tables:
                groups[table.direction] += self._read_validation(table.validation_source, table.validation_target)
            return groups
        if self.settings.validation_source is not None:
            pairs = self._read_validation(self.settings.validation_source, self.settings.validation_target)
            return {NO_DIRECTION: pairs}
        if not self.settings.language_pairs:
            return {NO_DIRECTION: list(held_out.get(NO_DIRECTION, {}).items())}
        most = max(1, self.settings.validation_pairs // len(self.settings.directions))
        groups = {direction: list(held_out.get(direction, {}).items()) for direction in self.settings.directions}
        return {direction: group[:: -(-len(group) // most)] if group else [] for direction, group in groups.items()}

    def _stage_validation(self, folder: Path, stage: StageConfig) -> list[Pair]:
        """Reads, encodes and returns the validation pairs of a stage."""
        pairs = self._read_validation(stage.validation_source, stage.validation_target)
        name = stage.validation_source
        self._write_validation(folder / f"{STAGE_VALIDATION}{stage.name}", {NO_DIRECTION: pairs}, name)
        return pairs

    def _read_validation(self, source: str | None, target: str | None) -> list[Pair]:
        counts = PairCounts()
        pairs = list(read_pairs(Path(source or ""), Path(target or ""), counts, self.settings.invalid_utf8))
        if counts.too_long:
            raise DataError(f"{source}: {counts.describe_left_out()}; a score must cover all lines, so divide them")
        return pairs

    def _write_validation(self, folder: Path, groups: Mapping[Direction, list[Pair]], name: str | None = None) -> None:
        """Encodes the validation pairs; a pair that is too long is an error, because a score must cover all pairs."""
        rows = [self._encode_validation(direction, pairs, name) for direction, pairs in groups.items()]
        write_pairs(folder, rows, self.vocab_size)

    def _encode_validation(self, direction: Direction, pairs: list[Pair], name: str | None) -> tuple[Ragged, Ragged]:
        if not pairs:
            of_direction = f" of {pair_name(direction)}" if direction != NO_DIRECTION else ""
            raise DataError(
                f"{self.settings.name}: no pair{of_direction} is left to validate on; name validation_source and "
                "validation_target"
            )
        sides = source, target = self._encode(direction, pairs)
        lengths = np.stack([side.lengths + 1 for side in sides], axis=1)
        long = np.flatnonzero((lengths > self.max_lengths).any(axis=1))
        if len(long):
            sizes = lengths[long[0]]
            of_direction = [table for table in self.settings.language_pairs if table.direction == direction]
            named = of_direction[0].validation_source if of_direction else self.settings.validation_source
            raise DataError(
                f"{name or named or self.settings.name}, line {long[0] + 1}: {sizes[0]} source and {sizes[1]} target "
                f"tokens exceed the model's {self.max_lengths[0]} and {self.max_lengths[1]}; shorten it or raise "
                "model.src_seq_len, tgt_seq_len"
            )
        return source, target

    def _encode(self, direction: Direction, pairs: list[Pair]) -> tuple[Ragged, Ragged]:
        tokenizers = self.tokenizers.to_language(direction[1])
        source = Ragged(*tokenizers.source.encode_flat([source for source, _ in pairs]))
        return source, Ragged(*tokenizers.target.encode_flat([target for _, target in pairs]))

    def _write_changed_validation(
        self, folder: Path, groups: Mapping[Direction, list[Pair]], languages: tuple[str, str]
    ) -> None:
        """Encodes changed copies of some validation pairs, by each kind of change that the training pairs get."""
        for kind in self.settings.augment.rates if self.settings.augment is not None else ():
            rows = list[tuple[Ragged, Ragged]]()
            for direction, pairs in groups.items():
                of_pairs = languages if direction == NO_DIRECTION else direction
                augmenter = Augmenter(AugmentConfig(**{kind: 1.0}), self.seed, of_pairs)
                copies = augmenter.augment(list(enumerate(pairs[: MAX_CHANGED // len(groups)])))
                source, target = self._encode(direction, [pair for _, pair in copies])
                fits = (source.lengths < self.max_lengths[0]) & (target.lengths < self.max_lengths[1])
                rows += [(source.select(fits), target.select(fits))] if fits.any() else []
            if rows:
                write_pairs(folder / f"{CHANGED_VALIDATION}{kind}", rows, self.vocab_size)


@dataclass(frozen=True)
class EncodingRecord:
    """Record that `EncodingJob.run` writes beside the tokens.

    Attributes:
        report: Counts of the pairs.
        validation: Text of the validation pairs.
        source_text: Statistics of the training sources; None if an earlier version wrote the folder.
        groups: Number of consecutive validation pairs of each direction; one group without `[[data.pairs]]`.
        stages: Text of the validation pairs of stages, by name.
    """

    report: DataReport
    validation: list[Pair]
    source_text: SourceText | None
    groups: dict[Direction, int]
    stages: dict[str, list[Pair]]


def read_report(folder: Path) -> EncodingRecord:
    """Reads the report, the validation pairs and the statistics that `EncodingJob.run` wrote."""
    content = json.loads((folder / REPORT_FILE).read_text(encoding="utf-8"))
    pairs = [(source, target) for source, target in content["validation"]]
    source_text = SourceText.from_dict(content["source_text"]) if "source_text" in content else None
    groups = {(source, target): count for source, target, count in content.get("validation_groups", ())}
    stages = {name: [(source, target) for source, target in rows] for name, rows in content.get("stages", {}).items()}
    report = DataReport.from_dict(content["report"])
    return EncodingRecord(report, pairs, source_text, groups or {NO_DIRECTION: len(pairs)}, stages)


class _CorpusEncoder:
    """Encodes the training text and counts its pairs."""

    def __init__(self, job: EncodingJob, test_sources: frozenset[str]) -> None:
        self.report = DataReport()
        self.source_text = SourceText()
        self.held_out_text: dict[Direction, dict[str, str]] = {}  # source -> target of the first pair with this source
        self.test_sources: set[str] = set()
        self._job = job
        self._inputs = training_files(job.settings)
        self._origins: deque[int] = deque()  # file index of each block that is being encoded
        self._read, self._rows = [0] * len(self._inputs), [0] * len(self._inputs)
        self._held_out = [np.zeros(0, bool)]  # one byte per pair
        pair_filter = PairFilter(*job.max_lengths, job.settings.max_length_ratio)
        duplicates = job.settings.drop_duplicates
        self.languages = self._identify_languages()
        augment = job.settings.augment
        self._encoder = BlockEncoder(
            job.tokenizers, pair_filter, duplicates, job.held_out, test_sources, self.languages[0],
            Augmenter(augment, job.seed, self.languages) if augment is not None and augment.rates else None,
            job.keeps_words,
        )  # fmt: skip

    def _identify_languages(self) -> tuple[str, str]:
        """Returns the languages, named or detected at the beginning of the corpus; "" for one that is not known."""
        if self._job.settings.language_pairs:
            return self._job.settings.directions[0]
        with closing(read_files(self._inputs)) as pairs:
            source, target = identify_languages(self._job.settings, list(islice(pairs, BLOCK_PAIRS)))
        return source.tag or "", target.tag or ""

    def encode(self, folder: Path) -> None:
        """Writes the tokens of all files and completes the report."""
        duplicates = self._job.settings.drop_duplicates
        workers = worker_count(self._job.settings.workers, self._job.pairs)
        with ExitStack() as stack:
            writer = TokenWriter(folder / "train", self._job.vocab_size * (2 if self._job.keeps_words else 1))
            stack.callback(writer.close)
            finder = DuplicateFinder(folder / "digests")
            stack.callback(finder.close)
            blocks = stack.enter_context(closing(encode_blocks(self._encoder, self._blocks(), workers)))
            for block in blocks:
                self._count_block(block)
                writer.append(block.source, block.target)
                if duplicates:
                    finder.add(block.digests)
            repeated = finder.repeated() if duplicates else np.zeros(writer.rows, bool)
            held_out = np.concatenate(self._held_out)
            self.report.dropped["duplicate"] += int(repeated.sum())
            self.report.held_out = int((held_out & ~repeated).sum())
            chosen = ~(held_out | repeated)
            writer.finish(chosen)
        self._count_files(chosen)
        self.report.count_kept(TokenStore(folder / "train").lengths)

    def _blocks(self) -> Iterator[Block]:
        """Yields the blocks of all files and records the file of each; no block spans two files."""
        first = 0
        for index, file in enumerate(self._inputs):
            counts = PairCounts()
            for pairs in _make_blocks(file.read(counts)):
                self._origins.append(index)
                self._compare(pairs, file.direction)
                yield Block(first, pairs, file.direction)
                first += len(pairs)
            self.report.add_reader_counts(counts)
            self._read[index] += counts.left_out

    def _compare(self, pairs: list[Pair], direction: Direction) -> None:
        """Counts differences between the two sides of some pairs."""
        languages = self.languages if direction == NO_DIRECTION else direction
        step = max(1, -(-self._job.pairs // MAX_COMPARED))
        for source, target in pairs[::step]:
            self.report.compared += 1
            self.report.differences.update({kind for kind, _ in pair_differences(source, target, languages)})

    def _count_block(self, block: EncodedBlock) -> None:
        origin = self._origins.popleft()
        self._read[origin] += block.read
        self._rows[origin] += len(block.source)
        self.report.read += block.read
        self._job.progress("encoding and filtering pairs", self.report.read, self._job.pairs)
        self.report.dropped += block.dropped
        self.report.augmented += block.augmented
        self.report.add_text_counts(block.fallback_bytes, block.n_tokens, block.n_fallback, block.traits)
        self._held_out.append(block.held_out)
        self.test_sources.update(block.test_sources)
        self.source_text.add(block.source_text)
        group = self.held_out_text.setdefault(self._inputs[origin].direction, {})
        for source, target in block.held_out_text:
            group.setdefault(source, target)

    def _count_files(self, chosen: NDArray[np.bool_]) -> None:
        ends = np.cumsum(self._rows)[:-1]
        kept = [int(part.sum()) for part in np.split(chosen, ends)]
        self.report.files = [
            {"read": n_read, "kept": n_kept, "name": file.name, "weight": file.weight}
            for file, n_read, n_kept in zip(self._inputs, self._read, kept, strict=True)
        ]


def _make_blocks(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    """Groups the pairs into blocks of at most `BLOCK_PAIRS` pairs and `BLOCK_CHARACTERS` characters."""
    block: list[Pair] = []
    characters = 0
    for pair in pairs:
        size = len(pair[0]) + len(pair[1])
        if block and (len(block) == BLOCK_PAIRS or characters + size > BLOCK_CHARACTERS):
            yield block
            block, characters = [], 0
        block.append(pair)
        characters += size
    if block:
        yield block
