"""Scores against values worked out by hand, breakdowns counted by hand, and the command."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from commands import run as run_command
from samples import write_lines
from transformer.errors import ConfigError, DataError
from transformer.evaluation.breakdown import (
    by_frequency,
    by_length,
    make_word_splitter,
    most_different_lines,
    word_counts,
)
from transformer.evaluation.comparison import EvaluationSet, System, evaluate
from transformer.evaluation.scores import TEXT_METRICS, compare_scores, corpus_scores, parse_metrics, sentence_scores
from transformer.reporting.evaluation import evaluation_page


def test_bleu_by_hand() -> None:
    """Catches swapped arguments and a score without its signature.

    Hypothesis "the cat sat on the mat now": unigrams 6/7, bigrams 5/6, trigrams 4/5, 4-grams 3/4, no brevity penalty.
    """
    bleu, chrf = corpus_scores(["the cat sat on the mat now"], ["the cat sat on the mat"])
    assert bleu.value == pytest.approx(100 * math.exp(sum(map(math.log, (6 / 7, 5 / 6, 4 / 5, 3 / 4))) / 4))
    assert bleu.signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    assert bleu.interval is None
    assert chrf.name == "chrF"
    assert "nc:6|nw:0" in chrf.signature


def test_ter_and_chrf_with_words() -> None:
    """Catches a metric under another's name: one word of six is inserted, so TER is 1/6."""
    hypothesis, reference = "the cat sat on the old mat", "the cat sat on the mat"
    ter, chrf = corpus_scores([hypothesis], [reference], metrics=("TER", "chrF++"))
    assert ter.value == pytest.approx(100 / 6)
    assert "nw:2" in chrf.signature
    assert chrf.value == pytest.approx(CHRF(word_order=2).corpus_score([hypothesis], [[reference]]).score)
    assert ter.value == pytest.approx(TER().corpus_score([hypothesis], [[reference]]).score)


def test_metrics_are_chosen_by_name() -> None:
    """Catches a name that is ignored."""
    assert parse_metrics("ter, BLEU,ter") == ("TER", "BLEU")
    assert parse_metrics("all") == ("BLEU", "chrF", "chrF++", "TER")
    with pytest.raises(
        ConfigError,
        match="metric='comet' is unknown; choose from bleu, chrf, chrf\\+\\+, ter, brackets, complete, or all",
    ):
        parse_metrics("bleu,comet")


def test_text_that_is_tokenised_already_is_taken_as_it_is() -> None:
    """Catches an option that is not handed on: 13a splits off the full stop, without which no four words are equal."""
    split, whole = (corpus_scores(["a b c d."], ["a b c d ."], kind)[0] for kind in ("13a", "none"))
    assert split.value == pytest.approx(100)
    assert whole.value < 100
    assert "tok:none" in whole.signature


def test_perfect_and_empty_translations() -> None:
    """Catches a crash on an empty hypothesis, and a scale of 0 to 1."""
    assert [score.value for score in corpus_scores(["a b c d e"], ["a b c d e"])] == pytest.approx([100, 100])
    assert corpus_scores([""], ["a b c d e"])[0].value == 0


def test_any_of_several_references_counts() -> None:
    """Catches references that are taken as one text, or of which only the first counts."""
    hypotheses, first, second = ["a b c d e", "f g h i j"], ["a b c d e", "x x x x x"], ["y y y y y", "f g h i j"]
    assert corpus_scores(hypotheses, [first, second])[0].value == pytest.approx(100)
    assert "nrefs:2" in corpus_scores(hypotheses, [first, second])[0].signature
    assert corpus_scores(hypotheses, first)[0].value < 60
    assert sentence_scores(hypotheses, [first, second]) == pytest.approx([100, 100])


def test_lines_must_match() -> None:
    """Catches scoring the shorter side."""
    with pytest.raises(DataError, match="1 translations, but 2 references; give one reference line for each"):
        corpus_scores(["a"], ["a", "b"])
    with pytest.raises(DataError, match="2 translations, but 1 references; give one reference line for each"):
        corpus_scores(["a", "b"], [["a", "b"], ["a"]])
    with pytest.raises(DataError, match="nothing to score"):
        corpus_scores([], [])


REFERENCE = [
    f"the {word} one sees number {n} here" for n, word in enumerate(["red", "green", "blue", "old", "new"] * 8)
]
GOOD = [line.replace("sees", "saw") if n % 5 == 0 else line for n, line in enumerate(REFERENCE)]
BAD = [line.replace("here", "there").replace("the", "a") for line in REFERENCE]


def test_intervals_and_tests() -> None:
    """Catches an interval of the wrong width, and a test against the wrong system."""
    first, same, worse = compare_scores([GOOD, list(GOOD), BAD], REFERENCE, samples=300)
    assert first[0].p_value is None
    assert first[0].interval is not None
    assert 0 < first[0].interval < 15
    assert same[0].p_value is not None
    assert same[0].p_value > 0.5, "a system does not differ from itself"
    assert worse[0].p_value is not None
    assert worse[0].p_value < 0.01
    assert worse[0].value < first[0].value
    assert "bs:300" in first[0].signature
    assert [score.value for score in compare_scores([BAD], REFERENCE, samples=0)[0]] == pytest.approx(
        [score.value for score in worse]
    )


@pytest.mark.parametrize("n", [1, 2])
def test_intervals_of_few_lines(n: int) -> None:
    """Catches a traceback where some samples of the bootstrap match nothing and others do: sacrebleu mixes numbers."""
    systems = [["ein mann .", "zwei hunde .", "eine frau ."], ["ein mann", "zwei", ""]][:n]
    for metric in TEXT_METRICS:
        for (score,) in compare_scores(systems, ["ein mann .", "", "eine frau ."], metrics=[metric], samples=200):
            assert score.interval is not None
            assert math.isfinite(score.interval)


def test_scores_by_length() -> None:
    """Catches a line in the wrong class, at its edges above all, and lines lost."""
    sources = [" ".join("x" * n) for n in (1, 10, 11, 20, 61, 0)]
    lines = [f"a b c d {n}" for n in range(6)]
    classes = by_length(sources, [lines, ["q"] * 6], [lines])
    assert [(bucket.name, bucket.lines) for bucket in classes] == [("1-10", 3), ("11-20", 2), ("61+", 1)]
    assert all(bucket.bleu == pytest.approx((100, 0)) for bucket in classes)


def test_words_by_frequency() -> None:
    """Catches a frequency of the translations, and words counted as often as they are written.

    "rare" (once in training) stands in both lines of the reference and is found once, written once: 2 x 1 / (2 + 1).
    """
    counts = word_counts(["rare", "often often often often often"], str.split)
    reference, outputs = ["rare often", "rare new"], ["rare often often", "x new"]
    actual = {
        bucket.name: (bucket.words, bucket.f1) for bucket in by_frequency([outputs], reference, counts, str.split)
    }
    assert actual["1"] == (2, pytest.approx((200 / 3,)))
    assert actual["5-9"] == (1, pytest.approx((200 / 3,)))
    assert actual["0"] == (1, pytest.approx((200 / 3,))), "of x and new, one is in the reference"
    assert make_word_splitter("13a")("Yes, it is.") == ["Yes", ",", "it", "is", "."]
    assert make_word_splitter("char")("ab") == ["a", "b"]
    assert make_word_splitter("none")("a ,b") == ["a", ",b"]


def test_telling_lines() -> None:
    """Catches the best lines shown as the worst, and numbers from 0."""
    reference = ["same same", "left left", "right right"]
    assert [line.number for line in most_different_lines([["same same", "xx", "right x"]], [reference], 2)] == [2, 3]
    systems = [["same same", "left left", "right right"], ["same same", "left left", "zz zz"]]
    assert [line.number for line in most_different_lines(systems, [reference], 1)] == [3]
    assert [line.number for line in most_different_lines(systems, [reference], 3)] == [3], "on the others they agree"


def test_pages_escape_what_they_show() -> None:
    """Catches text that becomes part of the page, a name of a system included."""
    hostile = "<script>alert(1)</script>"
    test = EvaluationSet([hostile], [[hostile]])
    evaluation = evaluate([System(hostile, [hostile + " &"]), System("b", [""])], test, samples=10)
    page = evaluation_page(evaluation, test)
    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 4
    assert evaluation.empty == (0, 1)


def run(*arguments: object) -> "subprocess.CompletedProcess[str]":
    return run_command("evaluate", *arguments)


@pytest.mark.slow
def test_the_command_compares_systems(tiny_run: Path, tmp_path: Path) -> None:
    """Catches scores under another system's name, JSON that is none, and a page that is not written."""
    reference = write_lines(tmp_path / "r", REFERENCE)
    good, bad = write_lines(tmp_path / "good", GOOD), write_lines(tmp_path / "bad", BAD)
    source = write_lines(tmp_path / "s", ["one two three"] * len(REFERENCE))
    common = ["--reference", reference, "--reference", reference, "--bootstrap", 50]
    ended = run(
        "--translations",
        good,
        "--translations",
        bad,
        *common,
        "--json",
        "--metrics",
        "all",
        "--report",
        tmp_path / "p.html",
    )
    assert ended.returncode == 0, ended.stderr
    report = json.loads(ended.stdout)
    assert [system["name"] for system in report["systems"]] == ["good", "bad"]
    assert report["systems"][0]["scores"].keys() == {"BLEU", "chrF", "chrF++", "TER"}
    assert report["systems"][1]["scores"]["BLEU"]["p_value"] < 0.1
    assert "good" in (tmp_path / "p.html").read_text()
    shown = run(tiny_run, "--source", source, "--translations", good, *common, "--details", "--output", tmp_path / "o")
    assert shown.returncode == 0, shown.stderr
    assert "words of the source" in shown.stdout
    assert "differ most" in shown.stdout
    assert str(tiny_run) in shown.stdout
    assert (tmp_path / "o").read_text().count("\n") == len(REFERENCE)


@pytest.mark.slow
def test_systems_of_one_name_are_told_apart(tmp_path: Path) -> None:
    """Catches two systems that both are called out.de."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write_lines(tmp_path / name / "out.de", ["one two three four", f"{name} nine ten six"])
    paths = [tmp_path / name / "out.de" for name in ("a", "b")]
    options = ["--translations", paths[0], "--translations", paths[1], "--reference", paths[0], "--details"]
    ended = run(*options)
    assert "\na/out.de\n" in f"\n{ended.stdout}"
    assert "\nb/out.de\n" in ended.stdout
    assert "\nwords of the reference lines   BLEU and chrF   of a/out.de, b/out.de" in ended.stdout


@pytest.mark.slow
def test_every_file_is_read_once(tiny_run: Path, tmp_path: Path) -> None:
    """Catches a pipe that has no lines the second time, and one that is waited for to tell where lines are lost."""
    reference, short = write_lines(tmp_path / "r", REFERENCE), write_lines(tmp_path / "s", REFERENCE[:3])
    script = (
        f"{sys.executable} -m transformer evaluate {tiny_run} --source <(cat {reference}) "
        f"--reference <(cat {reference}) --reference <(cat $OTHER) --translations <(cat {reference}) "
        "--bootstrap 0 --json"
    )
    ended, refused = (
        subprocess.run(
            ["bash", "-c", script.replace("$OTHER", str(second))], capture_output=True, text=True, check=False
        )
        for second in (reference, short)
    )
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["lines"] == len(REFERENCE)
    assert refused.returncode == 2
    assert f"has {len(REFERENCE)} lines, " in refused.stderr


@pytest.mark.slow
def test_what_means_nothing_is_refused(tiny_run: Path, tmp_path: Path) -> None:
    """Catches an option without effect, and lines that do not match, before anything is translated."""
    reference, short = write_lines(tmp_path / "r", ["a", "b"]), write_lines(tmp_path / "s", ["a"])
    for arguments, message in (
        ([tiny_run, "--source", reference], "the reference translation is missing; give --reference FILE"),
        (["--reference", reference], "models and translations are missing; give a model, or --translations FILE"),
        ([tiny_run, "--reference", reference], "a model needs a source text to translate; give --source FILE"),
        (
            ["--translations", reference, "--reference", reference, "--task", "t: "],
            "--task has no effect without a model",
        ),
        (["--translations", reference, "--reference", reference, "--beam", 4], "--beam has no effect without a model"),
        (
            ["--translations", reference, "--reference", reference, "--precision", "auto"],
            "--precision has no effect without a model",
        ),
        (
            ["--translations", short, "--reference", reference],
            "has 1 line, but the test set has 2; give one translation per line",
        ),
        (
            [tiny_run, tiny_run, "--source", reference, "--reference", reference, "--output", tmp_path / "o"],
            "one by one",
        ),
        ([tiny_run, "--source", reference, "--reference", reference, "--reference", short], "has 2 lines"),
    ):
        ended = run(*arguments)
        assert ended.returncode == 2
        assert message in ended.stderr
