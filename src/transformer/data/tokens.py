"""Encoding of a corpus to a folder of tokens, with a report that accounts for every pair."""

import json
from collections import deque
from collections.abc import Iterable, Iterator
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
        pairs = self._validation_pairs(encoder.held_out_text)
        self._write_validation(folder / "validation", pairs, self.settings.validation_source or self.settings.name)
        self._write_changed_validation(folder, pairs, encoder.languages)
        content = {"report": report.to_dict(), "validation": pairs, "source_text": encoder.source_text.to_dict()}
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

    def _validation_pairs(self, held_out: dict[str, str]) -> list[Pair]:
        source, target = self.settings.validation_source, self.settings.validation_target
        return list(held_out.items()) if source is None or target is None else self._read_validation(source, target)

    def _stage_validation(self, folder: Path, stage: StageConfig) -> list[Pair]:
        """Reads, encodes and returns the validation pairs of a stage."""
        source, target = stage.validation_source or "", stage.validation_target or ""
        pairs = self._read_validation(source, target)
        self._write_validation(folder / f"{STAGE_VALIDATION}{stage.name}", pairs, source)
        return pairs

    def _read_validation(self, source: str, target: str) -> list[Pair]:
        counts = PairCounts()
        pairs = list(read_pairs(Path(source), Path(target), counts, self.settings.invalid_utf8))
        if counts.too_long:
            raise DataError(f"{source}: {counts.describe_left_out()}; a score must cover all lines, so divide them")
        return pairs

    def _write_validation(self, folder: Path, pairs: list[Pair], name: str) -> None:
        """Encodes the validation pairs; a pair that is too long is an error, because a score must cover all pairs."""
        if not pairs:
            raise DataError(
                f"{self.settings.name}: no pair is left to validate on; name data.validation_source and "
                "validation_target"
            )
        texts = zip(*pairs, strict=True)
        tokenizers = self.tokenizers.source, self.tokenizers.target
        sides = [Ragged(*side.encode_flat(text)) for side, text in zip(tokenizers, texts, strict=True)]
        lengths = np.stack([side.lengths + 1 for side in sides], axis=1)
        long = np.flatnonzero((lengths > self.max_lengths).any(axis=1))
        if len(long):
            sizes = lengths[long[0]]
            raise DataError(
                f"{name}, line {long[0] + 1}: {sizes[0]} source and {sizes[1]} target "
                f"tokens exceed the model's {self.max_lengths[0]} and {self.max_lengths[1]}; shorten it or raise "
                "model.src_seq_len, tgt_seq_len"
            )
        write_pairs(folder, [(sides[0], sides[1])], self.vocab_size)

    def _write_changed_validation(self, folder: Path, pairs: list[Pair], languages: tuple[str, str]) -> None:
        """Encodes changed copies of some validation pairs, by each kind of change that the training pairs get."""
        for kind in self.settings.augment.rates if self.settings.augment is not None else ():
            augmenter = Augmenter(AugmentConfig(**{kind: 1.0}), self.seed, languages)
            copies = [pair for _, pair in augmenter.augment(list(enumerate(pairs[:MAX_CHANGED])))]
            source, target = (
                Ragged(*tokenizer.encode_flat([pair[side] for pair in copies]))
                for side, tokenizer in enumerate((self.tokenizers.source, self.tokenizers.target))
            )
            fits = (source.lengths < self.max_lengths[0]) & (target.lengths < self.max_lengths[1])
            if fits.any():
                rows = [(source.select(fits), target.select(fits))]
                write_pairs(folder / f"{CHANGED_VALIDATION}{kind}", rows, self.vocab_size)


def read_report(folder: Path) -> tuple[DataReport, list[Pair], SourceText | None, dict[str, list[Pair]]]:
    """Reads the report, the validation pairs, the statistics and the validation pairs of stages, by name.

    Earlier versions of `EncodingJob.run` did not write the statistics.
    """
    content = json.loads((folder / REPORT_FILE).read_text(encoding="utf-8"))
    pairs = [(source, target) for source, target in content["validation"]]
    source_text = SourceText.from_dict(content["source_text"]) if "source_text" in content else None
    stages = {name: [(source, target) for source, target in rows] for name, rows in content.get("stages", {}).items()}
    return DataReport.from_dict(content["report"]), pairs, source_text, stages


class _CorpusEncoder:
    """Encodes the training text and counts its pairs."""

    def __init__(self, job: EncodingJob, test_sources: frozenset[str]) -> None:
        self.report = DataReport()
        self.source_text = SourceText()
        self.held_out_text: dict[str, str] = {}  # source -> target of the first pair with this source
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
                self._compare(pairs)
                yield Block(first, pairs)
                first += len(pairs)
            self.report.add_reader_counts(counts)
            self._read[index] += counts.left_out

    def _compare(self, pairs: list[Pair]) -> None:
        """Counts differences between the two sides of some pairs."""
        step = max(1, -(-self._job.pairs // MAX_COMPARED))
        for source, target in pairs[::step]:
            self.report.compared += 1
            self.report.differences.update({kind for kind, _ in pair_differences(source, target, self.languages)})

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
        for source, target in block.held_out_text:
            self.held_out_text.setdefault(source, target)

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
