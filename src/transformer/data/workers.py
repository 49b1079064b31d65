"""Blocks encoded by processes of their own, in order."""

import contextlib
import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

import pyarrow as pa

import transformer
from transformer.data.arrow_ipc import TEXTS, block_of, texts_of
from transformer.data.encoding import BlockEncoder, EncodedBlock
from transformer.data.readers import Pair
from transformer.errors import DataError

BLOCK_PAIRS: Final = 2048
SMALL_PAIRS: Final = 40_000
"""Below this a corpus is encoded before processes would have started."""
COMMAND: Final = [sys.executable, "-P", "-m", "transformer.data.worker"]


def worker_count(wanted: int | None, pairs: int) -> int:
    """How many processes to start: those asked for, else one a core; none for a small corpus."""
    if wanted is None and pairs < SMALL_PAIRS:
        return 0
    return wanted or (len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1)


def encode_blocks(encoder: BlockEncoder, blocks: Iterable[list[Pair]], workers: int) -> Generator[EncodedBlock]:
    """Yields the encoded blocks in the order of the blocks, whatever the number of processes.

    Processes, since most of the work that is not the tokenizer's own holds Python's lock. They are plain programs that
    read and write pipes, so the caller's own program is never imported or copied.

    Args:
        encoder: what each of them does.
        blocks: taken a few ahead of what is yielded.
        workers: processes; 0 encodes here.

    Raises:
        DataError: a process ended before its work was done.
    """
    if not workers:
        for block in blocks:
            yield encoder.encode(*zip(*block, strict=True))
        return
    setup = json.dumps(encoder.to_json()).encode() + b"\n"
    started = [_Worker(setup) for _ in range(workers)]
    idle: SimpleQueue[_Worker] = SimpleQueue()
    for worker in started:
        idle.put(worker)

    def encode(block: list[Pair]) -> EncodedBlock:
        worker = idle.get()
        try:
            return worker.encode(block)
        finally:
            idle.put(worker)

    try:
        with ThreadPoolExecutor(workers) as threads:
            try:
                yield from _in_order(threads, encode, blocks, 2 * workers)
            except BaseException:
                for worker in started:
                    worker.kill()
                raise
    finally:
        for worker in started:
            worker.close()


def _in_order(threads: ThreadPoolExecutor, encode: Any, blocks: Iterable[Any], ahead: int) -> Iterator[EncodedBlock]:
    waiting: deque[Future[EncodedBlock]] = deque()
    try:
        for block in blocks:
            waiting.append(threads.submit(encode, block))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


class _Worker:
    """A process and the two pipes to it, used by one thread at a time."""

    def __init__(self, setup: bytes) -> None:
        package = str(Path(transformer.__file__).parents[1])
        paths = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
        # Each process encodes on its own core: the tokenizer's threads would compete for them.
        environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "PYTHONPATH": paths}
        self._process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        self._setup = setup
        self._writer: Any = None
        self._reader: Any = None

    def encode(self, block: list[Pair]) -> EncodedBlock:
        try:
            return self._exchange(block)
        except (OSError, pa.ArrowInvalid, StopIteration) as error:
            code = self._process.wait()
            raise DataError(
                f"a process that encodes ended early, with code {code}; where memory is short, set data.workers lower"
            ) from error

    def _exchange(self, block: list[Pair]) -> EncodedBlock:
        stdin: Any = self._process.stdin
        if self._writer is None:
            stdin.write(self._setup)
            self._writer = pa.ipc.new_stream(stdin, TEXTS)
        sources, targets = zip(*block, strict=True)
        self._writer.write_batch(texts_of(sources, targets))
        stdin.flush()
        if self._reader is None:  # which waits for the first answer
            self._reader = pa.ipc.open_stream(self._process.stdout)
        batch, facts = self._reader.read_next_batch_with_custom_metadata()
        return block_of(batch, facts["facts"])

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        """Ends the process by ending its input, and takes what it still says."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        with contextlib.suppress(BrokenPipeError):
            stdin.close()
        with stdout:
            stdout.read()
        self._process.wait()
