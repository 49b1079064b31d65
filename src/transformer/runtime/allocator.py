"""How a process keeps its memory."""

import ctypes
import gc
import platform
from functools import cache

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX, M_ARENA_MAX = -1, -2, -4, -8
"""Options of the GNU C library's `mallopt`."""


def retain_heap() -> None:
    """Tells the GNU C library to keep what a step frees for the next step.

    By default it hands every large tensor back to the system, which clears each page anew when the next step asks for
    it; on virtual machines that can take longer than the arithmetic. Elsewhere than on Linux this does nothing.
    """
    if library := _gnu_c_library():
        for option, value in ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, 2**31 - 1), (M_TOP_PAD, 2**26), (M_ARENA_MAX, 1)):
            library.mallopt(option, value)


def trim_heap() -> None:
    """Hands memory that is free, wherever it lies, back to the system.

    What is kept for the next step is cut into other pieces by every new shape, of which some stay unused: a process
    that goes on for long takes more and more, unless it does this between its batches. It costs as much as clearing
    what is then asked for anew.
    """
    if library := _gnu_c_library():
        library.malloc_trim(0)


def leave_out_of_collections() -> None:
    """Leaves all objects made so far out of garbage collections, of which one takes 0.1 s once torch is loaded.

    What Python keeps for objects to come goes back at once, with a collection of next to nothing: in forked processes
    the first one would write to pages that they share.
    """
    gc.freeze()
    gc.collect()


@cache
def _gnu_c_library() -> ctypes.CDLL | None:
    """Loaded once: every `CDLL` is a new class, which drives names out of Python's cache of attributes.

    To let go of a name writes to its page, which a forked process then no longer shares.
    """
    return ctypes.CDLL(None) if platform.libc_ver()[0] == "glibc" else None
