"""Preparation of a corpus for training: scan, tokenizers and tokens, each computed once and cached."""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np

from transformer.data.cache import PreparedDataCache
from transformer.data.config import DataConfig, as_list, file_format
from transformer.data.dataset import PairDataset
from transformer.data.fingerprint import FileSnapshot, file_checksum, fingerprint_inputs
from transformer.data.inputs import read_files, training_files
from transformer.data.language_pairs import NO_DIRECTION, Direction, pair_name, sampling_weights
from transformer.data.progress import Progress, silent
from transformer.data.readers import Pair
from transformer.data.report import DataReport
from transformer.data.segmentation import SegmentedPairs
from transformer.data.source_text import SourceText
from transformer.data.stages import GENERAL, StageConfig
from transformer.data.token_batching import update_shares
from transformer.data.token_store import TokenStore
from transformer.data.tokens import CHANGED_VALIDATION, STAGE_VALIDATION, EncodingJob, read_report
from transformer.errors import ConfigError
from transformer.interfaces import ExampleGroup, Stage
from transformer.tokenizers.base import Tokenizer
from transformer.tokenizers.bpe_dropout import BpeDropout
from transformer.tokenizers.byte_pair import BytePairTokenizer
from transformer.tokenizers.config import TokenizerConfig
from transformer.tokenizers.pair import TokenizerPair
from transformer.tokenizers.sentencepiece import SentencePieceTokenizer
from transformer.tokenizers.special_tokens import SpecialTokenIds

SCAN_FILE: Final = "survey.json"
SHOW_EVERY: Final = 8192
UNSEEN_KEYS: Final = {"dropout", "added_pieces"}
"""Keys of the tokenizer that do not matter where it is trained."""
STAGE_KEYS: Final = "data.stages."
EVALUATION_KEYS: Final = ("data.validation", STAGE_KEYS)
"""Beginnings of the recipe keys of texts that are not trained on."""


@dataclass(frozen=True)
class CorpusScan:
    """Results of the first pass over the corpus.

    Attributes:
        pairs: Number of line pairs.
        held_out: Source texts drawn for validation; empty if there are validation files.
    """

    pairs: int
    held_out: frozenset[str] = frozenset()


@dataclass
class Corpus:
    """A prepared corpus.

    Attributes:
        train: Dataset of the training pairs.
        validation: Dataset of the validation pairs.
        validation_text: Text of the validation pairs, for scoring translations.
        report: Counts of kept and dropped pairs.
        source_text: Statistics of the training sources; None if an earlier version prepared the data.
        notes: Notes for the user about the preparation.
        changed_validation: Changed copies of validation pairs, by kind of change.
        further_validation: Validation texts that do not decide which checkpoint is best, by name.
        stages: Parts of a training run, if the recipe has any.
        validation_groups: Number of consecutive validation pairs of each direction; one group for a model of one.
    """

    train: PairDataset | SegmentedPairs
    validation: PairDataset
    validation_text: list[Pair] = field(repr=False)
    report: DataReport
    source_text: SourceText | None = None
    notes: list[str] = field(default_factory=list)
    changed_validation: dict[str, PairDataset] = field(default_factory=dict)
    further_validation: dict[str, tuple[PairDataset, list[Pair]]] = field(default_factory=dict)
    stages: tuple[Stage, ...] = ()
    validation_groups: dict[Direction, int] = field(default_factory=dict)


class CorpusBuilder:
    """Builds a corpus from the files of a recipe in steps; results of earlier runs are read from the cache.

    Attributes:
        checksums: Checksums of the input files, see `fingerprint_inputs`.
    """

    def __init__(self, settings: DataConfig, seed: int, folder: Path, progress: Progress = silent) -> None:
        """Computes the checksum of every file, to detect changes.

        Args:
            settings: The `data` section of the recipe.
            seed: Random seed of the run, which determines the held-out pairs.
            folder: Folder for prepared data, unless the settings name one.
            progress: Callback for progress.

        Raises:
            DataError: a file cannot be read.
        """
        self._settings, self._seed, self._progress = settings, seed, progress
        self._inputs = training_files(settings)
        self._folder = PreparedDataCache(Path(settings.prepared) if settings.prepared else folder)
        evaluation_files = [settings.validation_source, settings.validation_target, settings.test_source]
        for stage in settings.stages or ():
            evaluation_files += [stage.validation_source, stage.validation_target]
        evaluation_paths = [Path(path) for path in evaluation_files if path is not None]
        self._snapshot = FileSnapshot([*(path for file in self._inputs for path in file.paths), *evaluation_paths])
        progress("checking the files", 0, None)
        self.checksums = fingerprint_inputs(settings)

    def scan(self) -> CorpusScan:
        """Reads the corpus: counts its pairs and, if validation files are missing, draws the held-out sources.

        Raises:
            DataError: a file cannot be used, see `CorpusFile.read`.
        """
        path = self._folder.get_or_create("survey", self._split_facts(), self._write_scan) / SCAN_FILE
        values = json.loads(path.read_text(encoding="utf-8"))
        return CorpusScan(values["pairs"], frozenset(values["held_out"]))

    def train_tokenizers(self, settings: TokenizerConfig) -> TokenizerPair:
        """Trains the tokenizers on the training text, or on pairs evenly spread over it if the text is very large.

        Raises:
            DataError: a file cannot be used, see `CorpusFile.read`.
        """

        def write(folder: Path) -> None:
            pairs = self.scan().pairs
            step = -(-pairs // settings.training_pairs)

            def side(index: int) -> Iterator[str]:
                return (pair[index] for pair in self._read("training the tokenizer", step, pairs))

            trained = TokenizerPair.train(lambda: side(0), lambda: side(1), settings)
            for name, content in trained.to_files().items():
                (folder / name).write_text(content, encoding="utf-8")
            self._snapshot.check_unchanged()

        facts = {"texts": self._text_facts(), "tokenizer": settings.model_dump(mode="json", exclude=UNSEEN_KEYS)}
        return _read_tokenizers(self._folder.get_or_create("tokenizer", facts, write))

    def extend_tokenizers(
        self, tokenizers: TokenizerPair, settings: TokenizerConfig, known: Collection[str]
    ) -> TokenizerPair:
        """Returns tokenizers with `settings.added_pieces` learned from the text of new languages, or else from all.

        Args:
            tokenizers: Tokenizers of a trained model.
            settings: The recipe's `tokenizer` section.
            known: Languages of that model.

        Raises:
            ConfigError: The tokenizers are not of byte pairs.
            DataError: A file cannot be used, see `CorpusFile.read`.
        """
        is_new = [language not in known for direction in self._settings.directions for language in direction]

        def write(folder: Path) -> None:
            step = -(-self.scan().pairs // settings.training_pairs)

            def side(index: int) -> Iterator[str]:
                for file in self._inputs:
                    if not any(is_new) or file.direction[index] not in known:
                        self._progress("extending the tokenizer", 0, None)
                        yield from (pair[index] for pair in islice(file.read(), 0, None, step))

            for name, content in tokenizers.extended(lambda: side(0), lambda: side(1), settings).to_files().items():
                (folder / name).write_text(content, encoding="utf-8")
            self._snapshot.check_unchanged()

        facts = {
            "texts": self._text_facts(),
            "known": sorted(known),
            "extends": [tokenizers.source.fingerprint(), tokenizers.target.fingerprint()],
            "keys": [settings.added_pieces, settings.min_frequency, settings.training_pairs],
        }
        return _read_tokenizers(self._folder.get_or_create("tokenizer", facts, write))

    def prepare(self, tokenizers: TokenizerPair, max_lengths: tuple[int, int], dropout: float = 0.0) -> Corpus:
        """Encodes and filters the corpus.

        Args:
            tokenizers: Tokenizers of both sides.
            max_lengths: Maximum source and target length of the model, EOS included.
            dropout: Probability with which a merge is left out where training pairs are segmented.

        Raises:
            ConfigError: `dropout` is set, but a tokenizer is not one of byte pairs.
            DataError: a file cannot be used or changes meanwhile, or no pair remains.
        """
        settings = self._settings
        segmentation = _segmentation(tokenizers, dropout) if dropout else None
        facts = {
            "texts": self._split_facts(),
            "tokenizers": [tokenizers.source.fingerprint(), tokenizers.target.fingerprint()],
            "max_lengths": list(max_lengths),
            "max_length_ratio": settings.max_length_ratio,
            "drop_duplicates": settings.drop_duplicates,
            "test": settings.test_source and file_checksum(Path(settings.test_source)),
        }
        if settings.augment is not None and settings.augment.rates:
            languages = [settings.source_language, settings.target_language]
            facts["augment"] = {"rates": settings.augment.rates, "seed": self._seed, "languages": languages}
        if segmentation:
            facts["words"] = True

        stages: dict[str, object] = {key: value for key, value in self.checksums.items() if key.startswith(STAGE_KEYS)}
        if stages:
            facts["stages"] = stages

        def write(folder: Path) -> None:
            scan = self.scan()
            self._folder.check_space([path for file in self._inputs for path in file.paths])
            job = EncodingJob(
                settings, tokenizers, max_lengths, scan.held_out, scan.pairs, self._progress, self._seed,
                keeps_words=segmentation is not None,
            )  # fmt: skip
            job.run(folder)
            self._snapshot.check_unchanged()

        path = self._folder.get_or_create("tokens", facts, write)
        corpus = self._open(path, (tokenizers.source.special_tokens, tokenizers.target.special_tokens))
        if segmentation:
            sizes = tokenizers.source.vocab_size, tokenizers.target.vocab_size
            corpus.train = SegmentedPairs(
                TokenStore(path / "train"), segmentation, sizes, max_lengths, self._seed, corpus.train.mix,
                self._progress,
            )  # fmt: skip
        return corpus

    def _open(self, path: Path, special_tokens: tuple[SpecialTokenIds, SpecialTokenIds]) -> Corpus:
        record = read_report(path)
        report = record.report
        weights = self._weights([counts["kept"] for counts in report.files])
        for file, counts, weight in zip(self._inputs, report.files, weights, strict=True):
            direction = f"{pair_name(file.direction)} " if file.direction != NO_DIRECTION else ""
            counts.update(name=direction + file.name, weight=weight)
        mix = tuple(ExampleGroup(file["kept"], file["weight"]) for file in report.files)
        stages = tuple(_stage(stage, report) for stage in self._settings.stages or ())
        for file, group in zip(report.files, stages[0].mix if stages else (), strict=False):
            file["weight"] = group.weight
        train = PairDataset(TokenStore(path / "train"), stages[0].mix if stages else mix, special_tokens)
        for file, share in zip(report.files, update_shares(train.lengths, train.mix), strict=True):
            file["updates"] = round(share, 4)

        def dataset(name: str) -> PairDataset:
            return PairDataset(TokenStore(path / name), special_tokens=special_tokens)

        changed = {
            folder.name.removeprefix(CHANGED_VALIDATION): dataset(folder.name)
            for folder in sorted(path.glob(f"{CHANGED_VALIDATION}*"))
        }
        texts = {name: (dataset(f"{STAGE_VALIDATION}{name}"), text) for name, text in record.stages.items()}
        validation = dataset("validation"), record.validation
        groups: dict[Direction, int] = record.groups
        if stages and stages[-1].name in texts:  # decides, and the scores on the text of the run are shown beside it
            validation, texts = texts.pop(stages[-1].name), {GENERAL: validation, **texts}
            groups = {NO_DIRECTION: len(validation[1])}
        return Corpus(
            train, *validation, report, record.source_text, self._folder.notes, changed, texts, stages, groups
        )

    def _weights(self, kept: Sequence[int]) -> list[float]:
        """Returns the number of passes per epoch over each file: its weight, changed by the temperature."""
        weights = [file.weight for file in self._inputs]
        if self._settings.temperature is None:
            return weights
        sizes = [count * weight for count, weight in zip(kept, weights, strict=True)]
        changed = sampling_weights(sizes, [file.direction for file in self._inputs], self._settings.temperature)
        return [weight * factor for weight, factor in zip(weights, changed, strict=True)]

    def _write_scan(self, folder: Path) -> None:
        pairs = sum(1 for _ in self._read("reading the corpus"))
        held_out: set[str] = set()
        if self._settings.language_pairs:
            held_out = self._draw_by_direction()
        elif self._settings.validation_source is None:
            n_held_out = max(1, min(self._settings.validation_pairs, pairs // 20))
            drawn = np.random.default_rng(self._seed).choice(pairs, n_held_out, replace=False)
            held_out = {
                text for text, _ in _pairs_at(np.sort(drawn).tolist(), read_files(self._inputs)) if text.strip()
            }
        values = {"pairs": pairs, "held_out": sorted(held_out)}
        (folder / SCAN_FILE).write_text(json.dumps(values, ensure_ascii=False), encoding="utf-8")
        self._snapshot.check_unchanged()

    def _draw_by_direction(self) -> set[str]:
        """Draws pairs of every direction for validation; returns the texts of both sides, which directions share."""
        settings, held_out = self._settings, set[str]()
        if any(table.validation_source is not None for table in settings.language_pairs):
            return held_out
        for number, direction in enumerate(settings.directions):
            inputs = [file for file in self._inputs if file.direction == direction]
            pairs = sum(1 for _ in read_files(inputs))
            most = max(1, settings.validation_pairs // len(settings.directions))
            rng = np.random.default_rng((self._seed, number))
            drawn = rng.choice(pairs, max(1, min(most, pairs // 20)), replace=False)
            for pair in _pairs_at(np.sort(drawn).tolist(), read_files(inputs)):
                held_out.update(text for text in pair if text.strip())
        return held_out

    def _read(self, stage: str, step: int = 1, total: int | None = None) -> Iterator[Pair]:
        """Yields every `step`-th pair of the training text and reports progress.

        After the last pair the total counts as unknown, because what follows, such as the merges of a tokenizer, is
        not counted.
        """
        number = 0
        for number, pair in enumerate(read_files(self._inputs)):
            if number % SHOW_EVERY == 0:
                self._progress(stage, number, total)
            if number % step == 0:
                yield pair
        self._progress(stage, number + 1, None)

    def _text_facts(self) -> dict[str, object]:
        """Returns the values that determine which pairs are read."""
        settings = self._settings
        return {
            "sums": {key: value for key, value in self.checksums.items() if not key.startswith(EVALUATION_KEYS)},
            "kinds": [file_format(path) for path in settings.pair_files],
            "columns": settings.columns and list(settings.columns),
            "languages": settings.languages and list(settings.languages),
            "invalid_utf8": settings.invalid_utf8,
            **({"tables": self._table_facts()} if settings.language_pairs else {}),
        }

    def _table_facts(self) -> list[object]:
        """Returns what determines the pairs of each table, except for the texts, whose checksums are known."""
        return [
            [*table.direction, table.columns, [file_format(path) for path in as_list(table.file)],
             len(as_list(table.source)), table.validation_source is not None]
            for table in self._settings.language_pairs
        ]  # fmt: skip

    def _split_facts(self) -> dict[str, object]:
        """Returns the values that determine which pairs are read and held out."""
        validation = {key: value for key, value in self.checksums.items() if key.startswith("data.validation")}
        drawn = None if validation else {"seed": self._seed, "pairs": self._settings.validation_pairs}
        return {**self._text_facts(), "validation": validation, "drawn": drawn}


def _read_tokenizers(folder: Path) -> TokenizerPair:
    files = {file.name: file.read_text(encoding="utf-8") for file in folder.glob("tokenizer*.json")}
    return TokenizerPair.from_files(files)


def _segmentation(tokenizers: TokenizerPair, dropout: float) -> tuple[BpeDropout, BpeDropout]:
    """Returns the segmentation of both sides.

    Raises:
        ConfigError: A tokenizer is not one of byte pairs.
    """

    def side(tokenizer: Tokenizer) -> BpeDropout:
        if isinstance(tokenizer, BytePairTokenizer):
            return BpeDropout(tokenizer, dropout)
        has_none = " (Unigram pieces have no merges)" if isinstance(tokenizer, SentencePieceTokenizer) else ""
        raise ConfigError(
            "tokenizer.dropout leaves out merges of byte pairs that the program learned, but this tokenizer is of the "
            f"kind {tokenizer.kind}{has_none}; leave the key out"
        )

    source = side(tokenizers.source)
    return source, source if tokenizers.is_joint else side(tokenizers.target)


def _stage(stage: StageConfig, report: DataReport) -> Stage:
    """Returns a stage with the numbers of examples of the files."""
    groups = [ExampleGroup(file["kept"], weight) for file, weight in zip(report.files, stage.weights, strict=True)]
    return Stage(stage.name, tuple(groups), stage.share, stage.steps)


def _pairs_at(numbers: Iterable[int], pairs: Iterator[Pair]) -> Iterator[Pair]:
    """Yields the pairs with the given numbers, in ascending order."""
    position = 0
    for number in numbers:
        for pair in pairs:
            position += 1
            if position > number:
                yield pair
                break
