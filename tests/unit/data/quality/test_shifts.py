"""Corpus examination: shifts between two files, and the fit of two lines."""

import random
from itertools import pairwise, product
from math import log, sqrt
from pathlib import Path

import numpy as np
import pytest

from samples import CORPUS, write_lines
from transformer.data.quality.alignment import JUMP_NATS, MOST_NATS, NO_PARTNER_NATS, _Aligner, align
from transformer.data.quality.fit import RowPairs, learn_fit
from transformer.data.quality.shifts import Shift, align_in_blocks, first_shift
from transformer.data.quality.words import index_words
from transformer.data.readers import read_pairs
from transformer.errors import DataError
from unit.data.quality.invented_languages import Corpus, invented

WHOLE = invented(600)


def without(corpus: Corpus, *lost: tuple[int, int]) -> Corpus:
    """Returns the corpus without the lost lines, given as (side, line number from 1)."""
    sides = [
        [text for line, text in enumerate(lines, 1) if (side, line) not in lost] for side, lines in enumerate(corpus)
    ]
    return sides[0], sides[1]


def detect_shifts(corpus: Corpus, most_lines: int = 100_000) -> list[Shift]:
    parts = align_in_blocks(*corpus, len(corpus[0]), len(corpus[1]), most_lines)
    return [shift for part in parts for shift in part.shifts()]


@pytest.mark.parametrize("line", [37, 301, 577])
@pytest.mark.parametrize("side", [0, 1])
def test_a_lost_line_is_found(side: int, line: int) -> None:
    """Catches a wrong direction, a count from 0, and a position that is counted on the other side."""
    (shift,) = detect_shifts(without(WHOLE, (side, line)))
    assert shift.size == (1 if side == 0 else -1)
    assert shift.unpaired_lines == (line, line)
    assert shift.first <= shift.source_line <= shift.last
    assert shift.confidence == "sure"


@pytest.mark.parametrize("n", [61, 200, 600])
def test_silent_where_nothing_is_lost(n: int) -> None:
    """Catches chance that is reported as a shift, especially in small corpora."""
    assert detect_shifts((WHOLE[0][:n], WHOLE[1][:n])) == []


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("line", [1, 2, 599])
def test_a_line_lost_near_an_edge_is_placed_there(side: int, line: int) -> None:
    """Catches too much evidence required near an edge, although the line counts show that a line is lost."""
    (shift,) = detect_shifts(without(WHOLE, (side, line)))
    assert shift.unpaired_lines == (line, line)
    assert detect_shifts(without(WHOLE, (side, 600))) == []  # all other lines stay aligned


@pytest.mark.parametrize("size", [1, -3])
def test_a_file_that_is_shifted_throughout_is_told_by_how_much(size: int) -> None:
    """Catches files of equal length that are called unrelated because no line stands beside its translation."""
    source, target = WHOLE
    n = len(source) - abs(size)
    (shift,) = detect_shifts((source[max(0, -size) :][:n], target[max(0, size) :][:n]))
    assert (shift.size, shift.unpaired_lines) == (-size, (1, abs(size)))
    assert detect_shifts((source, random.Random(1).sample(target, len(target)))) == []


@pytest.mark.parametrize("first", [211, 1])
def test_a_hole_of_many_lines_is_measured(first: int) -> None:
    """Catches a search limited to a few lines, and lines without a partner that are miscounted."""
    for side, size in ((0, 141), (1, -141)):
        (shift,) = detect_shifts(without(WHOLE, *((side, line) for line in range(first, first + 141))))
        assert (shift.size, shift.unpaired_lines) == (size, (first, first + 140))


def test_several_lost_lines_are_found() -> None:
    """Catches a search that only considers the offsets at the start and at the end."""
    lost = [(0, 101), (1, 205), (1, 333), (1, 487), (0, 551)]
    shifts = detect_shifts(without(WHOLE, *lost))
    assert [shift.size for shift in shifts] == [1, -1, -1, -1, 1]
    for (side, line), shift in zip(lost, shifts, strict=True):
        assert shift.unpaired_lines[0] == line - lost_before(lost, 1 - side, line)


def lost_before(lost: list[tuple[int, int]], side: int, line: int) -> int:
    """Returns the number of lines lost before a line on the side that still has it."""
    return sum(1 for other_side, lost_line in lost if other_side == side and lost_line < line)


def test_equal_counts_do_not_hide_a_shift() -> None:
    """Catches reliance on equal line counts: here, most lines are paired with a wrong line."""
    shifts = detect_shifts(without(WHOLE, (0, 31), (1, 571)))
    assert [shift.size for shift in shifts] == [1, -1]
    assert [shift.unpaired_lines[0] for shift in shifts] == [31, 570]


@pytest.mark.parametrize("most_lines", [150, 211])
def test_stretches_tell_what_the_whole_tells(most_lines: int) -> None:
    """Catches a block that ignores the offset at the end of the previous block."""
    corpus = without(WHOLE, (0, 101), (1, 405))
    parts, whole = detect_shifts(corpus, most_lines), detect_shifts(corpus)
    assert [(s.source_line, s.target_line, s.size) for s in parts] == [
        (s.source_line, s.target_line, s.size) for s in whole
    ]
    texts = [part.source for part in align_in_blocks(*corpus, len(corpus[0]), len(corpus[1]), most_lines)]
    assert sum(texts, []) == corpus[0]  # noqa: RUF017
    assert max(map(len, texts)) <= most_lines


def test_nothing_is_told_of_unrelated_or_few_lines() -> None:
    """Catches a verdict without evidence."""
    shuffled = list(WHOLE[1])
    random.Random(2).shuffle(shuffled)
    assert align(WHOLE[0], shuffled) is None
    assert align(WHOLE[0][:13], WHOLE[1][:13]) is None
    assert align([], []) is None


def test_the_path_is_the_best_of_all_paths() -> None:
    """Catches an error in Viterbi's algorithm: all 3^6 paths are tried."""
    draw = np.random.default_rng(1)
    for end in (None, 1):
        evidence = {offset: draw.normal(0, 12, 6) for offset in (-1, 0, 1)}
        evidence[1][5] = np.nan

        def score(path: tuple[int, ...], evidence: dict = evidence, end: int | None = end) -> float:
            row_fits = [NO_PARTNER_NATS if np.isnan(fit := evidence[o][row]) else fit for row, o in enumerate(path)]
            jumps = sum(a != b for a, b in pairwise((0, *path))) + (end is not None and path[-1] != end)
            return sum(max(-MOST_NATS, min(MOST_NATS, fit)) for fit in row_fits) - JUMP_NATS * jumps

        best = max(product((-1, 0, 1), repeat=6), key=score)
        path = _Aligner(index_words([], []), 0, end).best_path(evidence)
        assert score(tuple(path.tolist())) == pytest.approx(score(best))


def test_features_of_a_pair_by_hand() -> None:
    """Catches a pair that counts as evidence for itself, and associations that differ from the formula."""
    source = ["aa bb", "aa cc", "aa bb", "bb cc", "aa bb 42"]
    target = ["xx yy", "xx zz", "xx yy", "yy zz", "xx yy 42"]
    sides = index_words(source, target)
    rows = np.arange(5)
    model = learn_fit(sides, rows, rows)
    (total, mean, anchors, _, size, interaction) = model.features(
        sides, RowPairs(rows[4:], rows[4:], np.array([True]))
    )[0]
    # Words: aa, bb on one side, xx, yy on the other (42 occurs once). Counts without pair 5 itself, of 5 pairs:
    pair_counts = {("aa", "xx"): 3, ("aa", "yy"): 2, ("bb", "xx"): 2, ("bb", "yy"): 3}
    word_counts = {"aa": 3, "bb": 3, "xx": 3, "yy": 3}
    scores = {
        pair: max(0, log((n + 1) / (word_counts[pair[0]] * word_counts[pair[1]] / 5 + 1)))
        for pair, n in pair_counts.items()
    }
    best = max(scores["aa", "xx"], scores["bb", "xx"]) + max(scores["aa", "yy"], scores["bb", "yy"])
    assert total == pytest.approx(2 * best / sqrt(4), rel=1e-5)
    assert mean == pytest.approx(2 * best / 2, rel=1e-5)
    assert anchors == pytest.approx(log(1 + 5), rel=1e-5)
    assert size == pytest.approx(log(1 + 2), rel=1e-5)
    assert interaction == pytest.approx(size * mean, rel=1e-5)


def test_true_pairs_fit_and_random_pairs_do_not() -> None:
    """Catches weights of the wrong sign."""
    sides = index_words(*WHOLE)
    rows = np.arange(600)
    model = learn_fit(sides, rows, rows)
    unseen = np.zeros(600, bool)
    assert (model.log_odds(sides, RowPairs(rows, rows, ~unseen)) > 0).mean() > 0.97
    assert (model.log_odds(sides, RowPairs(rows, np.roll(rows, 7), unseen)) < 0).mean() > 0.97
    assert model.separation > 0.99


def test_words_of_scripts_without_spaces_are_single_signs() -> None:
    """Catches a whole Chinese line that is one word, which never occurs again."""
    sides = index_words(["我 爱你", "你爱我"], ["Alpha beta", "alpha_beta 7"])
    assert sides.source.words[0].tolist() == sides.source.words[1].tolist()
    assert (sides.source.words[0] > 0).sum() == 3
    assert (sides.target.words > 0).sum(1).tolist() == [2, 2]


def test_a_shift_says_what_is_missing_where() -> None:
    """Catches swapped source and target, and a confidence that does not match the evidence."""
    shift = Shift(source_line=101, target_line=103, size=2, first=101, last=101, nats=99.0)
    assert shift.describe("a.en", "a.de") == (
        "lines 101 to 102 of a.de have no partner in a.en: line 101 of a.en belongs to line 103 of a.de (sure)"
    )
    shift = Shift(source_line=101, target_line=100, size=-1, first=97, last=103, nats=12.0)
    assert shift.describe("a.en", "a.de") == (
        "line 100 of a.en has no partner in a.de: line 101 of a.en belongs to line 100 of a.de "
        "(likely, or anywhere from line 97 to 103 of a.en)"
    )
    shift = Shift(103, 101, -2, 103, 103, 12.0, is_at_end=True)
    assert shift.describe("a.en", "a.de") == (
        "lines 101 to 102 of a.en have no partner in a.de, which ends earlier (likely)"
    )
    assert Shift(2, 3, 1, 2, 2, 9.9).confidence == "a guess"
    assert shift.to_dict()["confidence"] == "likely"


@pytest.mark.parametrize("blank", [1, 2, 4])
def test_no_line_is_named_that_the_files_do_not_have(blank: int) -> None:
    """Catches a partner beyond the last line, where a file ends in blank lines."""
    (shift_at_end,) = detect_shifts((WHOLE[0] + [""] * blank, WHOLE[1]))
    assert (shift_at_end.is_at_end, shift_at_end.unpaired_lines) == (True, (len(WHOLE[0]) + 1, len(WHOLE[0]) + blank))
    assert not any(shift.is_at_end for shift in detect_shifts(without(WHOLE, (1, 301))))


def test_the_first_shift_of_two_files(tmp_path: Path) -> None:
    """Catches files read only to the end of the shorter one, and refusals although a shift could be detected."""
    source, target = without(WHOLE, (1, 101), (1, 401))
    source[3] += "\ufeff\u2028"
    paths = write_lines(tmp_path / "s", source), write_lines(tmp_path / "t", target)
    paths[0].write_bytes(b"\xef\xbb\xbf" + paths[0].read_bytes() + b"\xff\n")
    shift = first_shift(*paths)
    assert shift is not None
    assert (shift.size, abs(shift.unpaired_lines[0] - 101) <= 1) == (-1, True)
    assert first_shift(paths[0], paths[0]) is None
    with pytest.raises(DataError, match="none: No such file or directory"):
        first_shift(paths[0], tmp_path / "none")


def everyday(n: int) -> Corpus:
    """Returns the first n real sentences, English and German."""
    sides = [CORPUS.with_suffix(f".{side}").read_text(encoding="utf-8").split("\n")[:n] for side in ("en", "de")]
    return sides[0], sides[1]


@pytest.mark.parametrize("seed", range(4))
def test_a_random_line_of_real_text(seed: int) -> None:
    """Catches a search that only works on invented words, within 50 lines."""
    line, side = random.Random(seed).randrange(1, 1001), seed % 2
    (shift,) = detect_shifts(without(everyday(1000), (side, line)))
    assert shift.size == (1 if side == 0 else -1)
    assert abs(shift.unpaired_lines[0] - line) <= 50


@pytest.mark.parametrize("n", [300, 1000])
def test_silent_on_real_text(n: int) -> None:
    """Catches loose translations that are reported as a shift."""
    assert detect_shifts(everyday(n)) == []


def test_reading_files_of_unequal_length_tells_the_place(tmp_path: Path) -> None:
    """Catches an error that names the end of the files instead of the shifted line."""
    source, target = without(WHOLE, (1, 300))
    paths = [write_lines(tmp_path / name, lines) for name, lines in (("a.en", source), ("a.de", target))]
    with pytest.raises(
        DataError, match=r"a\.en has 600 lines, .*a\.de has 599.*it seems that line 300 of a\.en has no p"
    ):
        list(read_pairs(*paths))
    write_lines(paths[1], WHOLE[1][:400])
    with pytest.raises(DataError, match=r"it seems that a\.de was cut at its end"):
        list(read_pairs(write_lines(paths[0], WHOLE[0]), paths[1]))
