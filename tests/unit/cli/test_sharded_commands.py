"""`--shards` of the commands that score, embed, classify and evaluate."""

import io
import json
import resource
from pathlib import Path

import numpy as np
import pytest

from samples import write_lines, write_recipe
from sharded_texts import BLOCK, SOURCES, TARGETS, call, write_models_and_texts
from substitution import substitute
from transformer.cli.sharded_lines import LineReader, LineWork, Result
from transformer.cli.shards import Shard, lines_of
from transformer.errors import ConfigError, DataError, OutputError
from transformer.sharding.job import ShardOutput
from transformer.sharding.lines import TextFiles


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Random models, and a text with its translation."""
    return write_models_and_texts(tmp_path_factory.mktemp("models"))


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes blocks of lines so small that a short text has many."""
    for name in ("score_shards.CHUNK_LINES", "evaluate_shards.CHUNK_LINES", "embed.CHUNK", "classify.CHUNK"):
        substitute(monkeypatch, name, BLOCK)
    substitute(monkeypatch, "text_generation.MAX_WINDOWS", 2)


LINE_COMMANDS = {
    "score": ("score {translator} --source {source} --target {target}", ".txt"),
    "score, JSON": ("score {translator} --source {source} --target {target} --json", ".jsonl"),
    "embed": ("embed {bert} --input {source}", ".jsonl"),
    "embed, array": ("embed {bert} --input {source}", ".npy"),
    "backtranslate": ("backtranslate {translator} {source} --sample --seed 3 --max-tokens 3", ".tsv"),
    "classify": ("classify {bert} --input {source}", ".txt"),
    "classify, JSON": ("classify {bert} --input {source} --json", ".jsonl"),
}


@pytest.mark.parametrize("name", LINE_COMMANDS)
def test_the_joined_file_is_that_of_one_run(
    paths: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Catches numbers that depend on the lines that happen to be in a shard, and results in another order."""
    line, end = LINE_COMMANDS[name]
    arguments = line.format_map(paths).split()
    call(*arguments, "--output", tmp_path / f"whole{end}")
    for shards in (1, 2, 7):
        joined, folder = tmp_path / f"{shards}{end}", tmp_path / str(shards)
        call(*arguments, "--output", folder, "--shards", shards, "--join", joined)
        assert joined.read_bytes() == (tmp_path / f"whole{end}").read_bytes()
        assert len([*folder.glob("part-*.json")]) == shards
        monkeypatch.setenv("RANK", "1")  # begins in the middle
        monkeypatch.setenv("WORLD_SIZE", "2")


def test_perplexity_is_that_of_one_run(
    paths: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches windows that begin anew in each shard, and a mean of means."""
    arguments = ["perplexity", paths["gpt"], "--json", "--input", paths["source"]]
    call(*arguments)
    expected = json.loads(capsys.readouterr().out)
    assert expected["tokens"] // 12 > 2 * 7
    for shards in (1, 2, 7):
        options = ["--output", tmp_path / str(shards), "--shards", shards, "--join", tmp_path / f"{shards}.txt"]
        call(*arguments, *options)
        assert json.loads(capsys.readouterr().out) == expected
        assert len([*(tmp_path / str(shards)).glob("part-*.json")]) == shards
    losses = [float(line) for line in (tmp_path / "7.txt").read_text().splitlines()]
    assert sum(losses) / expected["tokens"] == pytest.approx(expected["loss"], rel=1e-12)
    with pytest.raises(ConfigError, match="--output has no effect without --shards"):
        call(*arguments, "--output", tmp_path / "other")


def test_scores_and_intervals_are_those_of_one_run(
    paths: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches means of the scores of shards, samples within shards, and a tokenization chosen by one shard."""
    other = write_lines(tmp_path / "other", [line[:-1] + "a" for line in TARGETS])
    arguments = ["evaluate", paths["translator"], "--source", paths["source"], "--reference", paths["target"],
                 "--translations", other, "--bootstrap", 5, "--metrics", "bleu,ter", "--max-tokens", 3]  # fmt: skip
    call(*arguments, "--json", "--output", tmp_path / "whole")
    expected = json.loads(capsys.readouterr().out)
    for shards in (2, 7):
        joined = tmp_path / f"{shards}.jsonl"
        call(*arguments, "--json", "--output", tmp_path / str(shards), "--shards", shards, "--join", joined)
        found = json.loads(capsys.readouterr().out)
        for part in ("lines", "systems", "tokenization", "blank_references", "notes"):
            assert found[part] == expected[part]
        rows = [json.loads(line) for line in joined.read_text(encoding="utf-8").splitlines()]
        assert [row["translations"][0] for row in rows] == (tmp_path / "whole").read_text().splitlines()
        assert [row["line"] for row in rows] == [*range(1, 39)]
    call(*arguments, "--output", tmp_path / "7", "--shards", 7)
    assert "38 lines, " in capsys.readouterr().out
    with pytest.raises(ConfigError, match="--details does not go with --shards"):
        call(*arguments, "--output", tmp_path / "7", "--shards", 7, "--details")


def test_lines_that_cannot_be_done_are_set_apart(
    paths: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches one bad line that ends the job, that gets the result of an empty one, or that is not named."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"ab\n\xff\ncd\n" + b"a" * 30 + b"\nab\n")
    target.write_bytes(b"ab\nab\n\xff\nab\ncd\n")

    def run(*arguments: object, output: str) -> tuple[bytes, list[int]]:
        call(*arguments, "--output", tmp_path / output, "--shards", 2, "--join", tmp_path / f"{output}.joined")
        rows = [path.read_text() for path in sorted((tmp_path / output).glob("*.rejected.jsonl"))]
        numbers = [json.loads(line)["line"] for text in rows for line in text.splitlines()]
        return (tmp_path / f"{output}.joined").read_bytes(), numbers

    scores, rejected = run("score", paths["translator"], "--source", source, "--target", target, output="scores")
    assert [line == b"nan" for line in scores.split()] == [False, True, True, True, False]
    assert rejected == [2, 3, 4]
    assert "line 2, byte 1: 0xff is not UTF-8" in (errors := capsys.readouterr().err)
    assert "line 4: the source has 31 tokens" in errors
    labels, rejected = run("classify", paths["bert"], "--input", source, output="labels")
    assert labels.splitlines()[1] == b"\tnan\t"
    assert rejected == [2]
    vectors, rejected = run("embed", paths["bert"], "--input", source, output="vectors")
    assert json.loads(vectors.splitlines()[1]) == {"text": None, "embedding": None}
    assert rejected == [2]
    arguments = ["--reference", target, "--translations", source, "--bootstrap", 0, "--json"]
    capsys.readouterr()
    _, rejected = run("evaluate", *arguments, output="evaluation")
    assert rejected == [2, 3]
    assert json.loads(capsys.readouterr().out)["lines"] == 3


def test_teachers_share_their_text(paths: dict[str, Path], tmp_path: Path) -> None:
    """Catches rows in another order, and a table that the command without --shards does not take for its own."""
    recipe = write_recipe(tmp_path, (paths["source"], paths["target"]))
    validation = [f"data.validation_{side}={paths[side]}" for side in ("source", "target")]
    arguments = ["distill", paths["translator"], paths["source"], "--student", recipe, "--target", paths["target"],
                 "--by-reference", "--beam", 2, "--max-tokens", 3,
                 "--set", validation[0], "--set", validation[1]]  # fmt: skip
    call(*arguments, "--run", tmp_path / "whole", "--shard", "1/1")
    for _ in range(2):
        call(*arguments, "--run", tmp_path / "run", "--shards", 3)
    table = (tmp_path / "run" / "distilled.tsv").read_bytes()
    assert table == (tmp_path / "whole" / "distilled-1-of-1.tsv").read_bytes()
    facts = [tmp_path / name for name in ("run/distilled.json", "whole/distilled-1-of-1.json")]
    assert len({path.read_text() for path in facts}) == 1
    with pytest.raises(ConfigError, match="--shards and --shard contradict each other"):
        call(*arguments, "--run", tmp_path / "run", "--shards", 3, "--shard", "1/2")


def test_documents_are_divided_by_file(
    paths: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches documents that are left out, other translations than of one process, and a bad one that ends all."""
    (folder := tmp_path / "in" / "sub").mkdir(parents=True)
    for number in range(3):
        (folder.parent / f"{number}.md").write_text("# abc\n\n" + "dcba fe\n\n" * number)
    (folder / "bad.json").write_text("{")
    (folder / "z.md").write_text("hg\n")
    arguments = ["translate", paths["translator"], "--input", tmp_path / "in"]
    with pytest.raises(DataError, match="left out 1 of 5 documents"):
        call(*arguments, "--output", tmp_path / "whole")
    last = capsys.readouterr().err.splitlines()[-1]
    for shards in (2, 20):
        out = tmp_path / str(shards)
        call(*arguments, "--output", out, "--shards", shards)
        names = [path.relative_to(tmp_path / "whole") for path in sorted((tmp_path / "whole").rglob("*.md"))]
        assert len(names) == 4
        assert all((out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes() for name in names)
        assert last in capsys.readouterr().err
        (rejected,) = [
            line for path in (out / ".shards").glob("*.rejected.jsonl") for line in path.read_text().splitlines()
        ]
        assert "sub/bad.json" in json.loads(rejected)["reason"]
    for options, message in (
        (["--output", tmp_path / "in"], "both input and output"),
        (["--output", tmp_path / "o", "--join", tmp_path / "j"], "--join writes one file"),
    ):
        with pytest.raises(ConfigError, match=message):
            call(*arguments, "--shards", 2, *options)


def test_equal_parts_have_each_line_once(tmp_path: Path) -> None:
    """Catches a line that is lost, doubled or miscounted between `--shard 1/2` and `2/2`, and parts without lines."""
    path = write_lines(tmp_path / "text", SOURCES)
    for count in (1, 2, 7, 50):
        parts = [lines_of(Shard(number, count), path, "error") for number in range(1, count + 1)]
        lines = [list(part) for _, part in parts]
        assert [line for part in lines for line in part] == SOURCES
        assert max(map(len, lines)) - min(map(len, lines)) <= 1
        assert [first for first, _ in parts] == [sum(map(len, lines[:number])) for number in range(count)]
    path.write_bytes(b"ab\n\xff\n")
    with pytest.raises(DataError, match="text, line 2, byte 1"):
        list(lines_of(Shard(2, 2), path, "error")[1])


def test_a_full_disk_ends_with_one_line_and_keeps_what_is_done(paths: dict[str, Path], tmp_path: Path) -> None:
    """Catches a traceback, a part that is half written, and a lease that blocks the next try."""
    arguments = ["embed", paths["bert"], "--input", paths["source"], "--output", tmp_path / "out", "--shards", 3]
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))
    try:
        with pytest.raises(OutputError, match=r"out/part-00000-of-00003\.jsonl: File too large"):
            call(*arguments)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not [*(tmp_path / "out").glob("part-*")]
    assert not [*(tmp_path / "out" / "leases").glob("[0-9]*")]
    call(*arguments)
    assert len([*(tmp_path / "out").glob("part-*.jsonl")]) == 3


def test_an_input_that_changes_is_not_cut_short(tmp_path: Path) -> None:
    """Catches a result with fewer lines than the input had when it was divided."""
    files = TextFiles([write_lines(tmp_path / "text", ["one", "two"])])
    (shard,) = files.divide(1)
    work = LineWork(LineReader(files, 100, "error")).by(lambda n_before, rows: (Result(b"") for _ in rows))
    work(shard, ShardOutput(io.BytesIO()))
    write_lines(tmp_path / "text", ["one"])
    with pytest.raises(DataError, match="text has changed since it was divided"):
        work(shard, ShardOutput(io.BytesIO()))


def test_an_evaluation_without_lines_is_one_error(tmp_path: Path) -> None:
    """Catches a division by zero where no line can be read."""
    (tmp_path / "text").write_bytes(b"\xff\n")
    files = ["--reference", tmp_path / "text", "--translations", tmp_path / "text"]
    with pytest.raises(DataError, match="nothing to score; give a reference"):
        call("evaluate", *files, "--output", tmp_path / "out", "--shards", 2)


def test_an_empty_text_has_an_empty_array(paths: dict[str, Path], tmp_path: Path) -> None:
    """Catches a division by the number of lines, and an array of another width."""
    (tmp_path / "empty").touch()
    arguments = ["embed", paths["bert"], "--input", tmp_path / "empty", "--output", tmp_path / "out", "--shards", 3]
    call(*arguments, "--join", tmp_path / "joined.npy")
    assert np.load(tmp_path / "joined.npy").shape == (0, 16)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("score {translator} --source {source} --shards 2 --output {out}", "give --source FILE, --target FILE and"),
        (
            "score {translator} --source {source} --target {short} --shards 2 --output {out}",
            "has 38 lines, but .* has 1",
        ),
        ("score {translator} --source {trees} --target {trees} --shards 2 --output {out}", "holds trees"),
        ("score {translator} a b --shards 2 --output {out}", "--shards needs files and a folder"),
        ("embed {bert} --input {source} --shards 2", "--shards needs a file and a folder"),
        ("embed {bert} --input {source} --shards 2 --output {out} --nearest a", "--nearest"),
        ("classify {bert} --evaluate {source} --shards 2 --output {out}", "--evaluate"),
        ("perplexity {gpt} --shards 2 --output {out}", "--shards needs a file and a folder"),
        ("perplexity {gpt} {short} --window 9 --shards 2 --output {out}", "a window of 9 needs at least 10"),
        ("evaluate --reference {trees} --translations {trees} --shards 2 --output {out}", "is of trees"),
        ("evaluate --reference {source} --translations {target} --shards 2", "give all files and --output FOLDER"),
    ],
)
def test_wrong_options_are_one_error(paths: dict[str, Path], tmp_path: Path, line: str, message: str) -> None:
    """Catches a traceback, and options without effect."""
    short, trees = write_lines(tmp_path / "short", ["ab"]), write_lines(tmp_path / "a.mrg", ["(S (N a))"])
    arguments = line.format_map({**paths, "out": tmp_path / "out", "short": short, "trees": trees}).split()
    with pytest.raises((ConfigError, DataError), match=message):
        call(*arguments)


def test_results_of_another_command_are_refused(paths: dict[str, Path], tmp_path: Path) -> None:
    """Catches vectors and labels in one folder."""
    options = [paths["bert"], "--input", paths["source"], "--output", tmp_path / "out", "--shards", 2]
    call("embed", *options)
    with pytest.raises(DataError, match="holds results with another command and options"):
        call("classify", *options)
