"""Encoding of blocks by worker processes, in order."""

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
from transformer.data.arrow_ipc import TEXT_SCHEMA, deserialize_block, serialize_texts
from transformer.data.encoding import BlockEncoder, EncodedBlock
from transformer.data.readers import Pair
from transformer.errors import DataError

BLOCK_PAIRS: Final = 2048
SMALL_PAIRS: Final = 40_000
"""Size below which a corpus is encoded faster than worker processes start."""
COMMAND: Final = [sys.executable, "-P", "-m", "transformer.data.worker"]


def worker_count(requested: int | None, pairs: int) -> int:
    """Returns the number of processes to start: the requested number, else one per core, or 0 for a small corpus."""
    if requested is None and pairs < SMALL_PAIRS:
        return 0
    return requested or (len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1)


def encode_blocks(encoder: BlockEncoder, blocks: Iterable[list[Pair]], workers: int) -> Generator[EncodedBlock]:
    """Yields the encoded blocks in their order, whatever the number of processes.

    This uses processes instead of threads, because most of the work outside the tokenizer holds the GIL. The workers
    are separate programs that read and write pipes, so the program of the caller is neither imported nor forked.

    Args:
        encoder: Encoder that each process runs.
        blocks: Blocks of pairs, read a few ahead of the results.
        workers: Number of processes; 0 encodes in the calling process.

    Raises:
        DataError: a process ended before its work was done.
    """
    if not workers:
        for block in blocks:
            yield encoder.encode(*zip(*block, strict=True))
        return
    setup = json.dumps(encoder.to_json()).encode() + b"\n"
    started = [_WorkerProcess(setup) for _ in range(workers)]
    idle: SimpleQueue[_WorkerProcess] = SimpleQueue()
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


class _WorkerProcess:
    """A worker process and the two pipes to it, used by one thread at a time."""

    def __init__(self, setup: bytes) -> None:
        package = str(Path(transformer.__file__).parents[1])
        paths = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
        # One process per core: the threads of the tokenizers library would compete for the cores.
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
                f"a worker process ended early, with code {code}; if memory is short, set data.workers lower"
            ) from error

    def _exchange(self, block: list[Pair]) -> EncodedBlock:
        stdin: Any = self._process.stdin
        if self._writer is None:
            stdin.write(self._setup)
            self._writer = pa.ipc.new_stream(stdin, TEXT_SCHEMA)
        sources, targets = zip(*block, strict=True)
        self._writer.write_batch(serialize_texts(sources, targets))
        stdin.flush()
        if self._reader is None:  # opening the stream waits for the first block
            self._reader = pa.ipc.open_stream(self._process.stdout)
        batch, metadata = self._reader.read_next_batch_with_custom_metadata()
        return deserialize_block(batch, metadata["facts"])

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        """Ends the process by closing its input, and discards its remaining output."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        with contextlib.suppress(BrokenPipeError):
            stdin.close()
        with stdout:
            stdout.read()
        self._process.wait()
