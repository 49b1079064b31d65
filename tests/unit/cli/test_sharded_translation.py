"""`transformer translate --shards`: a file translated in parts."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from commands import run
from samples import write_lines

LINES = ["one two", "", "three\tfour", *(f"five {n}" for n in range(200)), "six"]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_lines(tmp_path_factory.mktemp("text") / "text.txt", LINES)


@pytest.mark.parametrize("options", [[], ["--sample", "--seed", 3], ["--json"]], ids=["greedy", "samples", "json"])
def test_the_joined_file_is_that_of_one_run(tiny_run: Path, text: Path, tmp_path: Path, options: list[object]) -> None:
    """Catches lines that depend on their shard: their order, number in JSON, or random stream."""
    expected = run("translate", tiny_run, "--input", text, *options).stdout
    for shards in (1, 2, 7, 64):
        joined = tmp_path / f"{shards}.txt"
        arguments = ["--output", tmp_path / str(shards), "--shards", shards, "--join", joined]
        result = run("translate", tiny_run, "--input", text, *arguments, *options)
        assert result.returncode == 0, result.stderr
        assert joined.read_text(encoding="utf-8") == expected


def test_the_first_process_chooses_the_seed(tiny_run: Path, text: Path, tmp_path: Path) -> None:
    """Catches processes whose samples have other seeds, and that refuse each other's results for that."""
    arguments = ["translate", tiny_run, "--input", text, "--output", tmp_path / "out", "--sample", "--shards", 4]
    assert run(*arguments).returncode == 0
    seed = json.loads((tmp_path / "out/job.json").read_text())["decided"]["seed"]
    part = tmp_path / "out/part-00002-of-00004.txt"
    part.with_suffix(".json").unlink()
    assert run(*arguments, "--join", tmp_path / "joined").returncode == 0
    expected = run("translate", tiny_run, "--input", text, "--sample", "--seed", seed).stdout
    assert (tmp_path / "joined").read_text() == expected


def test_a_line_that_is_no_text_is_set_apart(tiny_run: Path, tmp_path: Path) -> None:
    """Catches one bad line that ends a long job, and lines that move up into its place."""
    (tmp_path / "text").write_bytes(b"one\n\xff\xfe\ntwo\n")
    arguments = ["--output", tmp_path / "out", "--shards", 2, "--join", tmp_path / "joined"]
    result = run("translate", tiny_run, "--input", tmp_path / "text", *arguments)
    assert result.returncode == 0
    assert "line 2, byte 1: 0xff is not UTF-8" in result.stderr
    assert "1 line could not be done" in result.stderr
    lines = (tmp_path / "joined").read_text().split("\n")
    assert (lines[1], len(lines)) == ("", 4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shards", 2, "--output", "out"], "--shards needs a file and a folder"),
        (["--shards", 2, "--input", "text"], "--shards needs a file and a folder"),
        (["--shards", 2, "--input", "none", "--output", "out"], "none: No such file or directory"),
        (["--shards", 2, "--input", "text", "--output", "text"], "text is a file, but --shards writes a folder"),
        (["--shards", 2, "--input", "text", "--output", "out", "--alignment", "a"], "--alignment does not go with"),
        (["--shards", 2, "--input", "text", "--output", "out", "--join", "text"], "text is both input and output"),
        (["--input", "text", "--join", "all"], "--join has no effect without --shards"),
    ],
)
def test_wrong_options_are_one_error(tiny_run: Path, tmp_path: Path, arguments: list[object], message: str) -> None:
    """Catches a traceback, and work that begins before all options are checked."""
    (tmp_path / "text").write_text("one\n")
    result = run("translate", tiny_run, *arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_results_of_another_model_are_refused(tiny_run: Path, text: Path, tmp_path: Path) -> None:
    """Catches one folder with translations of two searches."""
    arguments = ["translate", tiny_run, "--input", text, "--output", tmp_path / "out", "--shards", 2]
    assert run(*arguments).returncode == 0
    other = run(*arguments, "--beam", 2)
    assert other.returncode == 2
    assert "holds results with another search; choose another folder" in other.stderr


@pytest.mark.slow
def test_processes_that_are_killed_lose_and_double_nothing(tiny_run: Path, tmp_path: Path) -> None:
    """Catches a part that is written half, or that nobody takes up after a process was killed or ended."""
    path = write_lines(tmp_path / "text", [f"five {n} one two" for n in range(3000)])
    command = [sys.executable, "-m", "transformer", "translate", str(tiny_run), "--input", str(path), "--output",
               str(tmp_path / "out"), "--shards", "30", "--quiet"]  # fmt: skip
    for number, kind in enumerate((signal.SIGTERM, signal.SIGTERM, signal.SIGTERM)):
        process = subprocess.Popen(command)
        while len([*(tmp_path / "out").glob("part-*.json")]) < 5 * (number + 1) and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(kind)
        process.wait()
    assert not [*(tmp_path / "out/leases").glob("[0-9]*")], "an ended process should free its part"
    processes = [subprocess.Popen([*command, "--join", str(tmp_path / "joined")]) for _ in range(2)]
    assert [process.wait() for process in processes] == [0, 0]
    expected = run("translate", tiny_run, "--input", path).stdout
    assert (tmp_path / "joined").read_text() == expected
