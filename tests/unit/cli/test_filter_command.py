"""`transformer filter`: files of kept and dropped pairs, and models that rank pairs."""

import json
import math
from pathlib import Path

import pytest

from commands import run
from samples import write_lines
from transformer import load
from transformer.pipelines.translation.filtering import dual_cross_entropies
from transformer.pipelines.translation.scoring import score_pairs

PAIRS = [("one two", "eins zwei"), ("", "drei"), ("two", "zwei"), ("one two", "eins zwei"), ("tab\there", "Tab\thier")]


@pytest.fixture
def texts(tmp_path: Path) -> list[str]:
    """Arguments for a source and a target file."""
    sides = zip(*PAIRS, strict=True)
    return [str(write_lines(tmp_path / f"text.{name}", side)) for name, side in zip(("en", "de"), sides, strict=True)]


def test_every_pair_is_in_one_of_two_files(texts: list[str], tmp_path: Path) -> None:
    """Catches a pair that is in neither, a wrong line, a tab that makes a third column, and wrong counts."""
    kept, dropped = tmp_path / "kept.tsv", tmp_path / "dropped.jsonl"
    result = run("filter", *texts, "--output", kept, "--dropped", dropped)
    assert result.returncode == 0, result.stderr
    assert kept.read_text() == "one two\teins zwei\ntwo\tzwei\ntab here\tTab hier\n"
    assert [json.loads(line) for line in dropped.read_text().splitlines()] == [
        {"reason": "empty", "line": 2, "source": "", "target": "drei"},
        {"reason": "duplicate", "line": 4, "source": "one two", "target": "eins zwei"},
    ]
    assert "5 pairs: 3 kept, 2 dropped (40.00%)" in result.stderr
    assert "duplicate          1  a pair that was there before" in result.stderr
    again = run("filter", *texts, "--output", kept, "--allow", "duplicate")
    assert len(kept.read_text().splitlines()) == 4, again.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--output", "x.txt"], "x.txt ends in neither of .tsv and .jsonl; rename it"),
        (["--output", "x.tsv", "--allow", "length"], "--allow 'length' is unknown; choose from no-partner, empty"),
        (["--output", "x.tsv", "--share", "0.5"], "--model and --share go together"),
        (["--output", "x.tsv", "--reverse", "m"], "--reverse has no effect without --model"),
    ],
)
def test_mistakes_are_named(texts: list[str], options: list[str], message: str) -> None:
    """Catches an option that does nothing, and a file that no command reads."""
    result = run("filter", *texts, *options)
    assert result.returncode == 2
    assert message in result.stderr


def test_nothing_that_is_left_is_an_error(tmp_path: Path) -> None:
    """Catches an empty corpus that a training run finds hours later."""
    sides = [write_lines(tmp_path / name, [""] * 3) for name in ("a.en", "a.de")]
    result = run("filter", *sides, "--output", tmp_path / "kept.tsv")
    assert result.returncode == 2
    assert "no pair is left; --dropped FILE shows the reasons" in result.stderr


def test_models_drop_the_least_likely_pairs(tiny_run: Path, texts: list[str], tmp_path: Path) -> None:
    """Catches the most likely ones dropped, a share of all pairs, and ranks of pairs that a rule dropped."""
    dropped = tmp_path / "dropped.jsonl"
    result = run("filter", *texts, "--output", tmp_path / "kept.tsv", "--dropped", dropped, "--model", tiny_run,
                 "--reverse", tiny_run, "--share", 0.67)  # fmt: skip
    assert result.returncode == 0, result.stderr
    reasons = {entry["line"]: entry["reason"] for entry in map(json.loads, dropped.read_text().splitlines())}
    translator = load(tiny_run, precision="float32")
    candidates = {1: PAIRS[0], 3: PAIRS[2], 5: PAIRS[4]}
    scores = dual_cross_entropies(translator, translator, [*candidates.values()])
    worst = max(zip(scores, candidates, strict=True))[1]
    assert reasons == {2: "empty", 4: "duplicate", worst: "low-score"}


def test_the_score_is_the_formula(tiny_run: Path) -> None:
    """Catches a sign, a side that is scored twice, and a text beyond the model that passes for a good one."""
    translator = load(tiny_run, precision="float32")
    pairs = [("one two", "eins"), ("three", "vier fünf"), ("one " * 500, "eins")]
    forward = [-scored.per_token for scored in score_pairs(translator, pairs)]
    backward = [-scored.per_token for scored in score_pairs(translator, [(b, a) for a, b in pairs])]
    for score, ahead, back in zip(dual_cross_entropies(translator, translator, pairs), forward, backward, strict=True):
        expected = abs(ahead - back) + (ahead + back) / 2
        assert score == (pytest.approx(expected) if math.isfinite(expected) else math.inf)
    assert dual_cross_entropies(translator, None, pairs)[:2] == pytest.approx(forward[:2])
