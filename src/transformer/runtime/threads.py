"""Threads of torch and GPUs, in this process and in processes that are forked from it.

A parallel loop in a forked process would wait forever for threads that only its parent has. Such a process therefore
computes on one thread, which needs no others. Some libraries end a process if they cannot start their threads, so this
is tried beforehand.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager
from ctypes import CDLL
from functools import cache
from threading import Event, Thread
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from transformer.errors import ConfigError
from transformer.kernels.library import library

SPARE_THREADS: Final = min(2 * (os.cpu_count() or 1), 64) + 4
"""Threads that a command needs besides those of torch: for tokenizers, for files, and for reading ahead."""
_is_forked = _parent_used_gpu = False


@cache
def prepare_threads() -> None:
    """Checks that threads can be started, and limits processes that are forked from now on to one.

    Raises:
        ConfigError: The system does not let this process start enough threads.
    """
    _check_threads(torch.get_num_threads(), "OMP_NUM_THREADS")
    os.register_at_fork(before=_record_gpu_use, after_in_child=_limit_threads)


def _record_gpu_use() -> None:
    global _parent_used_gpu
    _parent_used_gpu = _parent_used_gpu or torch.cuda.is_initialized()


def _limit_threads() -> None:
    global _is_forked
    _is_forked = True
    torch.set_num_threads(1)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


def set_threads(threads: int, key: str) -> None:
    """Sets the number of torch's threads.

    Args:
        threads: Number of threads.
        key: Name of the setting, for error messages.

    Raises:
        ConfigError: A forked process asks for several threads, or the system does not let it start them.
    """
    if _is_forked and threads > 1:
        raise ConfigError(
            f"{key}={threads} does not work in a process forked from one that has computed; set {key}=1, or start the "
            "process with multiprocessing's 'spawn' method"
        )
    _check_threads(threads, key)
    torch.set_num_threads(threads)


@contextmanager
def own_cores() -> Generator[None]:
    """Keeps each of torch's threads on a core of its own while work is done that all of them share.

    On a busy machine, Linux may leave two threads on the same core for seconds. They wait for each other at the end of
    each matrix product, so that the work takes twice as long as beside other processes on a core each. Afterwards the
    threads may run on all cores again, as threads and processes that are started inherit the cores of the calling one.

    Nothing changes if torch has another number of threads than there are cores for this process, as other processes
    then probably use the rest, and nothing without the compiled kernels or outside of Linux.
    """
    compiled, threads = library(), torch.get_num_threads()
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set[int]()
    if compiled is None or threads < 2 or threads != len(cores):
        yield
        return
    all_cores = np.zeros(64 * (max(cores) // 64 + 1), np.uint8)  # Linux takes whole words of 64 cores
    all_cores[[*cores]] = 1
    masks = np.zeros((threads, len(all_cores)), np.uint8)
    first = os.getpid()  # so that not all programs have their calling thread, which does most, on the same core
    masks[np.arange(threads), np.roll(sorted(cores), first)] = 1
    _set_cores(compiled, masks)
    try:
        yield
    finally:
        _set_cores(compiled, np.tile(all_cores, (threads, 1)))


def _set_cores(compiled: CDLL, allowed: NDArray[np.uint8]) -> None:
    """Sets the cores on which each thread may run: `allowed` has a row for each thread and a column for each core."""
    masks = np.packbits(allowed, axis=1, bitorder="little")
    compiled.transformer_set_thread_affinity(masks.ctypes.data, masks.shape[1], len(masks))


def check_gpu() -> None:
    """Checks that this process may use a GPU.

    Raises:
        ConfigError: The process was forked from one that has used a GPU.
    """
    if _is_forked and _parent_used_gpu:
        raise ConfigError(
            "a GPU cannot be used in a process forked from one that has used it; start the process with "
            "multiprocessing's 'spawn' method, or choose device='cpu'"
        )


def _check_threads(threads: int, key: str) -> None:
    """Starts as many threads as this process will need, and ends them."""
    release, started = Event(), list[Thread]()
    try:
        for _ in range(threads - 1 + SPARE_THREADS):
            thread = Thread(target=release.wait, daemon=True)
            thread.start()
            started.append(thread)
    except RuntimeError as error:
        alternative = f", or set {key} lower" if threads > 1 else ""
        raise ConfigError(
            f"{key}={threads} needs {threads - 1 + SPARE_THREADS} further threads, but the system lets this program "
            f"start only {len(started)}; raise its limit of processes (ulimit -u){alternative}"
        ) from error
    finally:
        release.set()
        for thread in started:
            thread.join()
