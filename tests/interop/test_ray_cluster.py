"""Parquet files that a real Ray cluster of two nodes translates, with actors and commands that are killed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

import transformer

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray: pip install 'transformer[ray]'"),
]
MARK = "TRANSFORMER_TEST_CLUSTER"
ROWS, BATCH_SIZE = 4000, 8
BAD = {17: None, 2503: None}
"""Rows without a text."""


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    """The environment of commands that use the cluster; its processes are found by a mark in it."""
    environment = {**os.environ, MARK: uuid4().hex, "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    script = Path(__file__).with_name("ray_cluster.py")
    with subprocess.Popen(
        [sys.executable, script], env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as cluster:
        assert cluster.stdin is not None
        assert cluster.stdout is not None
        address = next(line for line in cluster.stdout if line[0].isdigit()).strip()
        yield {**environment, "RAY_ADDRESS": address}
        cluster.stdin.close()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of three Parquet files."""
    folder = tmp_path_factory.mktemp("source")
    texts = [BAD.get(n, f"one {n} two") for n in range(ROWS)]
    for part in range(3):
        numbers = range(part, ROWS, 3)
        table = pa.table({"key": numbers, "words": pa.array([texts[n] for n in numbers], pa.string())})
        parquet.write_table(table, folder / f"{part}.parquet", row_group_size=400)
    return folder


@pytest.fixture(scope="module")
def expected(tiny_run: Path) -> list[str]:
    """The translation of each row, by a translator in this process."""
    texts = [f"one {n} two" for n in range(ROWS)]
    return [result.text for result in transformer.load(tiny_run, workers=1).translations(texts)]


def command(model: Path, source: Path, output: Path, *more: object) -> list[str]:
    words = ["translate", model, "--engine", "ray", "--input", source, "--output", output, "--text-column", "words",
             "--id-column", "key", "--batch-size", BATCH_SIZE, *more]  # fmt: skip
    return [sys.executable, "-m", "transformer", *map(str, words)]


def actors(environment: Mapping[str, str]) -> list[int]:
    """Returns the processes of the cluster that have a model."""
    found: list[int] = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            is_actor = (
                b"ray::" in (process / "cmdline").read_bytes() and b"Translate" in (process / "cmdline").read_bytes()
            )
            if is_actor and environment[MARK].encode() in (process / "environ").read_bytes():
                found.append(int(process.name))
        except OSError:  # ended meanwhile
            continue
    return found


def wait_for_files(folder: Path, number: int, process: "subprocess.Popen[str]") -> set[str]:
    """Waits until so many files of results are there, while a command runs."""
    while len(names := {path.name for path in folder.glob("*.parquet")}) < number:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    return names


def check_rows(folder: Path, expected: list[str]) -> None:
    """Checks that each row is there once, with its columns and its translation, or the reason why there is none."""
    rows = parquet.read_table(folder).sort_by("key").to_pydict()
    assert list(rows) == ["key", "words", "translation", "confidence", "error"]
    assert rows["key"] == [*range(ROWS)]
    assert rows["translation"] == [None if n in BAD else text for n, text in enumerate(expected)]
    assert {n: reason for n, reason in enumerate(rows["error"]) if reason} == dict.fromkeys(BAD, "the text is missing")


def test_an_actor_that_is_killed_loses_and_doubles_nothing(
    tiny_run: Path, source: Path, expected: list[str], environment: dict[str, str], tmp_path: Path
) -> None:
    """Catches rows of an actor that nobody takes up, rows written twice, and a job that ends with its actor."""
    call = command(tiny_run, source, tmp_path / "out", "--concurrency", 2)
    with subprocess.Popen(call, env=environment, text=True, stderr=subprocess.PIPE) as process:
        wait_for_files(tmp_path / "out", 2, process)
        killed = actors(environment)
        assert killed, "the processes of actors are named otherwise in this version of Ray"
        os.kill(killed[0], signal.SIGKILL)
        _, notes = process.communicate()
    assert process.returncode == 0, notes
    check_rows(tmp_path / "out", expected)
    assert "2 rows could not be translated; the column 'error' says why" in notes
    assert "Traceback" not in notes


def test_a_job_that_is_killed_goes_on(
    tiny_run: Path, source: Path, expected: list[str], environment: dict[str, str], tmp_path: Path
) -> None:
    """Catches a second start that translates everything again, leaves rows out, or writes them twice."""
    folder = tmp_path / "out"
    call = command(tiny_run, source, folder)
    with subprocess.Popen(call, env=environment, text=True, stderr=subprocess.PIPE) as process:
        wait_for_files(folder, 3, process)
        process.kill()
    while actors(environment):  # Ray ends the actors of a command that is gone
        time.sleep(0.1)
    checkpoint = tmp_path / "out.checkpoint"
    pending = {path.name.partition(".")[0] for path in checkpoint.glob("*.pending.parquet")}
    finished = {path for path in folder.glob("*.parquet") if not any(path.name.startswith(name) for name in pending)}
    assert finished
    assert len({row for path in finished for row in parquet.read_table(path)["key"].to_pylist()}) < ROWS
    early = subprocess.run(call, env=environment, text=True, capture_output=True, check=False)
    assert early.returncode == 2
    assert "was killed less than two minutes ago" in early.stderr
    expired = time.time() - 1000
    os.utime(folder / "_job/leases/running", (expired, expired))
    times = {path: path.stat().st_mtime_ns for path in finished}
    again = subprocess.run(call, env=environment, text=True, capture_output=True, check=False)
    assert again.returncode == 0, again.stderr
    assert {path: path.stat().st_mtime_ns for path in finished} == times
    check_rows(folder, expected)
    names = {path.name for path in folder.glob("*.parquet")}
    third = subprocess.run(call, env=environment, text=True, capture_output=True, check=True)
    assert f"{ROWS:,} rows are in {folder}" in third.stderr
    assert {path.name for path in folder.glob("*.parquet")} == names
    assert not checkpoint.exists()


def test_a_job_that_is_ended_goes_on_at_once(
    tiny_run: Path, source: Path, expected: list[str], environment: dict[str, str], tmp_path: Path
) -> None:
    """Catches an abort of Ray by SIGTERM, after which the folder is held for two minutes."""
    call = command(tiny_run, source, tmp_path / "out")
    with subprocess.Popen(call, env=environment, text=True, stderr=subprocess.PIPE) as process:
        wait_for_files(tmp_path / "out", 2, process)
        process.terminate()
        _, notes = process.communicate()
    assert process.returncode == 128 + signal.SIGTERM, notes
    again = subprocess.run(call, env=environment, text=True, capture_output=True, check=False)
    assert again.returncode == 0, again.stderr
    check_rows(tmp_path / "out", expected)


def test_an_error_of_an_actor_is_one_line(
    tiny_run: Path, source: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    """Catches pages of tracebacks of Ray for a model that an actor cannot load."""
    call = command(tiny_run, source, tmp_path / "out", "--min-tokens", 100_000)
    result = subprocess.run(call, env=environment, text=True, capture_output=True, check=False)
    assert result.returncode == 2
    *_, last = result.stderr.splitlines()
    assert last.startswith("error: min_tokens=100000 exceeds")
    assert "Traceback" not in result.stderr


PROGRAM = """
import json, sys
import ray
import transformer.ray

ray.init(log_to_driver=False)
dataset = ray.data.read_parquet(sys.argv[2]).limit(50)
dataset = dataset.map_batches(
    transformer.ray.Translate, fn_constructor_args=(sys.argv[1],), concurrency=1, batch_size=16,
    fn_constructor_kwargs={"text_column": "words", "error_column": "why"}, **json.loads(sys.argv[3]),
)
print(json.dumps(sorted((row["key"], row["translation"], row["why"]) for row in dataset.take_all())))
"""


@pytest.mark.parametrize("options", [{}, {"batch_format": "pandas"}, {"batch_format": "pyarrow"}], ids=str)
def test_ray_takes_the_class(
    tiny_run: Path, source: Path, expected: list[str], environment: dict[str, str], options: dict[str, str]
) -> None:
    """Catches a class that Ray cannot send to an actor, and batches that it cannot read back."""
    call = [sys.executable, "-c", PROGRAM, str(tiny_run), str(source), json.dumps(options)]
    result = subprocess.run(call, env=environment, text=True, capture_output=True, check=False)
    assert result.returncode == 0, result.stderr
    rows = json.loads(result.stdout)
    assert len(rows) == 50
    assert [row for row in rows if row[0] not in BAD] == [[n, expected[n], None] for n, *_ in rows if n not in BAD]
    assert [row for row in rows if row[0] in BAD] == [[n, None, "the text is missing"] for n, *_ in rows if n in BAD]


def test_a_command_starts_ray_itself(tiny_run: Path, source: Path, expected: list[str], tmp_path: Path) -> None:
    """Catches a command that waits for cores that its actors have taken, and one that joins a cluster unasked.

    Without an address it would find the cluster of the other tests, whose two nodes share a machine, and Ray itself
    fails to start actors there if it has looked for the cluster.
    """
    environment = {**os.environ, "RAY_ADDRESS": "local"}
    call = command(tiny_run, source, tmp_path / "out")
    result = subprocess.run(call, env=environment, text=True, capture_output=True, check=False)
    assert result.returncode == 0, result.stderr
    check_rows(tmp_path / "out", expected)
