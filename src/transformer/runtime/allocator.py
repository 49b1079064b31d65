"""Settings of the memory allocator and the garbage collector."""

import ctypes
import gc
import platform
from functools import cache

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX, M_ARENA_MAX = -1, -2, -4, -8
"""Options of the GNU C library's `mallopt`."""


def retain_heap() -> None:
    """Configures the GNU C library to keep freed memory in the process for the next step.

    By default the memory of every large tensor is returned to the operating system, which clears each page again when
    the next step allocates it. On virtual machines that can take longer than the arithmetic. With other C libraries,
    this function has no effect.
    """
    if library := _gnu_c_library():
        for option, value in ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, 2**31 - 1), (M_TOP_PAD, 2**26), (M_ARENA_MAX, 1)):
            library.mallopt(option, value)


def trim_heap() -> None:
    """Returns free heap pages to the operating system (`malloc_trim`).

    Batches of varying shapes fragment the memory that `retain_heap` keeps, so a long-running process grows unless it
    calls this function between batches. The cost is that of clearing the pages that are allocated again.
    """
    if library := _gnu_c_library():
        library.malloc_trim(0)


def freeze_gc() -> None:
    """Excludes all existing objects from garbage collection, which takes 0.1 s once PyTorch is loaded.

    The collection that follows has almost nothing to examine, and it releases the memory that Python reserves for new
    objects. Otherwise the first collection in a forked process would write to pages shared with its parent.
    """
    gc.freeze()
    gc.collect()


@cache
def _gnu_c_library() -> ctypes.CDLL | None:
    """Returns the GNU C library, or None if the process uses another one.

    The result is cached because every `CDLL` object creates a class, which evicts names from Python's attribute cache.
    Releasing a name writes to its page, which a forked process then no longer shares with its parent.
    """
    return ctypes.CDLL(None) if platform.libc_ver()[0] == "glibc" else None
