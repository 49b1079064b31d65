"""Preparation of a corpus: from text files to batches."""

import tracemalloc
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samples import write_lines
from substitution import substitute
from transformer.data.config import DataConfig
from transformer.data.dataset import PairDataset, pair_batch
from transformer.data.duplicates import DuplicateFinder, pair_digests
from transformer.data.filters import KEPT, REASONS, PairFilter
from transformer.data.prepare import CorpusBuilder
from transformer.data.ragged import Ragged
from transformer.data.readers import read_pairs
from transformer.data.report import DataReport
from transformer.data.token_batching import batch_by_tokens, epoch_examples, split_micro, update_shares
from transformer.data.token_store import MAX_UINT16_VOCAB, TokenStore, TokenWriter, write_pairs
from transformer.errors import DataError
from transformer.interfaces import ExampleGroup
from transformer.tokenizers.config import TokenizerConfig
from transformer.tokenizers.pair import TokenizerPair


@pytest.mark.parametrize(("n_source", "n_target", "shorter"), [(5, 4, "t.txt"), (2, 7, "s.txt"), (0, 3, "s.txt")])
def test_unequal_line_counts_are_refused_with_both(tmp_path: Path, n_source: int, n_target: int, shorter: str) -> None:
    """Catches truncation to the shorter side, which silently shifts or loses pairs."""
    source = write_lines(tmp_path / "s.txt", ["x"] * n_source)
    target = write_lines(tmp_path / "t.txt", ["y"] * n_target)
    least, longest = sorted((n_source, n_target))
    with pytest.raises(
        DataError, match=rf"has {longest} lines, .* has {least}: line {least + 1} of .* find what {shorter} lacks"
    ):
        list(read_pairs(source, target))


def test_empty_files_are_refused(tmp_path: Path) -> None:
    """Catches a run without data."""
    paths = [write_lines(tmp_path / name, []) for name in "st"]
    with pytest.raises(DataError, match="are empty; give text files with one sentence a line"):
        list(read_pairs(*paths))


@pytest.mark.parametrize(
    ("pair", "tokens", "reason"),
    [
        (("a", "b"), (3, 3), None),
        (("", "b"), (0, 3), "empty"),
        (("a", " \t"), (3, 2), "empty"),
        (("a", "b"), (10, 3), "too long"),
        (("a", "b"), (9, 3), None),
        (("a", "b"), (3, 20), "too long"),
        (("a", "b"), (2, 14), "length ratio"),
        (("a", "b"), (2, 13), None),
        (("a", "b"), (14, 2), "too long"),
    ],
)
def test_reasons_to_drop(pair: tuple[str, str], tokens: tuple[int, int], reason: str | None) -> None:
    """Catches limits that are off by one, EOS included, and a ratio that only limits one side."""
    actual = PairFilter(10, 20, 4.0).reasons([pair[0]], [pair[1]], *(np.array([n]) for n in tokens)).tolist()
    assert actual == [KEPT if reason is None else REASONS.index(reason)]


def repeated(pairs: list[tuple[str, str]], folder: Path, block: int) -> list[bool]:
    finder = DuplicateFinder(folder)
    for start in range(0, len(pairs), block):
        finder.add(pair_digests(*zip(*pairs[start : start + block], strict=True)))
    repeated = finder.repeated().tolist()
    finder.close()
    assert not folder.exists()
    return repeated


def test_duplicates_are_pairs_not_sides(tmp_path: Path) -> None:
    """Catches dropping a second translation of a source, and pairs that only differ in where the source ends."""
    pairs = [("a", "b"), ("a", "c"), ("a", "b"), ("a b", "c"), ("a", "b c"), ("ab", "c"), ("a", "bc"), ("", "abc")]
    assert repeated(pairs, tmp_path / "x", 2) == [row == 2 for row in range(len(pairs))]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("de")), min_size=1, max_size=40), st.integers(1, 7))
def test_all_but_the_first_of_equal_pairs_are_found(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]], block: int
) -> None:
    """Catches an order within a bucket that keeps a later pair, and rows confused between blocks."""
    seen: set[tuple[str, str]] = set()
    expected = [pair in seen or bool(seen.add(pair)) for pair in pairs]
    assert repeated(pairs, tmp_path_factory.mktemp("digests") / "x", block) == expected


def ragged(rows: list[list[int]]) -> Ragged:
    return Ragged.from_rows([np.array(row, np.int32) for row in rows])


@pytest.mark.parametrize("vocab_size", [MAX_UINT16_VOCAB, MAX_UINT16_VOCAB + 1])
def test_store_returns_the_rows_marked_as_examples(tmp_path: Path, vocab_size: int) -> None:
    """Catches rows mixed up between blocks, empty rows, ids truncated to two bytes, and rows that are not examples."""
    rows = [([n, vocab_size - 1], [n] * (n % 3)) for n in range(31)]
    writer = TokenWriter(tmp_path, vocab_size)
    for start, end in ((0, 7), (7, 7), (7, 8), (8, 31)):
        writer.append(*(ragged([row[side] for row in rows[start:end]]) for side in range(2)))
    writer.finish(np.arange(31) % 5 != 2)
    examples = [row for n, row in enumerate(rows) if n % 5 != 2]
    store = TokenStore(tmp_path)
    assert store.lengths.tolist() == [[len(source) + 1, len(target) + 1] for source, target in examples]
    ids = np.random.default_rng(0).permutation(len(examples)).astype(np.uint32)
    for side in range(2):
        taken = store.take(ids, side)
        assert np.split(taken.values, np.cumsum(taken.lengths)[:-1])[3].tolist() == examples[ids[3]][side]
        assert taken.values.tolist() == [token for id in ids for token in examples[id][side]]
    assert not list(tmp_path.glob("*.raw"))


def test_a_store_without_tokens_or_rows_opens(tmp_path: Path) -> None:
    """Catches an empty buffer whose position in the file is read."""
    write_pairs(tmp_path / "a", [(ragged([[], []]), ragged([[], []]))], 300)
    assert TokenStore(tmp_path / "a").take(np.array([1, 0]), 0).lengths.tolist() == [0, 0]
    write_pairs(tmp_path / "b", [], 300)
    assert TokenStore(tmp_path / "b").lengths.shape == (0, 2)


def test_a_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    """Catches a traceback of the library."""
    (tmp_path / "tokens.arrow").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"tokens.arrow: not a token file or damaged; prepare the data again"):
        TokenStore(tmp_path)


lengths_of = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=200)


@given(lengths_of, st.integers(1, 300), st.integers(0, 5))
def test_an_epoch_holds_every_example_once_within_the_budget(
    lengths: list[tuple[int, int]], batch_tokens: int, epoch: int
) -> None:
    """Catches a dropped remainder, a repeated example, and a budget that ignores one side or padding."""
    table = np.array(lengths, dtype=np.int32)
    batches = batch_by_tokens(table, batch_tokens, seed=1, epoch=epoch)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    for ids in batches:
        assert len(ids) == 1 or table[ids].max() * len(ids) <= batch_tokens
    assert len(batches) == len(batch_by_tokens(table, batch_tokens, seed=2, epoch=epoch + 1))


@given(
    st.lists(st.integers(1, 2**31 - 1), min_size=1, max_size=60) | st.lists(st.integers(1, 12), min_size=1),
    st.integers(1, 400),
)
def test_batches_are_cut_as_late_as_the_budget_allows(longest: list[int], batch_tokens: int) -> None:
    """Catches a split of equal lengths that is off by one; the reference adds the sorted lengths one by one."""
    expected: list[int] = []
    for length in sorted(longest):
        if expected and length * (expected[-1] + 1) <= batch_tokens:
            expected[-1] += 1
        else:
            expected.append(1)
    table = np.array([[length, 1] for length in longest], np.int32)
    assert sorted(expected) == sorted(map(len, batch_by_tokens(table, batch_tokens, 1, 0)))


def test_the_plan_does_not_depend_on_how_it_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches positions that restart in each chunk."""
    lengths = np.random.default_rng(0).integers(1, 30, (101, 2)).astype(np.int32)
    expected = [ids.tolist() for ids in batch_by_tokens(lengths, 97, 1, 2)]
    substitute(monkeypatch, "token_batching.CHUNK", 7)
    assert [ids.tolist() for ids in batch_by_tokens(lengths, 97, 1, 2)] == expected


def test_ties_are_of_like_length_on_the_other_sides() -> None:
    """Catches a sort by the longest side alone, which leaves padding on the others."""
    lengths = np.random.default_rng(0).integers(1, 17, (2000, 2)).astype(np.int32)
    lengths[:, 0] = 17
    batches = batch_by_tokens(lengths, 170, 1, 0)
    assert max(np.ptp(lengths[ids, 1]) for ids in batches) <= 1


def test_an_epoch_of_nothing_has_no_batch() -> None:
    """Catches a batch without examples."""
    assert batch_by_tokens(np.zeros((0, 2), np.int32), 7, 1, 0) == []


def test_whole_weights_repeat_and_fractions_take_turns() -> None:
    """Catches a fraction that always omits some examples, or depends on more than seed and epoch."""
    parts = (ExampleGroup(5), ExampleGroup(4, 2.0), ExampleGroup(7, 0.5), ExampleGroup(3, 1.25))
    epochs = [epoch_examples(19, parts, 1, epoch) for epoch in range(8)]
    counts = [np.bincount(ids, minlength=19) for ids in epochs]
    assert all((count[:5] == 1).all() and (count[5:9] == 2).all() for count in counts)
    halves = [set(np.flatnonzero(count[9:16]).tolist()) for count in counts]
    assert [len(half) for half in halves] == [3, 4] * 4
    assert halves[0] | halves[1] == set(range(7))
    assert sum(counts)[9:16].tolist() == [4] * 7
    assert sum(counts)[16:].tolist() == [10] * 3
    assert (epoch_examples(19, parts, 1, 5) == epochs[5]).all()
    assert (epoch_examples(19, parts, 2, 5) != epochs[5]).any()
    plan = batch_by_tokens(np.ones((19, 2), np.int32), 4, 1, 3, parts)
    assert sorted(np.concatenate(plan).tolist()) == sorted(epochs[3].tolist())


def test_share_of_the_updates_is_the_share_of_the_batches() -> None:
    """Catches a share of pairs, which promises a file of single words more updates than it gets."""
    words, sentences = np.full((4000, 2), 2, np.int32), np.full((1000, 2), 24, np.int32)
    mix = (ExampleGroup(4000, 3.0), ExampleGroup(1000, 2.0))
    batches = batch_by_tokens(np.concatenate([words, sentences]), 240, 1, 0, mix)
    share = sum(ids[0] < 4000 for ids in batches) / len(batches)
    assert update_shares(np.concatenate([words, sentences]), mix) == pytest.approx([share, 1 - share], abs=0.01)


def test_order_is_a_function_of_seed_and_epoch() -> None:
    """Catches an order that repeats every epoch, or depends on earlier random numbers."""
    lengths = np.random.default_rng(0).integers(1, 30, (500, 2)).astype(np.int32)

    def plan(seed: int, epoch: int) -> list[list[int]]:
        return [ids.tolist() for ids in batch_by_tokens(lengths, 200, seed, epoch)]

    assert plan(1, 4) == plan(1, 4)
    assert plan(1, 4) != plan(1, 5)
    assert plan(1, 4) != plan(2, 4)
    assert {frozenset(ids) for ids in plan(1, 4)} != {frozenset(ids) for ids in plan(1, 5)}


def test_batches_come_in_random_order() -> None:
    """Catches batches that stay sorted by length, so that a run ends every epoch with the longest examples."""
    lengths = np.random.default_rng(0).integers(1, 30, (500, 2)).astype(np.int32)
    epochs = [
        [int(lengths[ids].max()) for ids in batch_by_tokens(lengths, 200, seed, epoch)]
        for seed in (1, 2)
        for epoch in range(10)
    ]
    assert all(sorted(longest) == sorted(epochs[0]) and longest != sorted(longest) for longest in epochs)
    half = len(epochs[0]) // 2
    first, second = (np.mean([longest[part] for longest in epochs]) for part in (slice(half), slice(half, None)))
    assert abs(first - second) < 2  # the standard deviation of the difference is 0.5
    assert len({longest[0] for longest in epochs}) > 5


def test_batches_waste_little() -> None:
    """Catches missing bucketing: half of batches of shuffled examples would be padding."""
    lengths = np.random.default_rng(0).integers(2, 60, (4000, 1)).repeat(2, axis=1).astype(np.int32)
    batches = batch_by_tokens(lengths, 1000, 1, 0)
    padded = sum(int(lengths[ids].max()) * len(ids) for ids in batches)
    assert lengths[:, 0].sum() / padded > 0.95


def test_micro_batches_are_a_partition() -> None:
    """Catches examples lost when a batch does not divide evenly."""
    parts = split_micro(np.arange(7), 3)
    assert [len(part) for part in parts] == [3, 2, 2]
    assert np.concatenate(parts).tolist() == list(range(7))
    assert len(split_micro(np.arange(2), 5)) == 2


def row(*tokens: int) -> np.ndarray:
    return np.array(tokens, dtype=np.int32)


def test_batch_carries_control_ids() -> None:
    """Catches decoder inputs that equal the labels, and padding within a row."""
    batch = pair_batch([row(5, 6, 7), row(8)], [row(9), row(4, 5)])
    assert batch.src.tolist() == [[5, 6, 7, 2], [8, 2, 0, 0]]
    assert batch.tgt.tolist() == [[1, 9, 0], [1, 4, 5]]
    assert batch.labels.tolist() == [[9, 2, 0], [4, 5, 2]]
    assert batch.scored_tokens == 5


@pytest.fixture
def corpus_settings(tmp_path: Path) -> DataConfig:
    source = [f"word {n}" for n in range(60)] + ["", "word 1", "long " * 50, "tiny", "word 2"]
    target = [f"Wort {n}" for n in range(60)] + ["leer", "Wort 1", "lang " * 50, "sehr " * 35, "anderes Wort"]
    test = write_lines(tmp_path / "test.txt", ["word 3", "word 3", "unseen"])
    return DataConfig(
        source=str(write_lines(tmp_path / "s.txt", source)),
        target=str(write_lines(tmp_path / "t.txt", target)),
        test_source=str(test),
    )


def trained_on(lines: list[str], vocab_size: int) -> TokenizerPair:
    return TokenizerPair.train(lambda: lines, lambda: lines, TokenizerConfig(vocab_size=vocab_size))


@pytest.mark.parametrize("workers", [None, 2])
def test_every_pair_is_accounted_for(corpus_settings: DataConfig, tmp_path: Path, workers: int | None) -> None:
    """Catches a pair that is lost without a reason, training on a held-out pair, and a wrong overlap."""
    settings = corpus_settings.model_copy(update={"workers": workers})
    preparation = CorpusBuilder(settings, 1, tmp_path / "tokens")
    surveyed = preparation.scan()
    assert surveyed.pairs == 65
    texts = (Path(path).read_text().split("\n") for path in (corpus_settings.source, corpus_settings.target))
    tokenizers = trained_on([line for text in texts for line in text], 300)
    corpus = preparation.prepare(tokenizers, (40, 40))
    report = corpus.report
    assert report.read == 65 == report.kept + report.held_out + report.dropped.total()
    assert {r: report.dropped[r] for r in ("empty", "too long", "length ratio")} == {
        "empty": 1, "too long": 1, "length ratio": 1,
    }  # fmt: skip
    trained = {tokenizers.source.decode(corpus.train.fetch(np.array([n])).src[0].tolist()) for n in range(report.kept)}
    held_out = {source for source, _ in corpus.validation_text}
    assert held_out == surveyed.held_out
    assert not trained & held_out
    assert report.dropped["duplicate"] == 1
    assert report.test_lines == 3
    assert report.test_overlap == (2 if "word 3" in trained else 0)
    assert report.kept == len(corpus.train.lengths)
    assert report.target_tokens == corpus.train.lengths[:, 1].sum()
    assert report.longest_source == corpus.train.lengths[:, 0].max()
    assert "pairs read 65" in report.summary()
    assert "length ratio 1" in dict(report.rows())["dropped"]


def test_validation_that_does_not_fit_is_refused(corpus_settings: DataConfig, tmp_path: Path) -> None:
    """Catches a validation score over fewer lines than the files have."""
    settings = corpus_settings.model_copy(
        update={"validation_source": corpus_settings.source, "validation_target": corpus_settings.target}
    )
    with pytest.raises(
        DataError, match=r"s.txt, line 63: \d+ source and \d+ target tokens exceed the model's 60 and 60"
    ):
        CorpusBuilder(settings, 1, tmp_path / "tokens").prepare(trained_on(["word long"], 260), (60, 60))
    assert not list((tmp_path / "tokens").glob("*tokens-*/*"))


@pytest.mark.parametrize("parts", [(), (ExampleGroup(500_000, 2.0), ExampleGroup(500_000, 0.5), ExampleGroup(500_000))])
def test_the_plan_of_an_epoch_takes_20_bytes_an_example(parts: tuple[ExampleGroup, ...]) -> None:
    """Catches another array with a number per example, which a corpus of millions cannot afford."""
    lengths = np.random.default_rng(1).integers(1, 60, (1_500_000, 2)).astype(np.int32)
    examples = len(epoch_examples(len(lengths), parts, 1, 0))
    tracemalloc.start()
    batches = batch_by_tokens(lengths, 4096, 1, 0, parts)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(map(len, batches)) == examples
    assert peak < 20 * examples + 2**23, f"{peak / examples:.1f} bytes an example"


def test_nothing_left_is_refused(corpus_settings: DataConfig, tmp_path: Path) -> None:
    """Catches an empty token store that fails later in numpy, and an incomplete store that remains."""
    with pytest.raises(DataError, match="no pair is left to train on; pairs read 65: kept 0"):
        CorpusBuilder(corpus_settings, 1, tmp_path / "tokens").prepare(trained_on(["word"], 260), (2, 2))
    assert not list((tmp_path / "tokens").glob("*tokens-*/*"))


def test_nothing_left_to_validate_on_is_refused(tmp_path: Path) -> None:
    """Catches a validation without pairs: the only held-out source is empty."""
    paths = [write_lines(tmp_path / name, ["", ""]) for name in "st"]
    settings = DataConfig(source=str(paths[0]), target=str(paths[1]), max_length_ratio=99)
    with pytest.raises(DataError, match="no pair is left"):
        CorpusBuilder(settings, 1, tmp_path / "tokens").prepare(trained_on(["word"], 260), (9, 9))


def test_a_filter_that_takes_most_pairs_is_named() -> None:
    """Catches a report that does not warn when most pairs are dropped, and a setting for another reason."""
    report = DataReport(read=20, kept=8, held_out=1, dropped=Counter({"length ratio": 6, "duplicate": 5}))
    advice = "more pairs were dropped than kept, most for length ratio: raise data.max_length_ratio"
    assert advice in "\n".join(text for _, text in report.rows())


def test_report_names_every_reason() -> None:
    """Catches reasons that are omitted when they are zero, so that the files of two runs differ in their keys."""
    report = DataReport(read=1, kept=1, dropped=Counter())
    assert not any("more pairs" in text for _, text in report.rows())
    assert report.to_dict()["dropped"] == {"empty": 0, "too long": 0, "length ratio": 0, "duplicate": 0}
    assert DataReport.from_dict(report.to_dict()) == report


def test_source_lengths_count_eos(tmp_path: Path) -> None:
    """Catches a budget that ignores the special tokens."""
    write_pairs(tmp_path, [(ragged([[5, 6]]), ragged([[7]]))], 300)
    dataset = PairDataset(TokenStore(tmp_path))
    assert dataset.lengths.tolist() == [[3, 2]]
    batch = dataset.fetch(np.array([0]))
    assert (batch.src.size(1), batch.labels.size(1)) == (3, 2)


def test_sentences_are_counted_by_the_rules_of_the_source_language(tmp_path: Path) -> None:
    """Catches German ordinals that count as sentence ends in training, but not in translation."""
    source = write_lines(tmp_path / "train.de", [f"Am 3. Oktober kam Nummer {number} an." for number in range(60)])
    target = write_lines(tmp_path / "train.en", [f"Number {number} came on 3 October." for number in range(60)])
    builder = CorpusBuilder(DataConfig(source=str(source), target=str(target)), 1, tmp_path / "cache")
    tokenizers = builder.train_tokenizers(TokenizerConfig(vocab_size=300))
    source_text = builder.prepare(tokenizers, (100, 100)).source_text
    assert source_text is not None
    assert set(source_text.sentences) == {1}
