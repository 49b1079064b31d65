"""Selection of pairs: what is dropped, and why."""

from pathlib import Path

import pytest

from samples import write_lines
from transformer.data.quality.findings import KINDS
from transformer.data.quality.selection import REASONS, judge_pairs
from transformer.demo.corpus import load_phrasebook

N_PAIRS = 1500


@pytest.fixture
def corpus(tmp_path: Path) -> tuple[Path, Path]:
    """A corpus with one bad pair of each kind, and a line that the target lacks."""
    pairs = [*dict.fromkeys(load_phrasebook().train)][:N_PAIRS]
    source, target = ([*side] for side in zip(*pairs, strict=True))
    source[100] = ""
    target[200] = source[200]
    source[300], target[300] = target[300], source[300]
    target[400] *= 9
    target[500] = "Это другой язык, совсем не немецкий."
    source[600] += " 17"
    target[700] += " {name}"
    source[800], target[800] = source[801], target[801]
    target[850] += " <b>x</b>"
    source[860] += " www.example.org"
    target[870] += "\ufffd"
    del target[1200]
    return write_lines(tmp_path / "a.en", source), write_lines(tmp_path / "a.de", target)


EXPECTED = {
    101: "empty", 201: "copy", 301: "other-side", 401: "length-ratio", 501: "script", 601: "numbers",
    701: "placeholders", 802: "duplicate", 851: "tags", 861: "addresses", 871: "invalid-utf8", 1201: "no-partner",
}  # fmt: skip


def test_each_bad_pair_is_dropped_for_its_reason(corpus: tuple[Path, Path]) -> None:
    """Catches a reason that is never given, a pair that is lost, and partners that a shift separates."""
    judged = list(judge_pairs(*corpus))
    assert [pair.line for pair in judged] == [*range(1, N_PAIRS + 1)]
    dropped = {pair.line: pair.reason for pair in judged if pair.reason}
    assert EXPECTED.items() <= dropped.items()
    assert len(dropped) < len(EXPECTED) + 0.02 * N_PAIRS
    pairs = {*load_phrasebook().train}
    assert all((pair.source, pair.target) in pairs for pair in judged if not pair.reason)
    assert sum(not pair.reason for pair in judged[1201:]) > 0.9 * (N_PAIRS - 1201), (
        "the lines after the shift are paired"
    )


def test_what_is_allowed_is_kept(corpus: tuple[Path, Path]) -> None:
    """Catches an exception that is ignored, or that lets other reasons pass."""
    allowed = ("numbers", "duplicate", "copy")
    reasons = {pair.line: pair.reason for pair in judge_pairs(*corpus, allowed=allowed)}
    assert not {reasons[line] for line, reason in EXPECTED.items() if reason in allowed} & {*allowed}
    assert reasons[802] == ""
    assert reasons[701] == "placeholders"


def test_reasons_are_findings() -> None:
    """Catches a reason of a name that no check reports."""
    assert REASONS.keys() - {"no-partner"} <= KINDS.keys()
