"""`transformer backtranslate`: pairs of translations and lines, and continuing after a stop."""

import json
from pathlib import Path

import pytest

from commands import Commands, run
from samples import write_lines
from transformer.data.readers import PairCounts
from transformer.data.tables import read_tsv

LINES = ["one two", "", "three\tfour", *(f"five {n}" for n in range(300))]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_lines(tmp_path_factory.mktemp("text") / "mono.txt", LINES)


def test_each_line_becomes_a_pair(tiny_run: Path, text: Path, tmp_path: Path) -> None:
    """Catches sides exchanged, a tag in the wrong column or in front of nothing, and leftovers of the work."""
    for options, tag in (([], "<BT> "), (["--tag", ""], ""), (["--tag", "[back]"], "[back] ")):
        output = tmp_path / "back.tsv"
        result = run("backtranslate", tiny_run, text, "--output", output, *options)
        assert result.returncode == 0, result.stderr
        pairs = list(read_tsv(output, None, PairCounts(), "error"))
        assert [target for _, target in pairs] == [line.replace("\t", " ") for line in LINES]
        translated = run("translate", tiny_run, "--input", text).stdout.split("\n")[:-1]
        assert [source for source, _ in pairs] == [
            f"{tag}{line.replace(chr(9), ' ')}".strip() if line else "" for line in translated
        ]
        assert [*tmp_path.iterdir()] == [output]


@pytest.mark.parametrize("options", [[], ["--sample"]])
def test_a_stopped_command_continues(tiny_run: Path, text: Path, tmp_path: Path, options: list[object]) -> None:
    """Catches lines that are lost, doubled or cut where the work was stopped, and samples of another seed."""
    (folder := tmp_path / "work").mkdir()
    output, part = folder / "back.tsv", folder / "back.tsv.part"
    with Commands(tmp_path) as commands:
        stopped = commands("backtranslate", tiny_run, text, "--output", output, *options, file_size=3_001)
    assert stopped.returncode == 2
    assert "back.tsv.part: File too large" in stopped.stderr
    if not options:  # samples, of a seed that the command draws, may end a row just there
        assert not part.read_bytes().endswith(b"\n"), "the last row should be cut"
    seed = ["--seed", json.loads((folder / "back.tsv.part.json").read_text())["seed"]] if options else []
    continued = run("backtranslate", tiny_run, text, "--output", output, *options)
    assert continued.returncode == 0, continued.stderr
    assert "continues behind line" in continued.stderr
    assert [*folder.iterdir()] == [output]
    unbroken = tmp_path / "unbroken.tsv"
    run("backtranslate", tiny_run, text, "--output", unbroken, *options, *seed)
    assert output.read_bytes() == unbroken.read_bytes()


def test_the_work_of_another_command_is_not_continued(tiny_run: Path, text: Path, tmp_path: Path) -> None:
    """Catches a file whose parts come from two models, texts or searches."""
    output = tmp_path / "back.tsv"
    (tmp_path / "back.tsv.part").write_text("a\tb\n")
    for content in (None, "", "[1]", '{"model": '):
        if content is not None:
            (tmp_path / "back.tsv.part.json").write_text(content)
        result = run("backtranslate", tiny_run, text, "--output", output)
        assert result.returncode == 2
        assert "was written with another model and text and tag and options and search; remove it" in result.stderr
    assert (tmp_path / "back.tsv.part").read_text() == "a\tb\n"
    for options, message in (
        (["--output", tmp_path / "back.jsonl"], "back.jsonl does not end in .tsv; rename it"),
        (["--output", output, "--tag", "a b"], "--tag 'a b' is not a word without spaces; choose another"),
    ):
        result = run("backtranslate", tiny_run, text, *options)
        assert result.returncode == 2
        assert message in result.stderr


def test_shards_one_after_another_are_the_whole(tiny_run: Path, text: Path, tmp_path: Path) -> None:
    """Catches lines that are lost or doubled between shards, and samples that depend on the shard."""
    options = ("--sample", "--seed", 5)
    whole, parts = tmp_path / "whole.tsv", [tmp_path / f"{number}.tsv" for number in (1, 2)]
    run("backtranslate", tiny_run, text, "--output", whole, *options)
    for number, part in enumerate(parts, start=1):
        result = run("backtranslate", tiny_run, text, "--output", part, "--shard", f"{number}/2", *options)
        assert result.returncode == 0, result.stderr
    assert b"".join(part.read_bytes() for part in parts) == whole.read_bytes()
    assert parts[0].read_bytes().count(b"\n") == len(LINES) // 2
