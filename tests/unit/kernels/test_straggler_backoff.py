"""Tests of kernels/csrc/straggler_backoff.h, with times that are given instead of measured."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

import transformer.kernels

HEADERS = Path(transformer.kernels.__file__).parent / "csrc"
SOURCE = """
#include "straggler_backoff.h"
using namespace std::chrono;
static transformer::StragglerBackoff backoff;
static steady_clock::time_point at(long us) { return steady_clock::time_point(hours(1) + microseconds(us)); }
extern "C" int is_active(long now) { return backoff.is_active(at(now)); }
extern "C" void record(long work, long wait, long now) {
  backoff.record(microseconds(work), microseconds(wait), at(now));
}
"""


@pytest.fixture
def backoff(tmp_path: Path) -> ctypes.CDLL:
    """The backoff of a thread, in microseconds."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no compiler")
    source, compiled = tmp_path / "backoff.cpp", tmp_path / "backoff.so"
    source.write_text(SOURCE, encoding="utf-8")
    subprocess.run([compiler, "-std=c++17", "-shared", "-fPIC", f"-I{HEADERS}", source, "-o", compiled], check=True)
    return ctypes.CDLL(str(compiled))


def pause_after(backoff: ctypes.CDLL, now: int) -> int:
    """Records a straggler, and returns the length of the pause that follows."""
    backoff.record(20, 3000, now)
    return next(pause for pause in range(0, 10**6, 1000) if not backoff.is_active(now + pause))


def test_an_idle_machine_keeps_all_threads(backoff: ctypes.CDLL) -> None:
    """Catches a pause after the time it takes to wake a thread, and after a long product that one thread ends later."""
    assert not backoff.is_active(0)
    backoff.record(20, 400, 0)
    backoff.record(4000, 3000, 5000)
    assert not backoff.is_active(5000)


def test_pauses_grow_while_stragglers_follow(backoff: ctypes.CDLL) -> None:
    """Catches a wait for a straggler every few milliseconds on a busy machine, and pauses that never end."""
    now, pauses = 0, list[int]()
    for _ in range(7):
        pauses.append(pause_after(backoff, now))
        now += pauses[-1] + 3000
    assert pauses == [10_000, 20_000, 40_000, 80_000, 160_000, 320_000, 320_000]
    assert pause_after(backoff, now + 10**6) == 10_000, "a straggler long after the others is the first one again"


def test_a_straggler_during_a_pause_does_not_extend_it(backoff: ctypes.CDLL) -> None:
    """Catches a pause that doubles with each barrier of the region in which it began."""
    backoff.record(20, 3000, 0)
    backoff.record(20, 3000, 3000)
    assert backoff.is_active(9000)
    assert not backoff.is_active(10_000)
