"""How a process keeps its memory."""

import ctypes
import gc
import platform

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX, M_ARENA_MAX = -1, -2, -4, -8
"""Options of the GNU C library's `mallopt`."""


def keep_freed_memory() -> None:
    """Tells the GNU C library to keep what a step frees for the next step.

    By default it hands every large tensor back to the system, which clears each page anew when the next step asks for
    it; on virtual machines that can take longer than the arithmetic. Elsewhere than on Linux this does nothing.
    """
    if platform.libc_ver()[0] != "glibc":
        return
    mallopt = ctypes.CDLL(None).mallopt
    for option, value in ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, 2**31 - 1), (M_TOP_PAD, 2**26), (M_ARENA_MAX, 1)):
        mallopt(option, value)


def give_back_holes() -> None:
    """Hands memory that is free, wherever it lies, back to the system.

    What is kept for the next step is cut into other pieces by every new shape, of which some stay unused: a process
    that goes on for long takes more and more, unless it does this between its batches. It costs as much as clearing
    what is then asked for anew.
    """
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


def leave_out_of_collections() -> None:
    """Leaves all objects made so far out of garbage collections, of which one takes 0.1 s once torch is loaded."""
    gc.freeze()
