"""Files to a corpus that training reads: survey, tokenizers, tokens, each worked out once and kept."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from transformer.data.cache import PreparedDataCache
from transformer.data.config import DataConfig, kind_of
from transformer.data.dataset import PairDataset
from transformer.data.filters import DataReport
from transformer.data.fingerprint import FileSnapshot, file_checksum, fingerprint_inputs
from transformer.data.inputs import read_files, training_files
from transformer.data.progress import Progress, silent
from transformer.data.readers import Pair
from transformer.data.token_store import TokenStore
from transformer.data.tokens import EncodingJob, read_text
from transformer.interfaces import DatasetMix
from transformer.tokenizers.config import TokenizerConfig
from transformer.tokenizers.pair import TokenizerPair
from transformer.tokenizers.special_tokens import SpecialTokenIds

SURVEY_FILE: Final = "survey.json"
SHOW_EVERY: Final = 8192


@dataclass(frozen=True)
class CorpusScan:
    """What a first reading of the corpus found.

    Attributes:
        pairs: number of line pairs.
        held_out: source texts drawn for validation; empty where validation files are given.
    """

    pairs: int
    held_out: frozenset[str] = frozenset()


@dataclass
class Corpus:
    """A prepared corpus.

    Attributes:
        train: the kept pairs.
        validation: the validation pairs.
        validation_text: the same as text, for scoring translations.
        report: the account of all pairs.
        notes: what the user should know of how it came about.
    """

    train: PairDataset
    validation: PairDataset
    validation_text: list[Pair] = field(repr=False)
    report: DataReport
    notes: list[str] = field(default_factory=list)


class CorpusBuilder:
    """The steps from the files of a recipe to a corpus; what an earlier one worked out is taken from its folder.

    Attributes:
        sums: of the input files, see `fingerprint_inputs`.
    """

    def __init__(self, settings: DataConfig, seed: int, folder: Path, progress: Progress = silent) -> None:
        """Reads every file once, to tell whether it changed.

        Args:
            settings: the recipe's `data` section.
            seed: of the run; draws the pairs held out.
            folder: where prepared data is kept, unless the settings name one.
            progress: is told how far things are.

        Raises:
            DataError: a file cannot be read.
        """
        self._settings, self._seed, self._progress = settings, seed, progress
        self._inputs = training_files(settings)
        self._folder = PreparedDataCache(Path(settings.prepared) if settings.prepared else folder)
        read = [settings.validation_source, settings.validation_target, settings.test_source]
        held_out = [Path(path) for path in read if path is not None]
        self._stamps = FileSnapshot([*(path for file in self._inputs for path in file.paths), *held_out])
        self.sums = fingerprint_inputs(settings)

    def scan(self) -> CorpusScan:
        """Reads the corpus: counts its pairs and, where no validation files are given, draws the held-out sources.

        Raises:
            DataError: as `CorpusFile.read`.
        """
        path = self._folder.entry("survey", self._drawing(), self._write_scan) / SURVEY_FILE
        values = json.loads(path.read_text(encoding="utf-8"))
        return CorpusScan(values["pairs"], frozenset(values["held_out"]))

    def train_tokenizers(self, settings: TokenizerConfig) -> TokenizerPair:
        """Learns the tokenizers from the training text, or from pairs evenly spread over it where it is very large.

        Raises:
            DataError: as `CorpusFile.read`.
        """

        def write(folder: Path) -> None:
            step = -(-self.scan().pairs // settings.training_pairs)

            def side(index: int) -> Iterator[str]:
                return (pair[index] for pair in self._read("tokenizer", step))

            trained = TokenizerPair.train(lambda: side(0), lambda: side(1), settings)
            for name, content in trained.to_files().items():
                (folder / name).write_text(content, encoding="utf-8")
            self._stamps.check_unchanged()

        facts = {"texts": self._reading(), "tokenizer": settings.model_dump(mode="json")}
        path = self._folder.entry("tokenizer", facts, write)
        files = {file.name: file.read_text(encoding="utf-8") for file in path.glob("tokenizer*.json")}
        return TokenizerPair.from_files(files)

    def prepare(self, tokenizers: TokenizerPair, max_lengths: tuple[int, int]) -> Corpus:
        """Encodes and checks the corpus.

        Args:
            tokenizers: of both sides.
            max_lengths: longest source and target the model takes, EOS included.

        Raises:
            DataError: a file cannot be used or changes meanwhile, or no pair is left.
        """
        settings = self._settings
        facts = {
            "texts": self._drawing(),
            "tokenizers": [tokenizers.source.fingerprint(), tokenizers.target.fingerprint()],
            "max_lengths": list(max_lengths),
            "max_length_ratio": settings.max_length_ratio,
            "drop_duplicates": settings.drop_duplicates,
            "test": settings.test_source and file_checksum(Path(settings.test_source)),
        }

        def write(folder: Path) -> None:
            surveyed = self.scan()
            EncodingJob(settings, tokenizers, max_lengths, surveyed.held_out, surveyed.pairs, self._progress).run(
                folder
            )
            self._stamps.check_unchanged()

        path = self._folder.entry("tokens", facts, write)
        return self._open(path, (tokenizers.source.special_tokens, tokenizers.target.special_tokens))

    def _open(self, path: Path, special_tokens: tuple[SpecialTokenIds, SpecialTokenIds]) -> Corpus:
        report, pairs = read_text(path)
        for file, counted in zip(self._inputs, report.files, strict=True):
            counted.update(name=file.name, weight=file.weight)
        parts = tuple(DatasetMix(file["kept"], file["weight"]) for file in report.files)
        train, validation = (TokenStore(path / name) for name in ("train", "validation"))
        sources = PairDataset(train, parts, special_tokens), PairDataset(validation, special_tokens=special_tokens)
        return Corpus(*sources, pairs, report, self._folder.notes)

    def _write_scan(self, folder: Path) -> None:
        pairs = sum(1 for _ in self._read("survey"))
        held_out: set[str] = set()
        if self._settings.validation_source is None:
            n_held_out = max(1, min(self._settings.validation_pairs, pairs // 20))
            drawn = np.random.default_rng(self._seed).choice(pairs, n_held_out, replace=False)
            held_out = {text for text, _ in _at(np.sort(drawn).tolist(), read_files(self._inputs)) if text.strip()}
        values = {"pairs": pairs, "held_out": sorted(held_out)}
        (folder / SURVEY_FILE).write_text(json.dumps(values, ensure_ascii=False), encoding="utf-8")
        self._stamps.check_unchanged()

    def _read(self, stage: str, step: int = 1) -> Iterator[Pair]:
        """Every `step`-th pair of the training text, with progress."""
        number = 0
        for number, pair in enumerate(read_files(self._inputs)):
            if number % SHOW_EVERY == 0:
                self._progress(stage, number, None)
            if number % step == 0:
                yield pair
        self._progress(stage, number + 1, None)

    def _reading(self) -> dict[str, Any]:
        """What decides the pairs that are read."""
        settings = self._settings
        return {
            "sums": {key: value for key, value in self.sums.items() if not key.startswith("data.validation")},
            "kinds": [kind_of(path) for path in settings.pair_files],
            "columns": settings.columns and list(settings.columns),
            "languages": settings.languages and list(settings.languages),
            "invalid_utf8": settings.invalid_utf8,
        }

    def _drawing(self) -> dict[str, Any]:
        """What decides the pairs that are read and held out."""
        validation = {key: value for key, value in self.sums.items() if key.startswith("data.validation")}
        drawn = None if validation else {"seed": self._seed, "pairs": self._settings.validation_pairs}
        return {**self._reading(), "validation": validation, "drawn": drawn}


def _at(numbers: Iterable[int], pairs: Iterator[Pair]) -> Iterator[Pair]:
    """The pairs of the given ascending numbers."""
    position = 0
    for number in numbers:
        for pair in pairs:
            position += 1
            if position > number:
                yield pair
                break
