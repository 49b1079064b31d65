"""The engine when its processes are killed or fail, and the end of all of them."""

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from serving_engines import (
    LINES,
    TRANSLATOR,
    EngineProcesses,
    RecordingMetrics,
    engine_processes,
    is_running,
    job,
    kill,
    load,
    run_with_engine,
    translate,
    until,
    wait_until,
)
from transformer.serving.engine import batching, model
from transformer.serving.engine import engine as engine_module
from transformer.serving.engine.engine import ProcessEngine
from transformer.serving.errors import ServiceError
from transformer.serving.interfaces import Item, Job


def test_items_of_a_killed_worker_are_tried_once_more(expected: list[str]) -> None:
    """Catches a request that is lost with its worker, and a worker that is not replaced."""

    async def check(engine: ProcessEngine, metrics: RecordingMetrics) -> None:
        (worker,) = (await load(engine)).workers
        os.kill(worker, signal.SIGSTOP)
        request = asyncio.create_task(translate(engine, *LINES))
        await until(lambda: metrics.n_waited == 1 + len(LINES))
        kill(worker)
        assert await request == expected
        assert metrics.n_died == 1
        assert engine_processes().workers != [worker]

    run_with_engine({"m": TRANSLATOR}, check)


@pytest.mark.slow
def test_an_item_that_kills_two_workers_fails_alone(expected: list[str]) -> None:
    """Catches a text that kills one worker after another, and neighbours that fail with it."""

    async def check(engine: ProcessEngine, metrics: RecordingMetrics) -> None:
        (worker,) = (await load(engine)).workers
        os.kill(worker, signal.SIGSTOP)
        request = asyncio.create_task(engine.run_each(job(*LINES)))
        await until(lambda: metrics.n_waited == 1 + len(LINES))
        kill(worker)
        await until(lambda: engine_processes().workers not in ([], [worker]))
        # Now the items come one by one; the one that the next worker stops at is killed again.
        (second,) = engine_processes().workers
        os.kill(second, signal.SIGSTOP)
        await until(lambda: metrics.n_waited > 1 + len(LINES))
        kill(second)
        results = await request
        errors = [result for result in results if isinstance(result, ServiceError)]
        assert [error.code for error in errors] in ([], ["internal"])  # none if it had finished all of them before
        texts = [result if isinstance(result, ServiceError) else result["text"] for result in results]
        assert all(isinstance(text, ServiceError) or text == right for text, right in zip(texts, expected, strict=True))
        assert await translate(engine, *LINES) == expected

    run_with_engine({"m": TRANSLATOR}, check)


def test_a_killed_host_or_spawner_is_replaced(expected: list[str]) -> None:
    """Catches an engine that does not outlive one of its processes, and workers that outlive their host."""

    async def check(engine: ProcessEngine, metrics: RecordingMetrics) -> None:
        before = await load(engine)
        assert before.spawner is not None
        os.kill(before.workers[0], signal.SIGSTOP)
        request = asyncio.create_task(translate(engine, *LINES))
        await until(lambda: metrics.n_waited == 1 + len(LINES))
        kill(before.hosts[0])
        assert await request == expected
        await until(lambda: not is_running(before.workers[0]))
        kill(before.spawner)
        assert await translate(engine, *LINES) == expected, "the host does not need the spawner"
        await until(lambda: not is_running(before.spawner or 0))
        await engine.reload()
        second = engine_processes().spawner
        assert second not in (None, before.spawner)
        os.kill(second or 0, signal.SIGSTOP)
        reload = asyncio.create_task(engine.reload())
        await asyncio.sleep(0)  # the request is sent
        kill(second)
        await reload
        assert engine_processes().spawner not in (None, before.spawner, second), "it died with a request unread"

    run_with_engine({"m": TRANSLATOR}, check)


@pytest.mark.slow
def test_a_model_whose_host_is_always_killed_fails() -> None:
    """Catches a model that takes the whole memory and is loaded again and again while requests wait."""

    async def check(engine: ProcessEngine, metrics: RecordingMetrics) -> None:
        async def kill_hosts() -> None:
            while True:
                await asyncio.sleep(0.005)
                for host in engine_processes().hosts:
                    kill(host)

        killer = asyncio.create_task(kill_hosts())
        with pytest.raises(ServiceError) as error:
            await engine.run(job("one"))
        assert error.value.code in ("unavailable", "internal")
        killer.cancel()
        if error.value.code == "unavailable":
            assert engine.status().models["m"].state == "failed"

    run_with_engine({"m": TRANSLATOR}, check)


@pytest.mark.slow
def test_a_stream_is_tried_again_until_its_first_part(language_model: Path) -> None:
    """Catches a stream that waits forever for a dead worker."""

    async def check(engine: ProcessEngine, metrics: RecordingMetrics) -> None:
        prompt = Job("m", "generate", [Item("abc")], options={"max_tokens": 20})
        (whole,) = await engine.run(prompt)
        (worker,) = engine_processes().workers
        os.kill(worker, signal.SIGSTOP)
        stream = asyncio.create_task(_collect(engine, prompt))
        await until(lambda: metrics.n_waited == 2)
        kill(worker)
        assert await stream == whole["alternatives"][0]["text"]

    run_with_engine({"m": language_model}, check)


@pytest.mark.slow
def test_a_worker_that_does_not_answer_is_replaced(expected: list[str]) -> None:
    """Catches a worker that hangs, and keeps its place for ever."""

    async def check(engine: ProcessEngine, metrics: RecordingMetrics) -> None:
        (worker,) = (await load(engine)).workers
        os.kill(worker, signal.SIGSTOP)
        (result,) = await engine.run_each(job("one"))
        assert isinstance(result, ServiceError)
        assert result.code == "timeout"
        while True:  # a slow machine may exceed the limit of this test again
            with suppress(ServiceError):
                assert await translate(engine, *LINES) == expected
                break
        await until(lambda: not is_running(worker))

    run_with_engine({"m": TRANSLATOR}, check, limits={"request_seconds": 5.0})


def test_workers_that_hang_are_told(expected: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a server that calls itself ready while none of its workers answers, or that stays unready after."""
    monkeypatch.setattr(batching, "STALL_SECONDS", 0.0)

    async def check(engine: ProcessEngine, metrics: RecordingMetrics) -> None:
        (worker,) = (await load(engine)).workers
        assert engine.status().ready, "it is idle"
        os.kill(worker, signal.SIGSTOP)
        request = asyncio.create_task(translate(engine, *LINES))
        await until(lambda: engine.status().models["m"].state == "stalled")
        assert not engine.status().ready
        assert "no worker has answered" in engine.status().models["m"].problem
        os.kill(worker, signal.SIGCONT)
        assert await request == expected
        await until(lambda: engine.status().ready)

    run_with_engine({"m": TRANSLATOR}, check)


def test_workers_that_always_end_fail_their_model(expected: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a model all of whose requests fail while the server calls itself ready, and one that stays failed."""
    monkeypatch.setattr(model, "MAX_WORKER_LOSSES", 1)
    monkeypatch.setattr(engine_module, "RELOAD_SECONDS", 0.01)

    async def check(engine: ProcessEngine, metrics: RecordingMetrics) -> None:
        processes = await load(engine)
        kill(processes.workers[0])
        await until(lambda: engine_processes().hosts not in ([], processes.hosts) and engine_processes().workers != [])
        states: set[str] = set()

        def has_failed() -> bool:
            states.add(engine.status().models["m"].state)
            return "failed" in states

        kill(engine_processes().workers[0])
        await until(has_failed)
        await until(lambda: engine.status().ready)
        assert await translate(engine, *LINES) == expected

    run_with_engine({"m": TRANSLATOR}, check)


async def _collect(engine: ProcessEngine, prompt: Job) -> str:
    return "".join([part["text"] async for part in engine.stream(prompt)])


def test_a_failure_inside_the_batching_does_not_stop_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches an unexpected exception after which no request is answered any more."""

    async def check(engine: ProcessEngine, metrics: RecordingMetrics) -> None:
        await load(engine)

        def broken(*_: object) -> None:
            raise ZeroDivisionError

        for name, code in (
            ("observe_batch", ""),
            ("observe_queue_time", "internal"),
        ):  # the result has arrived before its batch is recorded
            monkeypatch.setattr(metrics, name, broken)
            (result,) = await engine.run_each(job("one"))
            assert (result.code if isinstance(result, ServiceError) else "") == code
            monkeypatch.undo()
            assert await translate(engine, "one") == ["1"]
            assert engine_processes().workers
        queue = engine._models["m"].batcher.queue
        monkeypatch.setattr(queue, "take", broken)
        with pytest.raises(ServiceError):
            await engine.run(job("one"))
        assert await translate(engine, "one") == ["1"]

    run_with_engine({"m": TRANSLATOR}, check)


@pytest.mark.slow
def test_signals_of_the_terminal_do_not_reach_the_models() -> None:
    """Catches Ctrl-C and the SIGTERM of a service manager that kill the workers under requests in progress."""

    async def check(engine: ProcessEngine, metrics: RecordingMetrics) -> None:
        processes = await load(engine)
        for pid in (processes.spawner or 0, *processes.hosts, *processes.workers):
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                os.kill(pid, number)
        assert await translate(engine, "one") == ["1"]
        assert engine_processes() == processes

    run_with_engine({"m": TRANSLATOR}, check)


def test_close_ends_all_processes_and_requests() -> None:
    """Catches processes that stay behind, and requests that are never answered."""

    async def check(engine: ProcessEngine, metrics: RecordingMetrics) -> EngineProcesses:
        processes = await load(engine, n_workers=2)
        for worker in processes.workers:
            os.kill(worker, signal.SIGSTOP)
        requests = [asyncio.create_task(translate(engine, "one", client=str(i))) for i in range(5)]
        await until(lambda: metrics.n_waited > 1)
        await engine.close()
        for request in requests:
            with pytest.raises(ServiceError):
                await request
        return processes

    processes = run_with_engine({"m": TRANSLATOR}, check, workers=2)
    for pid in (processes.spawner or 0, *processes.hosts, *processes.workers):
        wait_until(lambda pid=pid: not is_running(pid))


SERVER = """
import asyncio, sys
from serving_engines import RecordingMetrics, until
from transformer.serving.engine.engine import ProcessEngine
from transformer.serving.interfaces import Item, Job
from transformer.serving.settings import ServerSettings

engine = ProcessEngine(ServerSettings(models={"m": sys.argv[1]}, workers=2), RecordingMetrics())
engine.start()

async def main():
    await engine.open()
    await engine.run(Job("m", "translate", [Item("one")]))
    await until(lambda: engine.status().models["m"].workers == 2)
    print("loaded", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def test_no_process_outlives_a_killed_server() -> None:
    """Catches models that fill the memory after the server was killed."""
    tests = Path(__file__).parents[2]
    command = [sys.executable, "-c", SERVER, str(TRANSLATOR)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tests)
    with server:
        assert server.stdout is not None
        assert server.stdout.readline() == "loaded\n"
        processes = engine_processes(server.pid)
        assert len(processes.workers) == 2
        os.kill(processes.workers[0], signal.SIGSTOP)  # one that does not see its socket close
        server.kill()
    for pid in (processes.spawner or 0, *processes.hosts, *processes.workers):
        wait_until(lambda pid=pid: not is_running(pid))
