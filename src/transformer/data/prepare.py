"""Text files to token stores: encode, check and write in a stream."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from transformer.data.checks import DataReport, PairFilter
from transformer.data.readers import PairCounts, read_pairs
from transformer.data.settings import DataSettings
from transformer.data.source import PairSource
from transformer.data.store import TokenStore, write_tokens
from transformer.errors import DataError
from transformer.text.lines import LineCounts, read_lines
from transformer.text.pair import TokenizerPair
from transformer.text.settings import TokenizerSettings

ENCODE_PAIRS = 8192
Pair = tuple[str, str]
TokenPair = tuple[list[int], list[int]]


@dataclass(frozen=True)
class Survey:
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
    """

    train: PairSource
    validation: PairSource
    validation_text: list[Pair] = field(repr=False)
    report: DataReport


def survey(settings: DataSettings, seed: int) -> Survey:
    """Reads the corpus once: counts its pairs and, where no validation files are given, draws the held-out sources.

    Raises:
        DataError: as `read_pairs`.
    """
    pairs = sum(1 for _ in _training_pairs(settings))
    if settings.validation_source is not None:
        return Survey(pairs)
    n_held_out = max(1, min(settings.validation_pairs, pairs // 20))
    drawn = set(np.random.default_rng(seed).choice(pairs, n_held_out, replace=False).tolist())
    texts = (source for line, (source, _) in enumerate(_training_pairs(settings)) if line in drawn)
    return Survey(pairs, frozenset(text for text in texts if text.strip()))


def train_tokenizers(settings: DataSettings, tokenizer: TokenizerSettings) -> TokenizerPair:
    """Trains the tokenizers on the training text."""
    return TokenizerPair.train(
        lambda: read_lines(Path(settings.source), invalid=settings.invalid_utf8),
        lambda: read_lines(Path(settings.target), invalid=settings.invalid_utf8),
        tokenizer,
    )


def prepare(
    settings: DataSettings, tokenizers: TokenizerPair, max_lengths: tuple[int, int], surveyed: Survey, folder: Path
) -> Corpus:
    """Encodes and checks the corpus and writes its token stores into `folder`.

    Args:
        settings: the recipe's `data` section.
        tokenizers: trained on the same text.
        max_lengths: longest source and target the model takes, EOS included.
        surveyed: the first reading.
        folder: made if missing.

    Raises:
        DataError: a file cannot be used, or no pair is left.
    """
    folder.mkdir(parents=True, exist_ok=True)
    report, counts = DataReport(), PairCounts()
    encoder = _Encoder(tokenizers, report)
    pair_filter = PairFilter(*max_lengths, settings.max_length_ratio, settings.drop_duplicates)
    validation_text: dict[str, str] = {}  # the first pair of each held-out source
    overlap = _Overlap(_test_lines(settings))

    def kept() -> Iterator[TokenPair]:
        for text, tokens in encoder.encode(_training_pairs(settings, counts)):
            report.read += 1
            reason = pair_filter.reason_to_drop(*text, len(tokens[0]), len(tokens[1]))
            if reason:
                report.dropped[reason] += 1
            elif text[0] in surveyed.held_out:
                report.held_out += 1
                validation_text.setdefault(*text)
            else:
                overlap.see(text[0])
                report.keep(*tokens)
                yield tokens

    write_tokens(folder / "train.arrow", kept())
    report.add_line_counts(counts)
    report.test_lines, report.test_overlap = overlap.counts()
    if not report.kept:
        raise DataError(f"{settings.source}: no pair is left to train on; {report.lines()[0]}")
    pairs = list(validation_text.items())
    if settings.validation_source is not None and settings.validation_target is not None:
        files = Path(settings.validation_source), Path(settings.validation_target)
        pairs = list(read_pairs(*files, invalid=settings.invalid_utf8))
    _write_validation(folder / "validation.arrow", pairs, tokenizers, max_lengths, settings)
    stores = (PairSource(TokenStore(folder / f"{name}.arrow")) for name in ("train", "validation"))
    return Corpus(*stores, validation_text=pairs, report=report)


class _Encoder:
    """Encodes pairs by the thousand, since the tokenizer works in parallel, and counts bytes that fell back."""

    def __init__(self, tokenizers: TokenizerPair, report: DataReport) -> None:
        self._sides = (tokenizers.source, tokenizers.target)
        self._fallback = [np.array(side.fallback_bytes()) for side in self._sides]
        self._report = report

    def encode(self, pairs: Iterable[Pair]) -> Iterator[tuple[Pair, TokenPair]]:
        stream = iter(pairs)
        while chunk := list(islice(stream, ENCODE_PAIRS)):
            sides = [
                side.encode_batch(texts) for side, texts in zip(self._sides, zip(*chunk, strict=True), strict=True)
            ]
            for fallback, rows in zip(self._fallback, sides, strict=True):
                self._report.fallback_bytes += int(sum(fallback[row].sum() for row in rows if row))
            yield from zip(chunk, zip(*sides, strict=True), strict=True)


class _Overlap:
    """Counts the test lines that are also training sources."""

    def __init__(self, test_lines: list[str] | None) -> None:
        self._test_lines = test_lines
        self._unseen = set(test_lines or ())
        self._seen: set[str] = set()

    def see(self, source: str) -> None:
        if source in self._unseen:
            self._seen.add(source)

    def counts(self) -> tuple[int | None, int | None]:
        """Test lines, and how many were seen; None where no test set is named."""
        if self._test_lines is None:
            return None, None
        return len(self._test_lines), sum(line in self._seen for line in self._test_lines)


def _training_pairs(settings: DataSettings, counts: PairCounts | None = None) -> Iterator[Pair]:
    return read_pairs(Path(settings.source), Path(settings.target), counts, settings.invalid_utf8)


def _test_lines(settings: DataSettings) -> list[str] | None:
    if settings.test_source is None:
        return None
    return list(read_lines(Path(settings.test_source), LineCounts(), settings.invalid_utf8))


def _write_validation(
    path: Path, pairs: list[Pair], tokenizers: TokenizerPair, max_lengths: tuple[int, int], settings: DataSettings
) -> None:
    """Encodes the validation pairs; one that the model cannot take is refused, since a score must cover all."""
    if not pairs:
        raise DataError(
            f"{settings.source}: no pair is left to validate on; name data.validation_source and validation_target"
        )
    sources = tokenizers.source.encode_batch([source for source, _ in pairs])
    targets = tokenizers.target.encode_batch([target for _, target in pairs])
    for line, tokens in enumerate(zip(sources, targets, strict=True), start=1):
        sizes = tuple(len(side) + 1 for side in tokens)
        if sizes[0] > max_lengths[0] or sizes[1] > max_lengths[1]:
            raise DataError(
                f"{settings.validation_source}, line {line}: {sizes[0]} source and {sizes[1]} target tokens exceed the "
                f"model's {max_lengths[0]} and {max_lengths[1]}; shorten it or raise model.src_seq_len, tgt_seq_len"
            )
    write_tokens(path, zip(sources, targets, strict=True))
