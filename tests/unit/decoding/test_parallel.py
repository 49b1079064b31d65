"""Searches in parallel, in real processes."""

import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from processes import child_processes
from samples import digit_pairs
from substitution import substitute
from transformer.decoding import (
    Average,
    Request,
    Sampling,
    Search,
    SharedModels,
    Workers,
    length_normalization,
    search_all,
)
from transformer.decoding.parallel import make_batches
from transformer.errors import ConfigError, WorkerError
from transformer.inference.cpu import pack
from transformer.pipelines.auto import load
from unit.inference.random_models import random_model

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone")


def shared(model: Any) -> SharedModels:
    """Returns the models of workers that search with one."""
    generators: dict[Average, Any] = dict.fromkeys(get_args(Average), model)
    return SharedModels(generators)


def requests(n: int) -> list[Request]:
    return [Request([*torch.randint(4, 101, (1 + i % 7,)).tolist(), 2], 9, number=i) for i in range(n)]


@pytest.mark.parametrize("n", [1, 2, 3])
def test_every_request_is_answered_once_and_in_order(n: int) -> None:
    """Catches a batch that two workers take, or none, and results under another's number."""
    model, asked = pack(random_model(), "float32"), requests(40)
    workers = Workers(shared(model), n)
    results = list(workers.search_each(asked, Search(beam=2), 64))
    assert [index for index, _ in results] == list(range(40))
    expected = search_all(model, asked, Search(beam=2))
    assert [hypotheses[0].tokens for _, hypotheses in results] == [reference[0].tokens for reference in expected]
    again = list(workers.search_each(asked[:3], Search(beam=2), 64))
    assert [hypotheses[0].tokens for _, hypotheses in again] == [reference[0].tokens for reference in expected[:3]]


def test_batches_hold_what_fits() -> None:
    """Catches a batch beyond the budget, a request left out at its edge, and one that alone exceeds it."""
    lengths = [9, 3, 3, 3, 1, 20, 2, 2]
    batches = list(make_batches([Request([5] * length, 9) for length in lengths], 12))
    assert [[len(request.source) for request in batch] for batch in batches] == [[9], [3, 3, 3, 1], [20], [2, 2]]


def test_free_memory_is_returned_after_some_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches workers that keep what a batch freed, and so take more and more for a long file."""
    log = tmp_path / "log"

    def note() -> None:
        with log.open("a") as file:
            file.write("x")

    substitute(monkeypatch, "compute_worker.trim_heap", note)  # forked processes have it too
    substitute(monkeypatch, "compute_worker.TRIM_INTERVAL", 4)
    asked = requests(200)
    list(Workers(shared(pack(random_model(), "float32")), 2).search_each(asked, Search(), 64))
    batches = len(list(make_batches(asked, 64)))
    uncounted = 2 * (4 - 1)  # at most, in two workers
    assert batches - uncounted <= 4 * len(log.read_text()) <= batches
    assert batches > 2 * uncounted


def test_processes_go_on_sharing_what_they_had_in_common(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a step that enters an object in a table of torch's, whose pages are then each process's own."""
    log, entered = tmp_path / "log", torch._C._InferenceMode

    def enter(mode: bool) -> Any:
        with log.open("a") as file:
            file.write(f"{os.getpid()}\n")
        return entered(mode)

    monkeypatch.setattr("torch._C._InferenceMode", enter)  # forked processes have it too
    list(Workers(shared(pack(random_model(), "float32")), 2).search_each(requests(200), Search(), 64))
    modes = log.read_text().split()
    assert 1 <= len(modes) == len(set(modes)) <= 2, "one per worker"
    assert str(os.getpid()) not in modes


class Broken:
    """A model that fails, or ends its process."""

    def __init__(self, how: str) -> None:
        self.how = how

    def begin(self, *_: Any) -> Any:  # noqa: D102
        if self.how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        raise RuntimeError(self.how)

    def step(self, *_: Any) -> Any:  # noqa: D102
        raise AssertionError


def test_what_goes_wrong_in_a_worker_reaches_the_caller() -> None:
    """Catches a worker that dies unseen, so that the caller waits for ever or gets fewer lines."""
    with pytest.raises(RuntimeError, match="out of memory"):
        list(Workers(shared(Broken("out of memory")), 2).search_each(requests(9), Search(), 16))
    workers = Workers(shared(Broken("killed")), 2)
    with pytest.raises(WorkerError, match="a worker process was killed, perhaps for lack of memory"):
        list(workers.search_each(requests(9), Search(), 16))
    assert not workers.is_open, "they are gone, and others must be made"


@pytest.mark.slow
def test_a_translator_makes_new_workers_where_it_must(tiny_run: Path) -> None:
    """Catches workers that continue an earlier search, that were killed, or that belong to the parent of a fork."""
    translator, lines = load(tiny_run, workers=2), ["one two three"] * 1500
    greedy = translator.translate(lines)
    pool = translator.searcher._pool
    assert pool is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a translation that must be so long may repeat itself
        assert translator.translate(lines, beam=2, min_tokens=9, retry_degenerate=False) != greedy
    assert translator.searcher._pool is pool, "one pool serves all searches"
    for pid in pool.pids:
        os.kill(pid, signal.SIGKILL)
    assert translator.translate(lines) == greedy, "those that were killed are replaced"
    pool.close()
    assert translator.translate(lines) == greedy
    assert translator.searcher._pool is not pool
    child = os.fork()
    if child == 0:  # a child of the process that made the workers
        code = 1
        try:
            code = 0 if translator.translate(lines) == greedy else 1
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    translator.close()


def test_texts_may_be_begun_before_others_are_finished(tiny_run: Path) -> None:
    """Catches results of one text that are taken for another's, and processes that begin when they are first asked."""
    translator = load(tiny_run, workers=2)
    texts = [["one two three"] * 1500, ["four", "", "five six"], ["seven eight"] * 1500]
    expected = [translator.translations(lines) for lines in texts]
    pending = [translator.begin(lines) for lines in texts]
    pool = translator.searcher._pool
    assert pool is not None
    waited = time.monotonic() + 600
    while pool.is_busy and time.monotonic() < waited:
        time.sleep(0.01)
    assert not pool.is_busy, "nobody has asked for a result, and processes are at work"
    assert [translator.finish(text) for text in pending] == expected
    assert not pool.is_busy
    with stopped(pool):
        pending = [translator.begin(lines) for lines in texts]
        assert pool.is_busy
    assert [translator.finish(text) for text in pending] == expected
    with stopped(pool):
        short = translator.begin(["one two three"] * 400)  # too short to begin processes, not to ask those that run
        assert pool.is_busy
    assert [translation.text for translation in translator.finish(short)] == [t.text for t in expected[0][:400]]
    with pytest.raises(ConfigError, match="returned before"):
        translator.finish(pending[0])
    with stopped(pool):
        pending = [translator.begin(lines) for lines in texts]
        translator.close()
    with pytest.raises(WorkerError, match="were closed or replaced before this text was finished"):
        translator.finish(pending[2])


@contextmanager
def stopped(pool: Workers) -> Generator[None]:
    """Stops the worker processes, so that they cannot finish anything meanwhile."""
    pids = list(pool.pids)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def test_all_searches_of_a_model_share_its_processes(tiny_run: Path) -> None:
    """Catches a pool for each beam and each seed, whose processes stay, and a search that takes another's options."""
    translator, lines = load(tiny_run, workers=2), [source for source, _ in digit_pairs(500)]
    alone = load(tiny_run, workers=1)
    pools = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for beam in (2, 3):
            assert translator.translate(lines, beam=beam) == alone.translate(lines, beam=beam)
            pools.add(translator.searcher._pool)
        for seed in range(2):
            assert len(translator.translate(lines, beam=2, sampling=Sampling(seed=seed))) == len(lines)
            pools.add(translator.searcher._pool)
        (pool,) = pools
        assert len(pool.pids) == 2
        unsendable = Search(2, length_penalty=lambda length: length)  # cannot be sent to another process
        assert [line.text for line in translator.translations(lines[:9], search=unsendable)] == alone.translate(
            lines[:9], beam=2, length_penalty=length_normalization(1.0)
        )
    translator.close()


@pytest.mark.slow
def test_processes_end_in_the_middle_of_a_message() -> None:
    """Catches a close that waits for ever for the rest of a message whose sender was killed."""
    code = """
import time
from transformer.decoding import Request, Search, SharedModels, Workers, parallel

def answer_at_length(*_):
    return bytes(100_000_000)

parallel.SearchTask.__call__ = answer_at_length  # forked processes have it too
for _ in range(5):
    made = Workers(SharedModels({}), 2)
    made.search_each([Request([5] * 9, 9)] * 20, Search(), 9)
    time.sleep(0.3)
    made.close()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)


@pytest.mark.slow
def test_a_process_that_closed_its_workers_ends_in_silence(tiny_run: Path) -> None:
    """Catches a pool that is still being taken down when Python ends, which sometimes reports a bad descriptor."""
    code = f"""
import torch; torch.set_num_threads(2)
from transformer.pipelines.auto import load
translator = load({str(tiny_run)!r})
translator.translations(["one two three"] * 3000)
translator.close()
"""
    for _ in range(2):
        ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=600)
        assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.slow
def test_workers_end_with_a_parent_that_is_killed(tiny_run: Path, tmp_path: Path) -> None:
    """Catches processes that stay behind and hold the pipe open: the reader of a killed command waits for ever."""
    code = f"""
import torch; torch.set_num_threads(2)
from transformer.pipelines.auto import load
translator = load({str(tiny_run)!r})
translator.translations(["one two three"] * 3000)
print("ready", flush=True)
import time; time.sleep(600)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    children = child_processes(process.pid)
    assert len(children) == 2
    process.kill()
    process.wait()
    for _ in range(100):
        if not any(Path(f"/proc/{child}").exists() for child in children):
            break
        time.sleep(0.2)
    else:
        pytest.fail(f"{children} are still there")
    assert process.stdout.read() == ""
    process.stdout.close()


def test_a_translator_in_a_thread_that_ends_goes_on(tiny_run: Path) -> None:
    """Catches workers that end with the thread that first needed them, as in a server."""
    from threading import Thread

    translator, outputs = load(tiny_run, workers=2), list[list[str]]()
    lines = ["one two three"] * 1500
    for _ in range(2):
        thread = Thread(target=lambda: outputs.append(translator.translate(lines)))
        thread.start()
        thread.join()
        time.sleep(0.1)
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) == 1500
    with pytest.raises(ConfigError, match="workers=0 is below 1; choose 1"):
        load(tiny_run, workers=0)
