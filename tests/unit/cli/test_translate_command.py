"""What `transformer translate` and `score` write, through the real command."""

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
    """Catches outputs of different lengths or of another order, and JSON that does not read back."""
    links, attention = tmp_path / "links", tmp_path / "a.npz"
    ended = run("translate", tiny_run, "--input", source, "--beam", 3, "--n-best", 2, "--format", "jsonl",
                "--alignment", links, "--attention", attention, "--protect", "all")  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    records = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [line["line"] for line in records] == [1, 2, 3]
    assert [line["source"] for line in records] == ["one two {x}", "", "seven"]
    assert [len(line["alternatives"]) for line in records] == [2, 1, 2]
    assert "{x}" in records[0]["translation"]
    assert "glossary: 0 of 0 terms; protected: 1 of 1 spans" in ended.stderr
    assert len(links.read_text().splitlines()) == 3
    assert {name.split(".")[0] for name in np.load(attention)} == {"1", "3"}
    plain = run("translate", tiny_run, "--input", source, "--beam", 3, "--n-best", 2, "--protect", "all")
    listed = [line.split(" ||| ") for line in plain.stdout.splitlines()]
    assert [(int(number), text) for number, text, _ in listed] == [
        (line["line"], alternative["text"]) for line in records for alternative in line["alternatives"]
    ]


def test_what_stands_before_an_error_is_written(tiny_run: Path, tmp_path: Path) -> None:
    """Catches lines that were translated and are lost since a later one cannot be read."""
    source, target = tmp_path / "source.txt", tmp_path / "target.txt"
    source.write_bytes(b"one two\n" * 1030 + b"\xff\n" + b"three\n" * 5)
    ended = run("translate", tiny_run, "--input", source, "--output", target)
    assert ended.returncode == 2
    assert "line 1031, byte 1" in ended.stderr
    assert len(target.read_text(encoding="utf-8").splitlines()) == 1030
    ended = run("translate", tiny_run, stdin=source.read_bytes())
    assert ended.returncode == 2
    assert len(ended.stdout.splitlines()) == 1030


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--n-best", 2], "n_best=2 is not between 1 and beam=1; choose a wider beam"),
        (["--top-k", 5], "--top-k has no effect without --sample; add it"),
        (["--average", "probability"], "--average has no effect without --ensemble; add a model to it"),
        (["--diversity", 1], "--diversity has no effect without --groups; choose e.g. --beam 4 --groups 2"),
        (["--protect", "words"], "protected='words' is unknown"),
        (["--alignment", "INPUT"], "is both input and output; choose another output file"),
        (["--alignment", "LONG", "--attention", "LONG"], "is used for two outputs; choose another file"),
        (["--prefix", "SHORT"], "has 1 lines, but the input has more; give one line per line of the input"),
        (["--prefix", "LONG"], "has more than the 3 lines of the input; give one line per line of the input"),
        (["--output", "x.txt.gz"], "x.txt.gz: output cannot be compressed; leave out .gz"),
        (["--ban", "MARKED"], "starts with a byte order mark; remove it\n"),
        (["--glossary", "MARKED"], "starts with a byte order mark; remove it\n"),
        (["--protect", "all", "--sample"], "glossary and protected spans need a beam; leave out groups and sampling"),
    ],
)
def test_options_that_mean_nothing_are_refused(
    tiny_run: Path, source: Path, tmp_path: Path, options: list[object], message: str
) -> None:
    """Catches an option that is silently without effect, and a traceback."""
    files = {
        "INPUT": source,
        "SHORT": write_lines(tmp_path / "short", ["1"]),
        "LONG": write_lines(tmp_path / "long", [""] * 9),
        "MARKED": write_lines(tmp_path / "marked", ["\ufeffa\tb"]),
    }
    ended = run("translate", tiny_run, "--input", source, *(files.get(str(option), option) for option in options))
    assert ended.returncode == 2
    assert message in ended.stderr
    assert len(ended.stderr.splitlines()) <= 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full to write to")
@pytest.mark.parametrize("option", ["--output", "--alignment", "--attention"])
def test_what_has_no_room_is_named(tiny_run: Path, source: Path, option: str) -> None:
    """Catches a full disk of which one cannot tell where it is, and a traceback of what is flushed once more."""
    ended = run("translate", tiny_run, "--input", source, option, "/dev/full")
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1] == "error: /dev/full: No space left on device; choose another output file"
    assert "Traceback" not in ended.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full to write to")
def test_notes_without_room_stop_no_work(tiny_run: Path, source: Path) -> None:
    """Catches translations that are lost since what is said beside them has no room."""
    command = [sys.executable, "-m", "transformer", "translate", tiny_run, "--input", source]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=full, check=False)
    assert (ended.returncode, ended.stdout.count(b"\n")) == (0, 3)


def test_links_go_to_words_of_the_line_as_given(tiny_run: Path, tmp_path: Path) -> None:
    """Catches words that are counted in the pieces of one that was cut, of which the line has no so many."""
    long, links = f"one {'seven' * 120} two", tmp_path / "links"
    ended = run("translate", tiny_run, "--input", write_lines(tmp_path / "long", [long]), "--alignment", links)
    pairs = [tuple(map(int, pair.split("-"))) for pair in links.read_text().split()]
    assert "cut within a sentence" in ended.stderr
    assert {source for source, _ in pairs} <= {0, 1, 2}
    assert max(target for _, target in pairs) < len(ended.stdout.split())
    assert len(pairs) > 3


def test_tags_are_counted_too(tiny_run: Path, tmp_path: Path) -> None:
    """Catches a report that is left out where tags alone are protected, which no search needs to know."""
    ended = run("translate", tiny_run, "--input", write_lines(tmp_path / "a", ["one <b>two</b>"]), "--protect", "tags")
    assert ended.stderr.endswith("glossary: 0 of 0 terms; protected: 2 of 2 spans\n")


def test_scores_of_a_file(tiny_run: Path, source: Path, tmp_path: Path) -> None:
    """Catches a line without a score, JSON that is none (NaN), and means that are sums."""
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
    """Catches a list that evaluate and translate do not take, and one of another model that they do."""
    source, target = digit_corpus
    path = tmp_path / "list.safetensors"
    made = run(
        "shortlist", tiny_run, "--source", source, "--target", target, "--out", path, "--best", 3, "--frequent", 2
    )
    assert made.returncode == 0, made.stderr
    assert "held-out translations" in made.stdout
    plain, short = (
        run("evaluate", tiny_run, "--source", source, "--reference", target, "--json", "--bootstrap", 0, *options)
        for options in ([], ["--shortlist", path])
    )
    assert short.returncode == 0, short.stderr
    scores = [json.loads(ended.stdout)["systems"][0]["scores"]["chrF"]["score"] for ended in (plain, short)]
    assert scores[1] > scores[0] - 5, "three tokens of each digit are enough"
    path.write_bytes(b"")
    ended = run("translate", tiny_run, "--input", source, "--shortlist", path)
    assert (ended.returncode, "is not a shortlist" in ended.stderr) == (2, True)
