"""A folder of results by shard."""

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import BinaryIO

import pytest

from transformer.errors import DataError
from transformer.sharding.environment import Place
from transformer.sharding.job import Job, ShardOutput
from transformer.sharding.lines import TextFiles
from transformer.sharding.shards import Shard

LINES = [f"line {number} {'x' * (number % 13)}" for number in range(500)]


def upper(path: Path) -> Callable[[Shard, ShardOutput], None]:
    """Returns the work of writing lines in capitals; a line with a `?` cannot be done."""

    def work(shard: Shard, output: ShardOutput) -> None:
        for number, (line,) in enumerate(TextFiles([path]).read(shard, 1 << 20), start=shard.first + 1):
            if b"?" in line:
                output.rejected.append((number, "has a question mark"))
            output.write(b"\n" if b"?" in line else line.upper())

    return work


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text"
    path.write_text("".join(f"{line}\n" for line in LINES))
    return path


def run(folder: Path, path: Path, n_shards: int, settings: dict[str, str] | None = None) -> Job:
    job = Job(folder, TextFiles([path]), settings or {"model": "a"}, n_shards)
    job.plan()
    job.run(upper(path), Place(), lambda n_lines: None)
    job.close()
    return job


def test_the_result_does_not_depend_on_the_number_of_shards(tmp_path: Path, text: Path) -> None:
    """Catches results that are joined in another order, or lines lost between shards."""
    for n_shards in (1, 2, 7, 64):
        job = run(tmp_path / str(n_shards), text, n_shards)
        assert len(job.shards) == n_shards
        assert job.join(tmp_path / f"{n_shards}.txt")
        assert (tmp_path / f"{n_shards}.txt").read_bytes() == text.read_bytes().upper()


def test_the_same_job_again_does_what_is_missing(tmp_path: Path, text: Path) -> None:
    """Catches shards that are done twice, and a shard without its record that counts as finished."""
    job = run(tmp_path / "out", text, 5)
    paths = sorted((tmp_path / "out").glob("part-*.txt"))
    times = [path.stat().st_mtime_ns for path in paths]
    paths[2].with_suffix(".json").unlink()
    run(tmp_path / "out", text, 9)
    changed = [path.stat().st_mtime_ns != time for path, time in zip(paths, times, strict=True)]
    assert changed == [False, False, True, False, False]
    assert len(job.shards) == 5


def test_lines_that_cannot_be_done_are_set_apart(tmp_path: Path) -> None:
    """Catches a bad line that ends the job, or whose number is counted within its shard."""
    path = tmp_path / "text"
    path.write_text("".join(f"{line}{'?' * (number in (10, 400))}\n" for number, line in enumerate(LINES, start=1)))
    job = run(tmp_path / "out", path, 4)
    assert list(job.rejected()) == [(10, "has a question mark"), (400, "has a question mark")]
    job.join(tmp_path / "joined")
    assert (tmp_path / "joined").read_text().count("\n") == len(LINES)


def test_a_folder_with_other_settings_or_another_input_is_refused(tmp_path: Path, text: Path) -> None:
    """Catches results of two models in one folder."""
    run(tmp_path / "out", text, 3)
    with pytest.raises(DataError, match="another model; choose another folder"):
        run(tmp_path / "out", text, 3, {"model": "b"})
    content = bytearray(text.read_bytes())
    content[0] = ord("L")
    text.write_bytes(content)
    with pytest.raises(DataError, match="another input"):
        run(tmp_path / "out", text, 3)


def test_a_result_that_was_changed_is_not_joined(tmp_path: Path, text: Path) -> None:
    """Catches a joined file with the remains of a damaged disk."""
    job = run(tmp_path / "out", text, 3)
    job.part(1).write_text("other\n")
    with pytest.raises(DataError, match=r"part-00001-of-00003\.txt has changed since it was written"):
        job.join(tmp_path / "joined")
    assert not (tmp_path / "joined").exists()
    job.part(1).unlink()
    with pytest.raises(DataError, match="missing or damaged"):
        job.join(tmp_path / "joined")


def test_an_empty_file_has_an_empty_result(tmp_path: Path) -> None:
    """Catches a job that waits for shards which do not exist."""
    (tmp_path / "text").touch()
    assert run(tmp_path / "out", tmp_path / "text", 4).join(tmp_path / "joined")
    assert (tmp_path / "joined").read_bytes() == b""


def test_the_first_worker_decides_for_all(tmp_path: Path, text: Path) -> None:
    """Catches workers with random seeds of their own, and a header that is joined twice or forgotten."""
    jobs = [Job(tmp_path / "out", TextFiles([text]), {}, 3, decide=lambda seed=seed: {"seed": seed}) for seed in (5, 6)]
    for job in jobs:
        job.plan()
        assert job.settings["seed"] == 5
    jobs[1].run(upper(text), Place(), lambda n_lines: None)

    def write(file: BinaryIO) -> None:
        file.write(b"HEAD")
        jobs[0].write_results(file)

    assert [job.join(tmp_path / "joined", write) for job in jobs] == [True, False]
    assert (tmp_path / "joined").read_bytes() == b"HEAD" + text.read_bytes().upper()


def test_a_damaged_job_file_is_one_error(tmp_path: Path, text: Path) -> None:
    """Catches a traceback where somebody has edited the file."""
    run(tmp_path / "out", text, 3)
    (tmp_path / "out/job.json").write_text("{}")
    with pytest.raises(DataError, match=r"job\.json is damaged"):
        run(tmp_path / "out", text, 3)


WORKER = """
import sys, time
from pathlib import Path
from transformer.sharding.environment import Place
from transformer.sharding.job import Job
from transformer.sharding.lines import TextFiles
folder, path, seconds = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
files = TextFiles([path])
job = Job(folder, files, {"model": "a"}, 12, lease_seconds=1.0)
job.plan()
def work(shard, output):
    for (line,) in files.read(shard, 1 << 20):
        output.write(line.upper())
    print(shard.index, flush=True)
    time.sleep(seconds)
job.run(work, Place(), lambda n_lines: None)
"""


def test_the_shard_of_a_killed_worker_is_done_by_another(tmp_path: Path, text: Path) -> None:
    """Catches lost or doubled lines after SIGKILL, and a lease that never expires."""
    arguments = [sys.executable, "-c", WORKER, str(tmp_path / "out"), str(text)]
    with subprocess.Popen([*arguments, "600"], stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == "0\n"  # it holds the first shard and will not finish it
        killed.send_signal(signal.SIGKILL)
    assert (tmp_path / "out/leases/00000").exists()
    subprocess.run([*arguments, "0"], check=True, capture_output=True)
    job = run(tmp_path / "out", text, 12)
    assert job.join(tmp_path / "joined")
    assert (tmp_path / "joined").read_bytes() == text.read_bytes().upper()
    assert sum(json.loads(path.read_text())["n_items"] for path in (tmp_path / "out").glob("part-*.json")) == len(LINES)


def test_the_last_shard_of_a_slow_worker_is_repeated(tmp_path: Path, text: Path) -> None:
    """Catches a job that waits for its slowest worker, and a result that replaces the one that was there before."""
    slow, fast = (Job(tmp_path / "out", TextFiles([text]), {"model": "a"}, 2) for _ in range(2))
    slow.plan()
    is_taken, may_end = Event(), Event()

    def work(shard: Shard, output: ShardOutput) -> None:
        is_taken.set()
        may_end.wait(60)
        upper(text)(shard, output)

    thread = Thread(target=lambda: slow.run(work, Place(), lambda n_lines: None))
    thread.start()
    is_taken.wait(60)
    lease = tmp_path / "out" / "leases" / "00000"
    owner, _, taken = lease.read_text().partition("\n")
    lease.write_text(f"{owner}\n{float(taken) - 1000}")  # as if it had been taken long ago
    fast.plan()
    fast.run(upper(text), Place(), lambda n_lines: None)
    record = (tmp_path / "out" / "part-00000-of-00002.json").read_text()
    assert json.loads(record)["worker"] == fast.leases.owner
    may_end.set()
    thread.join()
    assert (tmp_path / "out" / "part-00000-of-00002.json").read_text() == record
    assert not [*(tmp_path / "out").glob(".writing-*")]
    assert fast.join(tmp_path / "joined")
    assert (tmp_path / "joined").read_bytes() == text.read_bytes().upper()
    for job in (slow, fast):
        job.close()
    assert not [*(tmp_path / "out" / "leases").iterdir()]


def test_work_that_nobody_needs_ends(tmp_path: Path, text: Path) -> None:
    """Catches a slow worker that goes on for hours when all results are there."""
    job = Job(tmp_path / "out", TextFiles([text]), {"model": "a"}, 1, lease_seconds=0.02)
    job.plan()
    written: list[int] = []

    def work(shard: Shard, output: ShardOutput) -> None:
        (tmp_path / "out" / "leases" / "00000").unlink()
        run(tmp_path / "out", text, 1)  # another worker, which finishes the shard
        for number in range(10_000):
            output.write(b"x")
            written.append(number)
            time.sleep(0.001)

    job.run(work, Place(), lambda n_lines: None)
    assert len(written) < 10_000
    assert job.join(tmp_path / "joined")
    assert (tmp_path / "joined").read_bytes() == text.read_bytes().upper()


@pytest.mark.slow
def test_workers_killed_at_random_lose_and_double_nothing(tmp_path: Path, text: Path) -> None:
    """Catches results that are half written, counted before they are whole, or left behind."""
    arguments = [sys.executable, "-c", WORKER, str(tmp_path / "out"), str(text), "0.05"]
    for number in range(20):
        worker = subprocess.Popen(arguments, stdout=subprocess.DEVNULL)
        time.sleep(0.02 * number)
        worker.kill()
        worker.wait()
    subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL)
    job = run(tmp_path / "out", text, 12)
    assert job.join(tmp_path / "joined")
    assert (tmp_path / "joined").read_bytes() == text.read_bytes().upper()


@pytest.mark.slow
def test_workers_that_repeat_shards_and_are_killed_lose_and_double_nothing(tmp_path: Path, text: Path) -> None:
    """Catches a result that two workers write at once, one that a dropped copy replaces, and a lease that stays."""
    draw = random.Random(1)
    arguments = [sys.executable, "-c", WORKER, str(tmp_path / "out"), str(text)]
    for _ in range(5):
        workers = [subprocess.Popen([*arguments, str(delay)], stdout=subprocess.DEVNULL) for delay in (0.0, 0.02, 0.6)]
        while len([*(tmp_path / "out").glob("part-*.json")]) < 6:
            time.sleep(0.02)
        time.sleep(draw.uniform(0.0, 1.5))
        for worker in workers:
            worker.kill()
            worker.wait()
        for path in draw.sample(sorted((tmp_path / "out").glob("part-*.json")), 2):
            path.unlink()  # so that something is left for the next round
    workers = [subprocess.Popen([*arguments, str(delay)], stdout=subprocess.DEVNULL) for delay in (0.0, 0.02, 0.6)]
    assert [worker.wait() for worker in workers] == [0, 0, 0]
    job = run(tmp_path / "out", text, 12)
    assert job.join(tmp_path / "joined")
    assert (tmp_path / "joined").read_bytes() == text.read_bytes().upper()
