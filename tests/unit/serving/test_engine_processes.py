"""The processes of the engine, which run tiny models: results, limits, cancelled requests, streams."""

import asyncio
import json
import os
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
    LINES,
    TRANSLATOR,
    RecordingMetrics,
    job,
    load,
    run_with_engine,
    translate,
    until,
    write_random_model,
)
from transformer.serving.engine.engine import ProcessEngine
from transformer.serving.engine.model_process import NICENESS
from transformer.serving.errors import ServiceError
from transformer.serving.interfaces import Item, Job


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


def test_workers_leave_the_cores_to_the_process_that_answers() -> None:
    """Catches refusals and health checks that wait until a worker has finished its turn on a core."""

    async def check(engine: ProcessEngine, metrics: RecordingMetrics) -> None:
        processes = await load(engine, 1)
        niceness = os.getpriority(os.PRIO_PROCESS, os.getpid())
        lowered = [os.getpriority(os.PRIO_PROCESS, pid) for pid in processes.workers]
        assert lowered == [min(niceness + NICENESS, 19)]

    run_with_engine({"m": TRANSLATOR}, check, workers=1)


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


def test_the_server_process_does_not_load_torch() -> None:
    """Catches an import that costs the server's process a second and 200 MB."""
    code = "import sys, json, transformer.serving.engine.engine; print(json.dumps(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert not {"torch", "numpy", "tokenizers"} & set(json.loads(run.stdout))
