"""The processes of the engine, which run tiny models: results, kills, cancelled requests, reloads, memory, ends."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
import uvloop

import transformer
from serving_engines import (
    TRANSLATOR,
    EngineProcesses,
    RecordingMetrics,
    engine_processes,
    is_running,
    run_with_engine,
    until,
    wait_until,
    write_random_model,
)
from transformer.errors import BundleError
from transformer.serving.engine.engine import ProcessEngine
from transformer.serving.errors import ServiceError
from transformer.serving.interfaces import Item, Job
from transformer.serving.settings import ServerSettings

LINES = ["one two", "nine eight seven", "four", "five six one zero", "three three"]


@pytest.fixture(scope="module")
def expected() -> list[str]:
    """The translations of `LINES`, made in this process."""
    return [result.text for result in transformer.load(TRANSLATOR, precision="float32", workers=1).translations(LINES)]


@pytest.fixture(scope="module")
def language_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_model("gpt", tmp_path_factory.mktemp("models") / "gpt")


def job(*texts: str, client: str = "", deadline: float | None = None, **options: Any) -> Job:
    return Job("m", "translate", [Item(text) for text in texts], client, options, deadline)


async def translate(engine: ProcessEngine, *texts: str, **options: Any) -> list[str]:
    return [result["text"] for result in await engine.run(job(*texts, **options))]


async def load(engine: ProcessEngine, n_workers: int = 1) -> EngineProcesses:
    """Waits until the model "m" is loaded with all its workers, and returns the processes."""
    await translate(engine, "one")
    await until(lambda: engine.status().models["m"].workers == n_workers)
    return engine_processes()


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("loop_factory", [None, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_requests_of_many_clients_get_their_own_results(expected: list[str], loop_factory: Any) -> None:
    """Catches results of another request, lost ones, batches of one item each, and sockets that uvloop refuses."""

    async def check(engine: ProcessEngine, metrics: RecordingMetrics) -> None:
        answers = await asyncio.gather(
            *(engine.run(job(*LINES[: 1 + i % 5], client=str(i % 7))) for i in range(100)), translate(engine)
        )
        for i, answer in enumerate(answers[:-1]):
            assert [result["text"] for result in answer] == expected[: 1 + i % 5]
        assert answers[-1] == []
        assert metrics.n_waited == sum(n for _, n, _ in metrics.batches) == 300
        assert len(metrics.batches) < 100
        status = engine.status()
        assert (status.ready, status.queued_items, status.queued_tokens) == (True, 0, 0)
        await until(lambda: engine.status().models["m"].memory > 0)

    run_with_engine({"m": TRANSLATOR}, check, workers=2, loop_factory=loop_factory)


def test_models_are_described_without_loading_them(language_model: Path, tmp_path: Path) -> None:
    """Catches a model without languages or kind, a language model that translates, and an unknown model."""
    encoder = write_random_model("bert", tmp_path / "bert")

    async def check(engine: ProcessEngine, metrics: RecordingMetrics) -> None:
        infos = engine.models
        assert list(infos) == ["m", "gpt", "bert"]
        assert (infos["gpt"].kind, infos["gpt"].context) == ("language model", 64)
        assert infos["bert"].has_labels
        assert infos["m"].size > 10_000
        assert {status.state for status in engine.status().models.values()} == {"unloaded"}
        for wrong, code in ((Job("x", "translate", [Item("a")]), "not_found"),
                            (Job("gpt", "translate", [Item("a")]), "invalid_request")):  # fmt: skip
            with pytest.raises(ServiceError) as error:
                await engine.run(wrong)
            assert error.value.code == code
        (vector,) = await engine.run(Job("bert", "embed", [Item("abc")]))
        assert len(vector["vector"]) == 16
        states = {name: status.state for name, status in engine.status().models.items()}
        assert states == {"m": "unloaded", "gpt": "unloaded", "bert": "ready"}

    run_with_engine({"m": TRANSLATOR, "gpt": language_model, "bert": encoder}, check)


def test_a_path_without_a_model_is_refused_at_the_start(tmp_path: Path) -> None:
    """Catches a server that starts with a wrong path, and a spawner that stays behind."""
    engine = ProcessEngine(ServerSettings(models={"m": str(tmp_path)}), RecordingMetrics())
    with pytest.raises(BundleError, match=str(tmp_path)):
        engine.start()
    assert engine_processes().spawner is None


def test_wrong_options_fail_alone(expected: list[str]) -> None:
    """Catches one client's wrong option that fails the texts of others, and a worker that dies of it."""

    async def check(engine: ProcessEngine, metrics: RecordingMetrics) -> None:
        wrong = job("one", beam="many")
        failed, good = await asyncio.gather(engine.run_each(wrong), engine.run(job(*LINES)))
        assert [result["text"] for result in good] == expected
        (error,) = failed
        assert isinstance(error, ServiceError)
        assert (error.code, error.param) == ("invalid_request", "beam")
        with pytest.raises(ServiceError):
            await engine.run(wrong)
        assert metrics.n_died == 0

    run_with_engine({"m": TRANSLATOR}, check)


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
        assert engine_processes().spawner not in (None, before.spawner)

    run_with_engine({"m": TRANSLATOR}, check)


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


def test_a_full_queue_refuses_requests_and_accepts_one_whole() -> None:
    """Catches a queue without a limit, a part of a request that is refused, and a full server that says it is ready."""

    async def check(engine: ProcessEngine, metrics: RecordingMetrics) -> None:
        (worker,) = (await load(engine)).workers
        os.kill(worker, signal.SIGSTOP)
        running = asyncio.create_task(translate(engine, "one"))
        await until(lambda: metrics.n_waited == 2)
        large = asyncio.create_task(translate(engine, *["two"] * 200))
        await until(lambda: engine.status().queued_items == 200)
        assert not engine.status().ready
        with pytest.raises(ServiceError) as error:
            await engine.run(job("three"))
        assert error.value.code == "queue_full"
        assert error.value.retry_after is not None
        assert error.value.retry_after >= 1
        os.kill(worker, signal.SIGCONT)
        assert len(await large) == 200
        await running
        assert engine.status().ready

    run_with_engine({"m": TRANSLATOR}, check, limits={"queue_tokens": 100})


def test_cancelled_and_late_requests_leave_the_queue() -> None:
    """Catches work for clients that left, and a drain that waits for it."""

    async def check(engine: ProcessEngine, metrics: RecordingMetrics) -> None:
        (worker,) = (await load(engine)).workers
        os.kill(worker, signal.SIGSTOP)
        running = asyncio.create_task(translate(engine, "one"))
        await until(lambda: metrics.n_waited == 2)
        waiting = asyncio.create_task(translate(engine, "two", "three"))
        await until(lambda: engine.status().queued_items == 2)
        waiting.cancel()
        await until(lambda: engine.status().queued_items == 0)
        with pytest.raises(ServiceError) as error:
            await engine.run(job("four", deadline=0.0))
        assert error.value.code == "timeout"
        assert engine.status().queued_items == 0
        drained = asyncio.create_task(engine.drain())
        os.kill(worker, signal.SIGCONT)
        await drained
        assert running.done()
        assert metrics.n_waited == 2

    run_with_engine({"m": TRANSLATOR}, check)


def test_a_stream_ends_when_its_reader_leaves(language_model: Path) -> None:
    """Catches a stream that differs from the whole text, and one that nobody reads and that occupies its worker."""

    async def check(engine: ProcessEngine, metrics: RecordingMetrics) -> None:
        prompt = Job("m", "generate", [Item("abc")], options={"max_tokens": 20})
        (whole,) = await engine.run(prompt)
        parts = [part async for part in engine.stream(prompt)]
        assert "".join(part["text"] for part in parts) == whole["alternatives"][0]["text"]
        assert parts[-1]["prompt_tokens"] == 3
        endless = Job("m", "generate", [Item("abc")], options={"temperature": 1.0, "max_tokens": 60})
        async with aclosing(engine.stream(endless)) as stream:
            async for _ in stream:
                break
        await engine.drain()
        assert await engine.run(prompt) == [whole]
        with pytest.raises(ServiceError) as error:
            _ = [part async for part in engine.stream(Job("m", "generate", [Item("a")], options={"temperature": "x"}))]
        assert error.value.code == "invalid_request"

    run_with_engine({"m": language_model}, check)


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


async def _collect(engine: ProcessEngine, prompt: Job) -> str:
    return "".join([part["text"] async for part in engine.stream(prompt)])


def test_a_changed_folder_is_loaded_without_losing_a_request(expected: list[str], tmp_path: Path) -> None:
    """Catches a reload that drops requests, keeps old processes, or reloads what has not changed."""
    folder = tmp_path / "model"
    shutil.copytree(TRANSLATOR, folder)

    async def check(engine: ProcessEngine, metrics: RecordingMetrics) -> None:
        before = await load(engine)
        await engine.reload()
        assert engine_processes().hosts == before.hosts
        shutil.copytree(TRANSLATOR, tmp_path / "next")
        folder.rename(tmp_path / "old")
        (tmp_path / "next").rename(folder)
        os.utime(folder / "config.json", (1e9, 1e9))
        reloading = asyncio.create_task(engine.reload())
        while not reloading.done():
            assert await translate(engine, *LINES) == expected
        await reloading
        assert await translate(engine, *LINES) == expected
        await until(lambda: len(engine_processes().hosts) == 1 and engine_processes().hosts != before.hosts)
        await until(lambda: not is_running(before.workers[0]))
        assert metrics.n_died == 0

    run_with_engine({"m": folder}, check)


def test_a_damaged_folder_leaves_the_old_model_in_place(expected: list[str], tmp_path: Path) -> None:
    """Catches a reload that ends a working model for one that cannot be loaded."""
    folder = tmp_path / "model"
    shutil.copytree(TRANSLATOR, folder)

    async def check(engine: ProcessEngine, metrics: RecordingMetrics) -> None:
        before = await load(engine)
        content = (folder / "config.json").read_text()
        (folder / "config.json").write_text(content.replace("2", "3"))
        await engine.reload()
        assert "model" in engine.status().models["m"].problem
        assert await translate(engine, *LINES) == expected
        assert engine_processes().hosts == before.hosts
        (folder / "config.json").write_text(content)
        await engine.reload()
        assert engine.status().models["m"].problem == ""
        assert await translate(engine, *LINES) == expected

    run_with_engine({"m": folder}, check)


def test_a_model_that_cannot_be_loaded_is_reported(tmp_path: Path) -> None:
    """Catches requests that wait forever for a damaged model, and a server that stays failed once it is repaired."""
    folder = tmp_path / "model"
    shutil.copytree(TRANSLATOR, folder)
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[:-1] + b"?")

    async def check(engine: ProcessEngine, metrics: RecordingMetrics) -> None:
        for _ in range(2):
            with pytest.raises(ServiceError, match="cannot be loaded") as error:
                await engine.run(job("one"))
            assert error.value.code == "unavailable"
            assert error.value.retry_after
        assert engine.status().models["m"].state == "failed"
        assert not engine.status().ready
        (folder / "model.safetensors").write_bytes(weights)
        await engine.reload()
        assert await translate(engine, "one") == ["1"]

    run_with_engine({"m": folder}, check)


def test_preloading_and_watching(tmp_path: Path) -> None:
    """Catches a server that is ready before its models are loaded, and a changed folder that nobody notices."""
    folder = tmp_path / "model"
    shutil.copytree(TRANSLATOR, folder)

    async def check(engine: ProcessEngine, metrics: RecordingMetrics) -> None:
        assert not engine.status().ready
        await until(lambda: engine.status().ready)
        before = engine_processes().hosts
        os.utime(folder / "config.json", (1e9, 1e9))
        await until(lambda: len(engine_processes().hosts) == 1 and engine_processes().hosts != before)

    run_with_engine({"m": folder}, check, preload=True, watch_seconds=0.05)


def test_the_least_recently_used_model_is_unloaded(language_model: Path) -> None:
    """Catches models that stay in memory above the limit, and one that cannot be loaded again."""

    async def check(engine: ProcessEngine, metrics: RecordingMetrics) -> None:
        await translate(engine, "one")
        prompt = Job("gpt", "generate", [Item("abc")], options={"max_tokens": 3})
        await engine.run(prompt)
        await until(lambda: engine.status().models["m"].state == "unloaded")
        assert engine.status().models["gpt"].state == "ready"
        assert await translate(engine, "one") == ["1"]
        await until(lambda: engine.status().models["gpt"].state == "unloaded")
        await until(lambda: len(engine_processes().hosts) == 1)

    run_with_engine({"m": TRANSLATOR, "gpt": language_model}, check, memory_mb=1)


def test_a_deterministic_server_gives_equal_answers_beside_any_neighbours() -> None:
    """Catches a setting that does not reach the model."""

    async def check(engine: ProcessEngine, metrics: RecordingMetrics) -> list[Any]:
        alone = [await engine.run(job(line)) for line in LINES]
        (*together,) = await engine.run(job(*LINES, *LINES))
        assert [result for (result,) in alone] == together[: len(LINES)] == together[len(LINES) :]
        return together

    results = run_with_engine({"m": TRANSLATOR}, check, deterministic=True)
    direct = transformer.load(TRANSLATOR, precision="float32", workers=1, deterministic=True)
    assert [result["score"] for result in results[: len(LINES)]] == [r.score for r in direct.translations(LINES)]


def test_a_failure_inside_the_batching_does_not_stop_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches an unexpected exception after which no request is answered any more."""

    async def check(engine: ProcessEngine, metrics: RecordingMetrics) -> None:
        await load(engine)

        def broken(*_: object) -> None:
            raise ZeroDivisionError

        for name, code in (
            ("batch", ""),
            ("waited", "internal"),
        ):  # the result has arrived before its batch is recorded
            monkeypatch.setattr(metrics, name, broken)
            (result,) = await engine.run_each(job("one"))
            assert (result.code if isinstance(result, ServiceError) else "") == code
            monkeypatch.undo()
            assert await translate(engine, "one") == ["1"]
            assert engine_processes().workers
        queue = engine._models["m"].queue
        monkeypatch.setattr(queue, "take", broken)
        with pytest.raises(ServiceError):
            await engine.run(job("one"))
        assert await translate(engine, "one") == ["1"]

    run_with_engine({"m": TRANSLATOR}, check)


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
assert "torch" not in {name for name in sys.modules if name == sys.argv[2]}

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
    command = [sys.executable, "-c", SERVER, str(TRANSLATOR), "none"]
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


def test_the_server_process_does_not_load_torch() -> None:
    """Catches an import that costs the server's process a second and 200 MB."""
    code = "import sys, json, transformer.serving.engine.engine; print(json.dumps(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert not {"torch", "numpy", "tokenizers"} & set(json.loads(run.stdout))
