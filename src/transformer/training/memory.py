"""Keeps freed memory with the process, since asking the system for it again costs more than the arithmetic."""

import ctypes
import platform

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4
LARGEST = 2**31 - 1


def keep_freed_memory() -> bool:
    """Tells the C library not to return freed memory to the system while this process runs.

    A training step allocates and frees the same large tensors each time; by default each is fresh, zeroed, page by
    page, from the system, which took half of a step's time where it was measured (see docs/log.md). It cannot be
    undone: the process keeps its peak of memory until it ends.

    Returns:
        True where it took effect: Linux with the GNU C library.
    """
    if platform.system() != "Linux" or platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return all(mallopt(option, value) for option, value in ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, LARGEST)))
