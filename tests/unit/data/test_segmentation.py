"""Pairs that are segmented anew in each epoch."""

from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from samples import training_settings, write_lines
from transformer.data.augment.config import AugmentConfig
from transformer.data.batch import PairBatch
from transformer.data.config import DataConfig
from transformer.data.prepare import Corpus, CorpusBuilder
from transformer.data.segmentation import SegmentedPairs
from transformer.data.token_batching import batch_by_tokens
from transformer.errors import ConfigError
from transformer.tokenizers.config import TokenizerConfig
from transformer.tokenizers.pair import TokenizerPair
from transformer.training.distributed.process_group import DistributedContext
from transformer.training.loop import iterate_batches
from transformer.training.monitoring.progress import Position
from transformer.training.update import prepare_batch

WORDS = ("Where is the old station, please?", "Tom bought several books yesterday.", "Nobody understands the teacher.")
MAX_LENGTH = 30


def prepare(
    folder: Path, name: str, rate: float = 0.3, tokenizer: TokenizerConfig | None = None, **options: object
) -> tuple[Corpus, TokenizerPair]:
    """Prepares 300 pairs."""
    for side, suffix in ((0, "en"), (1, "de")):
        write_lines(folder / f"s.{suffix}", [f"{WORDS[(n + side) % 3]} {n}" for n in range(300)])
    settings = DataConfig(
        source=str(folder / "s.en"), target=str(folder / "s.de"), validation_pairs=20,
        **options,  # pyright: ignore[reportArgumentType]
    )  # fmt: skip
    builder = CorpusBuilder(settings, 1, folder / name)
    tokenizers = builder.train_tokenizers(tokenizer or TokenizerConfig(vocab_size=400))
    return builder.prepare(tokenizers, (MAX_LENGTH, MAX_LENGTH), rate), tokenizers


def decoded(batch: PairBatch, tokenizers: TokenizerPair) -> list[str]:
    """Returns the source texts and the target texts of a batch."""
    sides = (tokenizers.source, batch.src), (tokenizers.target, batch.labels)
    return [side.decode([token for token in row if token > 3]) for side, rows in sides for row in rows.tolist()]


def texts(corpus: Corpus, tokenizers: TokenizerPair, epoch: int) -> tuple[list[list[int]], list[str]]:
    """Returns the source tokens of an epoch, and the source and target texts that they stand for."""
    assert isinstance(corpus.train, SegmentedPairs)
    batch = corpus.train.in_epoch(epoch).fetch(np.arange(len(corpus.train.store.lengths)))
    return batch.src.tolist(), decoded(batch, tokenizers)


@pytest.mark.parametrize("joint", [True, False])
def test_each_epoch_segments_the_same_texts_anew(tmp_path: Path, joint: bool) -> None:
    """Catches segmentations that stay, texts that change, and marks of words that reach the model."""
    settings = TokenizerConfig(vocab_size=400, joint=joint)
    corpus, tokenizers = prepare(tmp_path, "a", tokenizer=settings)
    plain, _ = prepare(tmp_path, "a", 0.0, tokenizer=settings)
    batch = plain.train.fetch(np.arange(len(plain.train.lengths)))
    expected = decoded(batch, tokenizers)
    first, second = texts(corpus, tokenizers, 0), texts(corpus, tokenizers, 1)
    assert first[1] == second[1] == expected
    assert first[0] != second[0]
    assert first == texts(corpus, tokenizers, 0)
    for dataset in (corpus.validation, plain.validation):
        assert dataset.lengths.tolist() == plain.validation.lengths.tolist()
    assert corpus.report.to_dict() == plain.report.to_dict()


def test_lengths_are_those_of_the_epoch(tmp_path: Path) -> None:
    """Catches batches beyond their budget, and pairs longer than the model allows."""
    corpus, _ = prepare(tmp_path, "a", 0.6)
    train, usual = corpus.train, prepare(tmp_path, "a", 0.0)[0].train.lengths
    assert isinstance(train, SegmentedPairs)
    for epoch in (0, 3):
        dataset = train.in_epoch(epoch)
        for ids in batch_by_tokens(dataset.lengths, 200, 1, epoch):
            batch = dataset.fetch(ids)
            assert [batch.src.shape[1], batch.tgt.shape[1]] == dataset.lengths[ids].max(axis=0).tolist()
            assert len(ids) == 1 or max(batch.src.numel(), batch.tgt.numel()) <= 200
        assert dataset.lengths.max() <= MAX_LENGTH
        longer = (dataset.lengths > usual).mean()
        assert 0.1 < longer < 1
        assert (dataset.lengths == usual).any(), "pairs that would become too long keep their segmentation"
    assert train.lengths.tolist() != train.in_epoch(3).lengths.tolist()


def test_a_resumed_epoch_has_the_batches_of_an_unbroken_one(tmp_path: Path) -> None:
    """Catches segmentations that depend on the batches before, and batches that are read as in another epoch."""
    corpus, _ = prepare(tmp_path, "a")
    settings = training_settings(batch_tokens=2000)
    read = partial(prepare_batch, corpus.train, DistributedContext(), 2)
    unbroken = iterate_batches(corpus.train, settings, Position())
    batches = [next(unbroken) for _ in range(20)]
    assert batches[-1].epoch >= 1
    for plan, following in pairwise(batches):
        resumed = next(iterate_batches(corpus.train, settings, plan.after))
        assert (resumed.ids.tolist(), resumed.after) == (following.ids.tolist(), following.after)
        for again, batch in zip(read(resumed).micro_batches, read(following).micro_batches, strict=True):
            assert isinstance(again, PairBatch)
            assert isinstance(batch, PairBatch)
            assert again.src.equal(batch.src)
            assert again.labels.equal(batch.labels)


def test_any_number_of_processes_prepares_the_same(tmp_path: Path) -> None:
    """Catches words and copies that depend on the processes."""
    augment = AugmentConfig(lower_case=0.5)
    (alone, tokenizers), (together, _) = (
        prepare(tmp_path, name, augment=augment, workers=workers) for name, workers in (("a", None), ("b", 2))
    )
    assert alone.report.augmented["lower_case"] > 50
    assert texts(alone, tokenizers, 2) == texts(together, tokenizers, 2)


def test_a_tokenizer_without_byte_pairs_is_refused(tmp_path: Path) -> None:
    """Catches a key that other tokenizers ignore."""
    with pytest.raises(ConfigError, match=r"tokenizer\.dropout .* of the kind characters; leave the key out"):
        prepare(tmp_path, "a", tokenizer=TokenizerConfig(kind="characters"))
    with pytest.raises(ValueError, match="has none; use bpe"):
        TokenizerConfig(kind="bytes", dropout=0.1)
