"""The folders of the models: changes, damage, preloading, and the memory limit."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from serving_engines import (
    LINES,
    TRANSLATOR,
    RecordingMetrics,
    engine_processes,
    is_running,
    job,
    load,
    run_with_engine,
    translate,
    until,
)
from transformer.errors import BundleError
from transformer.serving.engine.engine import ProcessEngine
from transformer.serving.errors import ServiceError
from transformer.serving.interfaces import Item, Job
from transformer.serving.settings import ServerSettings


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of `TRANSLATOR`."""
    return shutil.copytree(TRANSLATOR, tmp_path / "model")


def test_a_path_without_a_model_is_refused_at_the_start(tmp_path: Path) -> None:
    """Catches a server that starts with a wrong path, and a spawner that stays behind."""
    engine = ProcessEngine(ServerSettings(models={"m": str(tmp_path)}), RecordingMetrics())
    with pytest.raises(BundleError, match=str(tmp_path)):
        engine.start()
    assert engine_processes().spawner is None


def test_a_changed_folder_is_loaded_without_losing_a_request(expected: list[str], folder: Path, tmp_path: Path) -> None:
    """Catches a reload that drops requests, keeps old processes, or reloads what has not changed."""

    async def check(engine: ProcessEngine, metrics: RecordingMetrics) -> None:
        before = await load(engine)
        await engine.reload()
        await until(lambda: engine_processes().hosts == before.hosts)  # the one that described the folder may still end
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


def test_an_unloaded_model_is_described_as_its_folder_is(folder: Path) -> None:
    """Catches a description that stays that of a folder which was swapped and swapped back."""

    async def check(engine: ProcessEngine, metrics: RecordingMetrics) -> None:
        await load(engine)
        before = engine.models["m"].size
        engine._models["m"].unload()
        for content in ("changed", ""):
            (folder / "note").write_text(content) if content else (folder / "note").unlink()
            await engine.reload()
            assert engine.models["m"].size == before + len(content)

    run_with_engine({"m": folder}, check)


@pytest.mark.slow
def test_a_damaged_folder_leaves_the_old_model_in_place(expected: list[str], folder: Path) -> None:
    """Catches a reload that ends a working model for one that cannot be loaded."""

    async def check(engine: ProcessEngine, metrics: RecordingMetrics) -> None:
        before = await load(engine)
        content = (folder / "config.json").read_text()
        (folder / "config.json").write_text(content.replace("2", "3"))
        await engine.reload()
        assert "model" in engine.status().models["m"].problem
        assert await translate(engine, *LINES) == expected
        await until(lambda: engine_processes().hosts == before.hosts)  # the other one takes a moment to end
        (folder / "config.json").write_text(content)
        await engine.reload()
        assert engine.status().models["m"].problem == ""
        assert await translate(engine, *LINES) == expected

    run_with_engine({"m": folder}, check)


def test_weights_that_are_overwritten_in_place_change_nothing(expected: list[str], folder: Path) -> None:
    """Catches a model that reads its weights from the file when it translates: it would write rubbish, or die."""

    async def check(engine: ProcessEngine, metrics: RecordingMetrics) -> None:
        await load(engine)
        weights = folder / "model.safetensors"
        for content in (bytes(weights.stat().st_size), b""):
            weights.write_bytes(content)
            assert await translate(engine, *LINES) == expected
        assert metrics.n_died == 0

    run_with_engine({"m": folder}, check)


def test_a_failed_model_is_loaded_once_it_is_whole(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a server that stays unready, so that no request comes which would load the model again."""
    monkeypatch.setattr("transformer.serving.engine.engine.RELOAD_SECONDS", 0.01)
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[:-1] + b"?")

    async def check(engine: ProcessEngine, metrics: RecordingMetrics) -> None:
        with pytest.raises(ServiceError, match="cannot be loaded"):
            await engine.run(job("one"))
        (folder / "model.safetensors").write_bytes(weights)
        await until(lambda: engine.status().ready)

    run_with_engine({"m": folder}, check)


def test_a_model_that_cannot_be_loaded_is_reported(folder: Path) -> None:
    """Catches requests that wait forever for a damaged model, and a server that stays failed once it is repaired."""
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


@pytest.mark.slow
def test_preloading_and_reloading(folder: Path) -> None:
    """Catches a server that is ready before its models are loaded, and a changed folder that is not loaded again."""

    async def check(engine: ProcessEngine, metrics: RecordingMetrics) -> None:
        assert not engine.status().ready
        await until(lambda: engine.status().ready)
        before = engine_processes().hosts
        os.utime(folder / "config.json", (1e9, 1e9))
        await engine.reload()
        await until(lambda: len(engine_processes().hosts) == 1 and engine_processes().hosts != before)

    run_with_engine({"m": folder}, check, preload=True)


@pytest.mark.slow
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
