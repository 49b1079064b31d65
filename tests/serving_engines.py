"""Engines with real processes and tiny models, and the processes of an engine."""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch
from pydantic import TypeAdapter

from samples import ROOT
from transformer.bundle import Bundle, save_bundle
from transformer.models import family
from transformer.serving.engine.engine import ProcessEngine
from transformer.serving.interfaces import Item, Job
from transformer.serving.settings import ServerSettings
from transformer.tokenizers.config import TokenizerConfig
from transformer.tokenizers.pair import TokenizerPair, train_tokenizer

T = TypeVar("T")
TRANSLATOR = ROOT / "tests" / "golden" / "format-1"
"""A model that was trained to write the digits of number words in reverse order."""
LINES = ["one two", "nine eight seven", "four", "five six one zero", "three three"]
"""Texts for it."""
TEST_SECONDS = 60
"""Limit of every wait, far above what any of them takes."""
SIZES: dict[str, dict[str, Any]] = {
    "gpt": {"seq_len": 64},
    "bert": {"seq_len": 24, "masked": True, "labels": ("cold", "hot"), "d_ff": 20},
    "vit": {"image_size": (8, 8), "patch_size": (4, 4), "channels": 1, "labels": ("dark", "light"), "d_ff": 20},
}


@dataclass
class RecordingMetrics:
    """Keeps what an engine reports.

    Attributes:
        batches: Model, number of items and of tokens of each batch.
        n_waited: Number of items that were given to workers.
        n_died: Number of workers that ended unexpectedly.
    """

    batches: list[tuple[str, int, int]] = field(default_factory=list)
    n_waited: int = 0
    n_died: int = 0

    def observe_batch(self, model: str, n_items: int, n_tokens: int, seconds: float) -> None:
        """Records a finished batch."""
        self.batches.append((model, n_items, n_tokens))

    def observe_queue_time(self, model: str, seconds: float) -> None:
        """Records an item that was given to a worker."""
        self.n_waited += 1

    def worker_died(self, model: str) -> None:
        """Records an unexpected end of a worker."""
        self.n_died += 1


def write_random_model(name: str, folder: Path, **changes: object) -> Path:
    """Writes a model of a family with random weights, which reads letters or images, and returns its folder."""
    tokenizer = train_tokenizer(["abcdefgh \n"], TokenizerConfig(kind="characters"))
    kind = family(name)
    sizes = {"d_model": 16, "N": 2, "h": 2, "dropout": 0.0}
    if kind.reads_text:
        sizes["vocab_size"] = tokenizer.vocab_size
    config = kind.config.model_validate({**sizes, **SIZES[name], **changes})
    torch.manual_seed(1)
    model = kind.build(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(mean=float(parameter.dim() == 1), std=0.4)
    save_bundle(folder, Bundle(config, model, TokenizerPair(tokenizer, tokenizer) if kind.reads_text else None))
    return folder


def run_with_engine(
    models: dict[str, Path],
    test: Callable[[ProcessEngine, RecordingMetrics], Awaitable[T]],
    *,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    **settings: object,
) -> T:
    """Starts an engine, runs a test in an event loop, and closes the engine; a test that hangs fails.

    Args:
        models: Folders by name.
        test: Test, called with the open engine and its metrics.
        loop_factory: Function that makes the event loop; None for that of asyncio.
        settings: Settings of the server; by default one worker, and float32 for equal results everywhere.
    """
    metrics = RecordingMetrics()
    chosen = {"workers": 1, "precision": "float32", "device": "cpu", **settings}
    named = {name: str(path) for name, path in models.items()}
    engine = ProcessEngine(TypeAdapter(ServerSettings).validate_python({"models": named, **chosen}), metrics)
    engine.start()

    async def limited() -> T:
        async with asyncio.timeout(TEST_SECONDS):
            await engine.open()
            try:
                return await test(engine, metrics)
            finally:
                await engine.close()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(limited())


def job(*texts: str, client: str = "", deadline: float | None = None, **options: Any) -> Job:
    """Returns a job that translates texts with the model "m"."""
    return Job("m", "translate", [Item(text) for text in texts], client, options, deadline)


async def translate(engine: ProcessEngine, *texts: str, **options: Any) -> list[str]:
    """Returns the translations of texts by the model "m"."""
    return [result["text"] for result in await engine.run(job(*texts, **options))]


async def load(engine: ProcessEngine, n_workers: int = 1) -> "EngineProcesses":
    """Waits until the model "m" is loaded with all its workers, and returns the processes."""
    await translate(engine, "one")
    await until(lambda: engine.status().models["m"].workers == n_workers)
    return engine_processes()


def kill(pid: int) -> None:
    """Ends a process as the lack of memory does, unless it has ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


async def until(condition: Callable[[], bool]) -> None:
    """Waits until a condition holds; the test that calls it has a time limit."""
    while not condition():
        await asyncio.sleep(0.01)


def wait_until(condition: Callable[[], bool]) -> None:
    """Same as `until`, without an event loop.

    Raises:
        TimeoutError: The condition does not hold within the limit.
    """
    end = time.monotonic() + TEST_SECONDS
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.01)


@dataclass(frozen=True)
class EngineProcesses:
    """Ids of the running processes of an engine.

    Attributes:
        spawner: Id of the spawner; None if it has ended.
        hosts: Ids of the hosts.
        workers: Ids of the workers.
    """

    spawner: int | None
    hosts: list[int]
    workers: list[int]


def engine_processes(parent: int | None = None) -> EngineProcesses:
    """Returns the processes of the only engine that a process, by default this one, has started."""
    children = list(_children(os.getpid() if parent is None else parent, "serving.engine.spawner"))
    spawner = children[0] if children else None
    hosts = [] if spawner is None else list(_children(spawner))
    return EngineProcesses(spawner, hosts, [worker for host in hosts for worker in _children(host)])


def is_running(pid: int) -> bool:
    """Whether a process exists and has not ended; one that ended may not have been waited for."""
    try:
        return _state_and_parent(pid)[0] not in "ZX"
    except (OSError, IndexError):
        return False


def _children(parent: int, word: str = "") -> Iterator[int]:
    for entry in sorted(Path("/proc").glob("[0-9]*"), key=lambda entry: int(entry.name)):
        try:
            state, ppid = _state_and_parent(int(entry.name))
            if ppid == parent and state not in "ZX" and word in (entry / "cmdline").read_text():
                yield int(entry.name)
        except (OSError, IndexError):
            continue  # it has ended


def _state_and_parent(pid: int) -> tuple[str, int]:
    state, parent = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[:2]
    return state, int(parent)
