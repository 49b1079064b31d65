"""Runs that are stopped, resumed and misused, with the real command."""

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from samples import write_lines, write_recipe
from transformer.inference.cpu import choose_precision, describe_precision
from transformer.storage.checkpoint_paths import checkpoint_steps

COMMAND = [sys.executable, "-m", "transformer"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}


def command(*arguments: object, **options: object) -> subprocess.CompletedProcess[bytes]:
    call = [*COMMAND, *map(str, arguments)]
    return subprocess.run(call, capture_output=True, env=ENVIRONMENT, check=False, **options)


@pytest.fixture
def recipe(digit_corpus: tuple[Path, Path], tmp_path: Path) -> Path:
    return write_recipe(tmp_path, digit_corpus)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_saves_and_the_same_command_continues(
    recipe: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    """Catches Ctrl-C without a checkpoint, and an exit code that looks like success."""
    run = tmp_path / "run"
    settings = ["--set", "training.max_steps=100000", "--set", "training.patience=100000"]
    inherited = signal.signal(number, signal.SIG_DFL)  # `nohup make test` ignores SIGHUP, as its children then do
    try:
        process = subprocess.Popen(
            [*COMMAND, "train", str(recipe), "--run", str(run), *settings], stderr=subprocess.PIPE, env=ENVIRONMENT
        )
    finally:
        signal.signal(number, inherited)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith(b"step 6"):
            break
    process.send_signal(number)
    _, remaining_output = process.communicate(timeout=600)
    assert process.returncode == code
    assert b"and saved; the same command resumes the run" in remaining_output
    step = checkpoint_steps(run)[-1]
    again = command("train", recipe, "--run", run, "--set", f"training.max_steps={step + 2}")
    assert again.returncode == 0, again.stderr
    assert f"continues at step {step}".encode() in again.stderr


BAD_CORPORA = {
    "one line short": (b"a\nb\nc\n", b"x\ny\n", "has 3 lines,"),
    "not UTF-8": (b"a\nb\xff\n", b"x\ny\n", "line 2, byte 2: 0xff is not UTF-8"),
    "empty": (b"", b"", "are empty"),
    "only empty lines": (b"\n\n\n", b"\n\n\n", "error:"),
}


@pytest.mark.parametrize("name", BAD_CORPORA)
def test_a_bad_corpus_is_one_line_and_exit_code_2(tmp_path: Path, name: str) -> None:
    """Catches tracebacks, and training on a corpus that could not be read."""
    source, target, message = BAD_CORPORA[name]
    (tmp_path / "s").write_bytes(source)
    (tmp_path / "t").write_bytes(target)
    result = command("train", "--source", tmp_path / "s", "--target", tmp_path / "t", "--run", tmp_path / "run")
    assert result.returncode == 2
    assert result.stderr.decode().startswith("error: ")
    assert result.stderr.decode().count("\n") == 1
    assert message in result.stderr.decode()


def test_translate_keeps_lines(tiny_run: Path, tmp_path: Path) -> None:
    """Catches lines split at U+2028 or lost when empty, between two files and through pipes."""
    lines = ["one two", "", "three\u2028four", "a\x00b\x0cc", "  ", "nine", "x\ry"]
    source = write_lines(tmp_path / "in.txt", lines)
    piped = command("translate", tiny_run, input=source.read_bytes())
    assert piped.returncode == 0, piped.stderr
    assert piped.stdout.count(b"\n") == len(lines)
    assert [not line for line in piped.stdout.split(b"\n")[:-1]][1] is True
    filed = command("translate", tiny_run, "--input", source, "--output", tmp_path / "out.txt")
    assert filed.returncode == 0, filed.stderr
    assert (tmp_path / "out.txt").read_bytes() == piped.stdout
    same = command("translate", tiny_run, "--input", source, "--output", source)
    assert same.returncode == 2
    assert b"is both input and output" in same.stderr


def test_a_reader_that_leaves_is_no_error(tiny_run: Path, tmp_path: Path) -> None:
    """Catches a traceback for `| head`; the output must be a prefix of complete lines."""
    source = write_lines(tmp_path / "in.txt", ["one two three"] * 5000)
    script = f"{' '.join(COMMAND)} translate {tiny_run} --input {source} | head -n 3; exit ${{PIPESTATUS[0]}}"
    result = subprocess.run(["bash", "-c", script], capture_output=True, env=ENVIRONMENT, check=False)
    assert (result.returncode, result.stderr, result.stdout.count(b"\n")) == (
        0,
        describe_precision(choose_precision(), 1).encode() + b"\n",
        3,
    )


STREAMS = {
    "notes go to a reader that leaves": "--output {out} 2>&1 | true",
    "standard error is closed": "> {out} 2>&-",
    "standard input and error are closed": "--output {out} <&- 2>&-",
}


@pytest.mark.parametrize("redirected", STREAMS.values(), ids=STREAMS)
def test_no_line_is_lost_or_shifted_whatever_becomes_of_the_notes(
    tiny_run: Path, tmp_path: Path, redirected: str
) -> None:
    """Catches a successful exit before the end because notes cannot be written, and notes among translations."""
    lines = [f"one two {n}" if n % 2 else "seven " * 90 for n in range(300)]  # half of the lines cause a note
    source, out = write_lines(tmp_path / "in.txt", lines), tmp_path / "out.txt"
    script = f"{' '.join(COMMAND)} translate {tiny_run} --input {source} {redirected.format(out=out)}"
    result = subprocess.run(["bash", "-c", f"{script}; exit ${{PIPESTATUS[0]}}"], env=ENVIRONMENT, check=False)
    assert result.returncode == 0
    translations = out.read_text().splitlines()
    assert len(translations) == 300
    assert not any("int8" in line or "line " in line for line in translations)


def test_a_file_is_known_by_any_name(tiny_run: Path, tmp_path: Path) -> None:
    """Catches an input that is truncated before it is read: as standard input, and through a link."""
    source, link = write_lines(tmp_path / "in.txt", ["one"]), tmp_path / "link.txt"
    link.hardlink_to(source)
    for files in (f"< {source} --output {source}", f"--input {source} --output {link}"):
        script = f"{' '.join(COMMAND)} translate {tiny_run} {files}"
        result = subprocess.run(["bash", "-c", script], env=ENVIRONMENT, capture_output=True, check=False)
        assert result.returncode == 2
        assert b"is both input and output" in result.stderr
    assert source.read_text() == "one\n"


@pytest.mark.parametrize("threads", ["1", "2"])
def test_lines_go_in_and_out_whatever_the_workers(tiny_run: Path, tmp_path: Path, threads: str) -> None:
    """Catches lines that a second worker loses, doubles or moves, and empty lines that shift others."""
    lines = [f"one two {n}" if n % 3 else "seven" if n % 2 else "" for n in range(4000)]
    source, out = write_lines(tmp_path / "in.txt", lines), tmp_path / "out.jsonl"
    call = [*COMMAND, "translate", str(tiny_run), "--input", str(source), "--output", str(out), "--format", "jsonl"]
    result = subprocess.run(call, capture_output=True, env=ENVIRONMENT | {"OMP_NUM_THREADS": threads}, check=False)
    assert result.returncode == 0, result.stderr
    assert ("processes" in result.stderr.decode()) == (threads == "2" and sys.platform == "linux")
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(record["line"], record["source"]) for record in records] == list(enumerate(lines, start=1))
    indices = [*range(0, 4000, 97), *range(4, 4000, 501)]
    sample = write_lines(tmp_path / "few.txt", [lines[n] for n in indices])
    alone = command("translate", tiny_run, "--input", sample).stdout.decode().split("\n")[:-1]
    assert [records[n]["translation"] for n in indices] == alone


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_translation_that_is_stopped_leaves_a_prefix_and_nobody_behind(
    tiny_run: Path, tmp_path: Path, stop: signal.Signals
) -> None:
    """Catches workers that continue after Ctrl-C, keep the pipe open, or write later lines."""
    lines = [f"one two {n}" for n in range(200_000)]
    source = write_lines(tmp_path / "in.txt", lines)
    call = [*COMMAND, "translate", str(tiny_run), "--input", str(source), "--format", "jsonl"]
    environment = ENVIRONMENT | {"OMP_NUM_THREADS": "2"}
    # A shell ignores SIGINT for commands in the background.
    restore_sigint = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(
        call, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, preexec_fn=restore_sigint
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.send_signal(stop)
        remaining_output = process.stdout.read()  # ends when every process that holds the pipe has ended
    records = [
        json.loads(line) for line in [first, *remaining_output.splitlines(keepends=True)] if line.endswith(b"\n")
    ]
    assert [(record["line"], record["source"]) for record in records] == list(enumerate(lines[: len(records)], start=1))
    assert len(records) < len(lines)


def test_evaluate_and_info(tiny_run: Path, digit_corpus: tuple[Path, Path], tmp_path: Path) -> None:
    """Catches scores without signatures, invalid JSON, and sizes that do not add up."""
    source, reference = digit_corpus
    result = command("evaluate", tiny_run, "--source", source, "--reference", reference, "--json")
    assert result.returncode == 0, result.stderr
    figures = json.loads(result.stdout)
    assert figures["lines"] == 600
    scores = figures["systems"][0]["scores"]
    assert scores["BLEU"]["signature"].startswith("nrefs:1")
    assert scores["BLEU"]["interval"] >= 0
    text = command("evaluate", tiny_run, "--source", source, "--reference", reference, "--output", tmp_path / "o")
    assert f"{scores['chrF']['score']:.2f}" in text.stdout.decode()
    assert (tmp_path / "o").read_bytes().count(b"\n") == 600
    short = write_lines(tmp_path / "short", ["1"])
    unequal = command("evaluate", tiny_run, "--source", source, "--reference", short)
    assert (unequal.returncode, unequal.stderr.count(b"\n")) == (2, 1)
    info = command("info", tiny_run).stdout.decode()
    sizes = [
        int(line.split()[-1].replace(",", ""))
        for line in info.split("parameters\n")[1].split("FLOPs")[0].splitlines()
        if "shared with" not in line
    ]
    assert sum(sizes[:-1]) == sizes[-1]


USAGE = [
    (["train"], "nothing to train on; give a recipe, or two texts (SOURCE TARGET)"),
    (["train", "--source", "a"], "nothing to train on; give a recipe, or two texts (SOURCE TARGET)"),
    (["train", "--source", "a", "b", "c"], "b and --source a both name the source; leave out one of them"),
    (["train", "a", "b", "c"], "c: more arguments than a source and a target text; leave it out"),
    (["translate"], "model is missing"),
    (["translate", "x", "--invalid-utf8", "maybe"], "invalid_utf8='maybe' is unknown"),
    (["translate", "x", "--colour"], "--colour is not an option of transformer translate"),
    (["sing"], "sing is not a command of transformer"),
    (["info", "/nowhere/at/all"], "does not exist"),
]


@pytest.mark.parametrize(("arguments", "message"), USAGE)
def test_mistakes_on_the_command_line_are_one_line(arguments: list[str], message: str) -> None:
    """Catches boxes, usage texts and tracebacks instead of a single sentence."""
    result = command(*arguments)
    assert result.returncode == 2
    assert result.stderr.decode().startswith("error: ")
    assert result.stderr.count(b"\n") == 1
    assert message in result.stderr.decode()


def test_an_output_that_cannot_be_written_is_refused_before_the_work(tiny_run: Path, tmp_path: Path) -> None:
    """Catches a traceback after everything was translated."""
    source = write_lines(tmp_path / "in.txt", ["one"])
    for arguments in (
        ["translate", tiny_run, "--input", source, "--output", tmp_path / "no" / "o"],
        ["evaluate", tiny_run, "--source", source, "--reference", source, "--output", tmp_path / "no" / "o"],
    ):
        result = command(*arguments)
        assert (result.returncode, result.stderr.count(b"\n")) == (2, 1)
        assert b"No such file or directory" in result.stderr


KEPT = [
    "translate {run} --input {no} --output {out} --alignment {other} --attention {third}",
    "translate {run} --input {in} --prefix {no} --output {out} --alignment {other} --attention {third}",
    "translate {run} --input {in} --task t: --protect tags --output {out} --attention {third}",
    "score {run} --source {in} --target {no} --output {out}",
    "evaluate {no} --source {in} --reference {in} --output {out} --report {other}",
    "evaluate {run} --source {in} --reference {in} --shortlist {no} --output {out}",
]


@pytest.mark.parametrize("line", KEPT)
def test_what_fails_leaves_outputs_as_they_were(line: str, tiny_run: Path, tmp_path: Path) -> None:
    """Catches an earlier result that is lost because of a mistyped name."""
    names = {"run": tiny_run, "in": write_lines(tmp_path / "in.txt", ["one"]), "no": tmp_path / "no"}
    outputs = {name: write_lines(tmp_path / name, [name]) for name in ("out", "other", "third")}
    result = command(*line.format(**names, **outputs).split())
    assert (result.returncode, result.stderr.splitlines()[-1][:6]) == (2, b"error:")
    assert [path.read_text(encoding="utf-8") for path in outputs.values()] == [f"{name}\n" for name in outputs]
    for path in outputs.values():
        path.unlink()
    assert command(*line.format(**names, **outputs).split()).returncode == 2
    assert not any(path.exists() for path in outputs.values()), "an empty file looks like a result"


def test_what_succeeds_replaces_outputs(tiny_run: Path, tmp_path: Path) -> None:
    """Catches remains of an earlier, longer result, or all of it if the new one is empty."""
    for lines in ([], ["one"]):
        source = write_lines(tmp_path / "in.txt", lines)
        out, links, third = (write_lines(tmp_path / name, ["x" * 9999]) for name in ("out", "links", "a.npz"))
        outputs = ["--output", out, "--alignment", links, "--attention", third]
        assert command("translate", tiny_run, "--input", source, *outputs).returncode == 0
        assert [path.read_bytes().count(b"\n") for path in (out, links)] == [len(lines)] * 2
        assert b"x" not in out.read_bytes() + links.read_bytes()
        assert len(np.load(third)) == 3 * len(lines)


def test_a_program_may_write_a_line_and_wait_for_its_translation(tiny_run: Path) -> None:
    """Catches input that is buffered while the writer waits for the translation of a complete line."""
    call = [*COMMAND, "translate", str(tiny_run)]
    with subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for line in (b"one two\n", b"\n", b"three\nfo", b"ur\n"):
            process.stdin.write(line)
            process.stdin.flush()
            assert process.stdout.readline().endswith(b"\n")
        process.stdin.write(b"nine")  # the last line may lack a line feed
        process.stdin.close()
        assert process.stdout.read().count(b"\n") == 1
    assert process.returncode == 0


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    """Catches an option without effect."""
    result = command("--debug", "info", tmp_path)
    assert b"Traceback" in result.stderr
    plain = command("info", tmp_path)
    assert b"Traceback" not in plain.stderr
    assert plain.returncode == 2
