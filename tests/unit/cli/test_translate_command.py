"""Outputs of `transformer translate` and `score`, run as commands."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from commands import run
from samples import write_lines


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_lines(tmp_path_factory.mktemp("source") / "source.txt", ["one two {x}", "", "seven"])


def test_everything_that_is_written_of_a_line(tiny_run: Path, source: Path, tmp_path: Path) -> None:
    """Catches outputs of different lengths or orders, and JSON that cannot be parsed."""
    links, attention = tmp_path / "links", tmp_path / "a.npz"
    result = run("translate", tiny_run, "--input", source, "--beam", 3, "--n-best", 2, "--format", "jsonl",
                "--alignment", links, "--attention", attention, "--protect", "all")  # fmt: skip
    assert result.returncode == 0, result.stderr
    records = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["line"] for line in records] == [1, 2, 3]
    assert [line["source"] for line in records] == ["one two {x}", "", "seven"]
    assert [len(line["alternatives"]) for line in records] == [2, 1, 2]
    assert "{x}" in records[0]["translation"]
    assert "glossary: 0 of 0 terms in place; protected: 1 of 1 spans" in result.stderr
    assert len(links.read_text().splitlines()) == 3
    assert {name.split(".")[0] for name in np.load(attention)} == {"1", "3"}
    plain = run("translate", tiny_run, "--input", source, "--beam", 3, "--n-best", 2, "--protect", "all")
    listed = [line.split(" ||| ") for line in plain.stdout.splitlines()]
    assert [(int(number), text) for number, text, _ in listed] == [
        (line["line"], alternative["text"]) for line in records for alternative in line["alternatives"]
    ]


def test_samples_can_be_drawn_again(tiny_run: Path) -> None:
    """Catches samples that are equal in each call, and a seed that is not told or does not repeat them."""
    options = [tiny_run, "one two", "--sample", "--temperature", 30, "--max-tokens", 20, "--json", "--quiet"]
    first, second = (run("translate", *options) for _ in range(2))
    drawn = json.loads(first.stdout)
    assert drawn["translation"] != json.loads(second.stdout)["translation"]
    assert run("translate", *options, "--seed", drawn["seed"]).stdout == first.stdout
    assert not first.stderr


def test_copied_lines_are_counted(tiny_run: Path, tmp_path: Path) -> None:
    """Catches lines that are no longer translated, without a note, and empty lines that count as copied."""
    result = run("translate", tiny_run, "--input", write_lines(tmp_path / "lines", ["7", "", "one", "example.com"]))
    assert result.stdout.splitlines()[::3] == ["7", "example.com"]
    assert "\n2 lines without letters, or with addresses alone, were copied\n" in result.stderr


def test_a_huge_line_has_a_line_of_output(tiny_run: Path, tmp_path: Path) -> None:
    """Catches a line that shifts all after it, or that ends the command."""
    source = write_lines(tmp_path / "source.txt", ["one", "\u00fc" * 3_000_000, "one"])
    result = run("score", tiny_run, "--source", source, "--target", source)
    assert result.returncode == 0, result.stderr
    first, second, third = result.stdout.splitlines()
    assert (second, first) == ("nan", third)
    assert "the source has more than 262,144 characters" in result.stderr
    result = run("translate", tiny_run, "--verbose", stdin=f"one\n{'ü' * 4_200_000}\none\n")
    assert result.returncode == 0, result.stderr
    first, second, third = result.stdout.splitlines()
    assert (first, set(second)) == (third, {"ü"})
    assert "line 2: longer than 4,194,304 characters; only so many were read" in result.stderr


def test_what_stands_before_an_error_is_written(tiny_run: Path, tmp_path: Path) -> None:
    """Catches translations that are lost because a later line cannot be read."""
    source, target = tmp_path / "source.txt", tmp_path / "target.txt"
    source.write_bytes(b"one two\n" * 1030 + b"\xff\n" + b"three\n" * 5)
    result = run("translate", tiny_run, "--input", source, "--output", target)
    assert result.returncode == 2
    assert "line 1031, byte 1" in result.stderr
    assert len(target.read_text(encoding="utf-8").splitlines()) == 1030
    result = run("translate", tiny_run, stdin=source.read_bytes())
    assert result.returncode == 2
    assert len(result.stdout.splitlines()) == 1030


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--n-best", 2], "n_best=2 is not between 1 and beam=1; choose a wider beam"),
        (["--top-k", 5], "--top-k has no effect without --sample; add it"),
        (["--mbr", 16, "--beam", 4], "--mbr 16 is the number of samples already; leave out --beam"),
        (["--mbr-metric", "bleu"], "--mbr-metric has no effect without --mbr; add e.g. --mbr 16"),
        (["--mbr", 2], "--mbr=2"),
        (["--average", "probability"], "--average has no effect without --ensemble; add a model to it"),
        (["--diversity", 1], "--diversity has no effect without --groups; choose e.g. --beam 4 --groups 2"),
        (["--split", "words"], "--split='words' is unknown; choose one of 'auto', 'sentence', 'none'"),
        (["--protect", "words"], "protected='words' is unknown"),
        (["--alignment", "INPUT"], "is both input and output; choose another output file"),
        (["--alignment", "LONG", "--attention", "LONG"], "is used for two outputs; choose another file"),
        (["--prefix", "SHORT"], "has 1 line, but the input has more; give one line per line of the input"),
        (["--prefix", "LONG"], "has more lines than the input, which has 3; give one line per line of the input"),
        (["--output", "x.txt.gz"], "x.txt.gz: output cannot be compressed; leave out .gz"),
        (["--ban", "MARKED"], "starts with a byte order mark; remove it\n"),
        (["--glossary", "MARKED"], "starts with a byte order mark; remove it\n"),
    ],
)
def test_options_that_mean_nothing_are_refused(
    tiny_run: Path, source: Path, tmp_path: Path, options: list[object], message: str
) -> None:
    """Catches an option without effect that is accepted, and a traceback."""
    files = {
        "INPUT": source,
        "SHORT": write_lines(tmp_path / "short", ["1"]),
        "LONG": write_lines(tmp_path / "long", [""] * 9),
        "MARKED": write_lines(tmp_path / "marked", ["\ufeffa\tb"]),
    }
    result = run("translate", tiny_run, "--input", source, *(files.get(str(option), option) for option in options))
    assert result.returncode == 2
    assert message in result.stderr
    assert len(result.stderr.splitlines()) <= 4  # the device, a note and its hint, the error


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full to write to")
@pytest.mark.parametrize("option", ["--output", "--alignment", "--attention"])
def test_what_has_no_room_is_named(tiny_run: Path, source: Path, option: str) -> None:
    """Catches a message that does not name the full disk, and a traceback when buffers are flushed again."""
    result = run("translate", tiny_run, "--input", source, option, "/dev/full")
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1] == "error: /dev/full: No space left on device; choose another output file"
    assert "Traceback" not in result.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full to write to")
def test_notes_without_room_stop_no_work(tiny_run: Path, source: Path) -> None:
    """Catches translations that are lost because standard error cannot be written."""
    command = [sys.executable, "-m", "transformer", "translate", tiny_run, "--input", source]
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=full, check=False)
    assert (result.returncode, result.stdout.count(b"\n")) == (0, 3)


def test_links_go_to_words_of_the_line_as_given(tiny_run: Path, tmp_path: Path) -> None:
    """Catches indices that count the pieces of a split word, beyond the words of the line."""
    long, links = f"one {'seven' * 120} two", tmp_path / "links"
    result = run("translate", tiny_run, "--input", write_lines(tmp_path / "long", [long]), "--alignment", links)
    pairs = [tuple(map(int, pair.split("-"))) for pair in links.read_text().split()]
    assert "cut within a sentence" in result.stderr
    assert {source for source, _ in pairs} <= {0, 1, 2}
    assert max(target for _, target in pairs) < len(result.stdout.split())
    assert len(pairs) > 3


def test_tags_are_counted_too(tiny_run: Path, tmp_path: Path) -> None:
    """Catches a missing report when only tags are protected, which do not affect the search."""
    result = run("translate", tiny_run, "--input", write_lines(tmp_path / "a", ["one <b>two</b>"]), "--protect", "tags")
    assert "glossary: 0 of 0 terms in place; protected: 2 of 2 spans\n" in result.stderr


def test_scores_of_a_file(tiny_run: Path, source: Path, tmp_path: Path) -> None:
    """Catches a line without a score, invalid JSON (NaN), and sums instead of means."""
    target = write_lines(tmp_path / "target", ["2 1", "", "7 " * 200])
    plain, mean, objects = (
        run("score", tiny_run, "--source", source, "--target", target, *options).stdout.splitlines()
        for options in ([], ["--per-token"], ["--format", "jsonl"])
    )
    assert len(plain) == 3
    assert plain[2] == "nan"
    if not torch.cuda.is_available():
        elsewhere = run("score", tiny_run, "--source", source, "--target", target, "--device", "cuda")
        assert "device='cuda', but torch sees no GPU" in elsewhere.stderr
    records = [json.loads(line, parse_constant=pytest.fail) for line in objects]
    assert records[2]["score"] is None
    for index in (0, 1):
        scores = [token["score"] for token in records[index]["tokens"]]
        assert float(plain[index]) == pytest.approx(sum(scores), abs=1e-3)
        assert float(mean[index]) == pytest.approx(sum(scores) / len(scores), abs=1e-3)


@pytest.mark.slow
def test_a_shortlist_is_made_and_used(tiny_run: Path, digit_corpus: tuple[Path, Path], tmp_path: Path) -> None:
    """Catches a shortlist that `evaluate` does not accept, and a damaged one that `translate` accepts."""
    source, target = digit_corpus
    path = tmp_path / "list.safetensors"
    created = run(
        "shortlist", tiny_run, "--source", source, "--target", target, "--output", path, "--best", 3, "--frequent", 2
    )
    assert created.returncode == 0, created.stderr
    assert "held-out translations" in created.stdout
    plain, short = (
        run("evaluate", tiny_run, "--source", source, "--reference", target, "--json", "--bootstrap", 0, *options)
        for options in ([], ["--shortlist", path])
    )
    assert short.returncode == 0, short.stderr
    scores = [json.loads(result.stdout)["systems"][0]["scores"]["chrF"]["score"] for result in (plain, short)]
    assert scores[1] > scores[0] - 5, "three tokens of each digit are enough"
    path.write_bytes(b"")
    result = run("translate", tiny_run, "--input", source, "--shortlist", path)
    assert (result.returncode, "is not a shortlist" in result.stderr) == (2, True)


def test_notes_are_summed_up(tiny_run: Path, tmp_path: Path) -> None:
    """Catches a flood of notes, a summary that hides how to see them all, and notes in spite of --quiet."""
    source = write_lines(tmp_path / "odd", ["one ¶"] * 30)
    summed, named, silent = (
        run("translate", tiny_run, "--input", source, *options) for options in ([], ["--verbose"], ["--quiet"])
    )
    assert "never seen in training: '¶' (30)" in summed.stderr
    assert len(summed.stderr.splitlines()) <= 4
    assert "line 30: never seen in training: '¶'" in named.stderr
    assert silent.stderr == ""
    assert summed.stdout == named.stdout == silent.stdout
    contradiction = run("translate", tiny_run, "--input", source, "--quiet", "--verbose")
    assert (contradiction.returncode, contradiction.stdout) == (2, "")


def test_lines_with_nothing_to_translate_and_outer_space(tiny_run: Path, tmp_path: Path) -> None:
    """Catches text that a model invents for signs, and white space that is lost."""
    lines = ["-", "", "😀 ...", "\t one\u200b", "https://example.org/x"]
    source = write_lines(tmp_path / "signs", lines)
    copied = run("translate", tiny_run, "--input", source).stdout.split("\n")
    assert [copied[0], copied[1], copied[2], copied[4]] == [lines[0], lines[1], lines[2], lines[4]]
    assert copied[3].startswith("\t ")
    assert copied[3].endswith("\u200b")
    translated = run("translate", tiny_run, "--input", source, "--no-copy").stdout.split("\n")
    assert translated[2] != lines[2]
    assert len(translated) == len(copied)
