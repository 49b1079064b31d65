"""From files to batches: nothing lost, everything accounted for."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import write_lines
from transformer.data.batches import plan_epoch, split_micro
from transformer.data.checks import DataReport, PairFilter
from transformer.data.prepare import prepare, survey
from transformer.data.readers import read_pairs
from transformer.data.settings import DataSettings
from transformer.data.source import PairSource, pair_batch
from transformer.data.store import CHUNK_PAIRS, TokenStore, write_tokens
from transformer.errors import DataError
from transformer.text.pair import TokenizerPair
from transformer.text.settings import TokenizerSettings


@pytest.mark.parametrize(("n_source", "n_target", "shorter"), [(5, 4, "t.txt"), (2, 7, "s.txt"), (0, 3, "s.txt")])
def test_unequal_line_counts_are_refused_with_both(tmp_path: Path, n_source: int, n_target: int, shorter: str) -> None:
    """Catches cutting to the shorter side, which shifts or loses pairs silently."""
    source = write_lines(tmp_path / "s.txt", ["x"] * n_source)
    target = write_lines(tmp_path / "t.txt", ["y"] * n_target)
    least, longest = sorted((n_source, n_target))
    with pytest.raises(
        DataError, match=rf"has {longest} lines, .* has {least}: line {least + 1} of .* find what {shorter} lacks"
    ):
        list(read_pairs(source, target))


def test_empty_files_are_refused(tmp_path: Path) -> None:
    """Catches a run on nothing."""
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
    """Catches limits that are off by one, EOS included, and a ratio that looks at one side only."""
    assert PairFilter(10, 20, 4.0, drop_duplicates=False).reason_to_drop(*pair, *tokens) == reason


def test_duplicates_are_pairs_not_sides() -> None:
    """Catches dropping a second translation of the same source, and a line feed moved between the sides."""
    pair_filter = PairFilter(99, 99, 9.0, drop_duplicates=True)
    pairs = [("a", "b"), ("a", "c"), ("a", "b"), ("a b", "c"), ("a", "b c")]
    assert [pair_filter.reason_to_drop(*pair, 1, 1) for pair in pairs] == [None, None, "duplicate", None, None]


def test_store_returns_what_was_written(tmp_path: Path) -> None:
    """Catches rows mixed up at the border of two chunks, and empty rows."""
    rows = [([n, 7], [n] * (n % 3)) for n in range(CHUNK_PAIRS + 5)]
    write_tokens(tmp_path / "x.arrow", iter(rows))
    store = TokenStore(tmp_path / "x.arrow")
    for pair in (0, 1, 2, CHUNK_PAIRS - 1, CHUNK_PAIRS, CHUNK_PAIRS + 4):
        assert (store.source(pair).tolist(), store.target(pair).tolist()) == rows[pair]
    assert store.lengths.shape == (CHUNK_PAIRS + 5, 2)
    assert store.lengths[:4].tolist() == [[2, 0], [2, 1], [2, 2], [2, 0]]
    (tmp_path / "bad.arrow").write_bytes(b"nothing")
    with pytest.raises(DataError, match=r"bad.arrow: not a token file"):
        TokenStore(tmp_path / "bad.arrow")


lengths_of = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=200)


@given(lengths_of, st.integers(1, 300), st.integers(0, 5))
def test_an_epoch_holds_every_example_once_within_the_budget(
    lengths: list[tuple[int, int]], batch_tokens: int, epoch: int
) -> None:
    """Catches a dropped rest, a repeated example, a budget that ignores one side or padding."""
    table = np.array(lengths, dtype=np.int32)
    batches = plan_epoch(table, batch_tokens, seed=1, epoch=epoch)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    for ids in batches:
        assert len(ids) == 1 or table[ids].max() * len(ids) <= batch_tokens
    assert len(batches) == len(plan_epoch(table, batch_tokens, seed=2, epoch=epoch + 1))


def test_order_is_a_function_of_seed_and_epoch() -> None:
    """Catches an order that repeats every epoch, or depends on what was drawn before."""
    lengths = np.random.default_rng(0).integers(1, 30, (500, 2)).astype(np.int32)

    def plan(seed: int, epoch: int) -> list[list[int]]:
        return [ids.tolist() for ids in plan_epoch(lengths, 200, seed, epoch)]

    assert plan(1, 4) == plan(1, 4)
    assert plan(1, 4) != plan(1, 5)
    assert plan(1, 4) != plan(2, 4)
    assert {frozenset(ids) for ids in plan(1, 4)} != {frozenset(ids) for ids in plan(1, 5)}


def test_batches_waste_little() -> None:
    """Catches a lost bucketing: shuffled examples of these lengths would be half padding."""
    lengths = np.random.default_rng(0).integers(2, 60, (4000, 1)).repeat(2, axis=1).astype(np.int32)
    batches = plan_epoch(lengths, 1000, 1, 0)
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
    """Catches a decoder that reads what it should say, and padding in between."""
    batch = pair_batch([row(5, 6, 7), row(8)], [row(9), row(4, 5)])
    assert batch.src.tolist() == [[5, 6, 7, 2], [8, 2, 0, 0]]
    assert batch.tgt.tolist() == [[1, 9, 0], [1, 4, 5]]
    assert batch.labels.tolist() == [[9, 2, 0], [4, 5, 2]]
    assert batch.scored_tokens == 5


@pytest.fixture
def corpus_settings(tmp_path: Path) -> DataSettings:
    source = [f"word {n}" for n in range(60)] + ["", "word 1", "long " * 50, "tiny", "word 2"]
    target = [f"Wort {n}" for n in range(60)] + ["leer", "Wort 1", "lang " * 50, "sehr " * 35, "anderes Wort"]
    test = write_lines(tmp_path / "test.txt", ["word 3", "word 3", "unseen"])
    return DataSettings(
        source=str(write_lines(tmp_path / "s.txt", source)),
        target=str(write_lines(tmp_path / "t.txt", target)),
        test_source=str(test),
    )


def test_every_pair_is_accounted_for(corpus_settings: DataSettings, tmp_path: Path) -> None:
    """Catches a pair that vanishes without a reason, a held-out pair that is trained on, a wrong overlap."""
    surveyed = survey(corpus_settings, seed=1)
    assert surveyed.pairs == 65
    text = [Path(corpus_settings.source).read_text(), Path(corpus_settings.target).read_text()]
    tokenizers = TokenizerPair.train(
        lambda: text[0].split("\n"), lambda: text[1].split("\n"), TokenizerSettings(vocab_size=300)
    )
    corpus = prepare(corpus_settings, tokenizers, (40, 40), surveyed, tmp_path / "tokens")
    report = corpus.report
    assert report.read == 65 == report.kept + report.held_out + report.dropped.total()
    assert {r: report.dropped[r] for r in ("empty", "too long", "length ratio")} == {
        "empty": 1, "too long": 1, "length ratio": 1,
    }  # fmt: skip
    trained = {tokenizers.source.decode(corpus.train.fetch(np.array([n])).src[0].tolist()) for n in range(report.kept)}
    held_out = {source for source, _ in corpus.validation_text}
    assert held_out
    assert not trained & held_out
    assert report.test_lines == 3
    assert report.test_overlap == (2 if "word 3" in trained else 0)
    assert report.kept == len(corpus.train.lengths)
    assert report.target_tokens == corpus.train.lengths[:, 1].sum()
    assert any("pairs read 65" in line and "length ratio 1" in line for line in report.lines())


def test_validation_that_does_not_fit_is_refused(corpus_settings: DataSettings, tmp_path: Path) -> None:
    """Catches a validation score over fewer lines than the files have."""
    settings = corpus_settings.model_copy(
        update={"validation_source": corpus_settings.source, "validation_target": corpus_settings.target}
    )
    tokenizers = TokenizerPair.train(lambda: ["word long"], lambda: ["Wort"], TokenizerSettings(vocab_size=260))
    with pytest.raises(
        DataError, match=r"s.txt, line 63: \d+ source and \d+ target tokens exceed the model's 60 and 60"
    ):
        prepare(settings, tokenizers, (60, 60), survey(settings, 1), tmp_path / "tokens")


def test_nothing_left_is_refused(corpus_settings: DataSettings, tmp_path: Path) -> None:
    """Catches an empty token store that fails later, in numpy."""
    tokenizers = TokenizerPair.train(lambda: ["word"], lambda: ["Wort"], TokenizerSettings(vocab_size=260))
    with pytest.raises(DataError, match="no pair is left to train on; pairs read 65: kept 0"):
        prepare(corpus_settings, tokenizers, (2, 2), survey(corpus_settings, 1), tmp_path / "tokens")


def test_report_names_every_reason() -> None:
    """Catches reasons that are left out when they are zero, so that files of two runs do not line up."""
    report = DataReport(read=1, kept=1, dropped=Counter())
    assert report.to_dict()["dropped"] == {"empty": 0, "too long": 0, "length ratio": 0, "duplicate": 0}


def test_source_lengths_count_eos(tmp_path: Path) -> None:
    """Catches a budget that forgets the control ids."""
    write_tokens(tmp_path / "x.arrow", [([5, 6], [7])])
    source = PairSource(TokenStore(tmp_path / "x.arrow"))
    assert source.lengths.tolist() == [[3, 2]]
    batch = source.fetch(np.array([0]))
    assert (batch.src.size(1), batch.labels.size(1)) == (3, 2)
