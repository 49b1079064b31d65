"""Forks a process for each call of the command line: the server behind `tests/commands.py`.

The child is a separate process that a real SIGKILL ends; the server only saves the time of importing PyTorch. It reads
a line of JSON per call from standard input, and answers with a line: the return code as in `subprocess`.
"""

import ctypes
import json
import os
import re
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHANGES = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir"}


def end_of(run: Path) -> dict[str, Any]:
    """Returns weights, optimizer state, counters and log of a run, without measured times."""
    last = max((run / "checkpoints").glob("step-*"))
    progress = json.loads((last / "progress.json").read_text())["progress"]
    for timed in (progress, progress["window"]):
        del timed["seconds"]
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for row in rows:
        row.pop("target_tokens_per_second", None)
    weights, optimizer = ((last / name).read_bytes() for name in ("model/model.safetensors", "optimizer.safetensors"))
    return {"weights": weights, "optimizer": optimizer, "progress": progress, "rows": rows}


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def watch_operations(log: Path | None, kill_at: int | None, torn: bool) -> None:
    """Counts operations on files below `checkpoints`, and kills the process before the one with index `kill_at`.

    With `torn`, the file that is being written is truncated to half its size, as if the write had been interrupted.
    """
    seen: list[str] = []

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in CHANGES or "/checkpoints" not in str(arguments[0]):
            return
        seen.append(f"{event} {arguments[0]} {arguments[1]}")
        if len(seen) - 1 == kill_at:
            if torn:
                tear(Path(re.sub("/checkpoints.*", "/checkpoints", str(arguments[0]))))
            kill()
        if log:
            Path(log).write_text("\n".join(seen))

    sys.addaudithook(hook)


def tear(checkpoints: Path) -> None:
    files = [path for path in checkpoints.glob(".writing-*/**/*") if path.is_file()]
    if files:
        newest = max(files, key=lambda path: path.stat().st_mtime_ns)
        os.truncate(newest, newest.stat().st_size // 2)


def at_step(step: int, act: Callable[[], None]) -> None:
    """Calls a function after so many updates, before the next one."""
    from transformer.training import update

    original = update.train_step

    def train_step(state: Any, *arguments: Any, **options: Any) -> Any:
        if state.step == step:
            act()
        return original(state, *arguments, **options)

    update.train_step = train_step


def hang(signals: int) -> None:
    """Waits forever in a C library, where no Python handler runs, while SIGTERM arrives once or repeatedly.

    Signals start once the thread waits: glibc sets the first word of a mutex to 2 when a thread waits for it. The
    system may merge signals that arrive at the same time, so many are sent.
    """
    mutex = ctypes.create_string_buffer(64)

    def send() -> None:
        while ctypes.c_int.from_buffer(mutex).value != 2:
            time.sleep(0.01)
        for _ in range(1 if signals == 1 else 50):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.2)

    threading.Thread(target=send, daemon=True).start()
    for _ in range(2):
        ctypes.CDLL(None).pthread_mutex_lock(mutex)


def limit_file_size(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def limit_resources(memory: int, seconds: int) -> None:
    """Bounds the memory that the command may add, and its time, after which a signal ends it."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + memory
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    signal.alarm(10 * seconds)


def limit_processes(number: int) -> None:
    """Limits the number of processes and threads, from which root is exempt, although it keeps access to all files."""
    resource.setrlimit(resource.RLIMIT_NPROC, (number, number))
    if os.getuid() == 0:
        library, access = ctypes.CDLL(None), 0b110  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH
        library.prctl(8, 1, 0, 0, 0)  # PR_SET_KEEPCAPS
        os.setresuid(65534, 65534, 65534)
        header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)(access, access)
        assert library.capset(header, data) == 0


def child(call: dict[str, Any]) -> None:
    """Runs the command in this process, with its output in files."""
    sys.dont_write_bytecode = True  # a limit would cut the file, which later processes read
    from transformer.cli import main

    for stream, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(call[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), stream)
    os.dup2(os.open(call["stdin"], os.O_RDONLY), 0)
    os.chdir(call["cwd"])
    os.environ.clear()
    os.environ.update(call["environment"])
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells ignore it for commands in the background
    if "memory" in call:
        limit_resources(call["memory"], call["seconds"])
    if "file_size" in call:
        limit_file_size(call["file_size"])
    if "closed" in call:
        os.close(call["closed"])
    if "processes" in call:
        limit_processes(call["processes"])
    if "kill_before_step" in call:
        at_step(call["kill_before_step"], kill)
    if "interrupt_data" in call:
        from transformer.data.tokens import EncodingJob

        EncodingJob.run = lambda job, folder: signal.raise_signal(signal.SIGINT)
    if "hang_before_step" in call:
        at_step(call["hang_before_step"], lambda: hang(call["signals"]))
    if "small_files_from_step" in call:
        at_step(call["small_files_from_step"], lambda: limit_file_size(30_000))
    if "log" in call or "kill_at" in call:
        watch_operations(call.get("log"), call.get("kill_at"), call.get("torn", False))
    sys.argv = ["transformer", *call["arguments"]]
    main()


def serve() -> None:
    import sacrebleu  # noqa: F401
    import torch._dynamo  # noqa: F401  an optimizer imports it

    import transformer.cli.app
    import transformer.evaluation.comparison
    import transformer.pipelines.auto
    import transformer.run.train

    transformer.cli.app.make_app()

    for line in sys.stdin:
        sys.stdout.flush()
        number = os.fork()
        if not number:
            code = 1
            try:
                child(json.loads(line))
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(number, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    serve()
