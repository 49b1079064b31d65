"""What every engine of `benchmarks/decoding.py` runs: cases read from a file, in the engine's own environment.

Imports numpy alone. An engine's file hands `run` a function that builds it from the order's weights, whose names are
those of this project's model. Each case is translated once to warm up and then timed; token ids go in and come out.
"""

import json
import platform
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import numpy as np

PAD, BOS, EOS, UNK = range(4)
NORM_EPS = 1e-6


class Engine(Protocol):
    """A model that translates."""

    def prepare(self, sources: list[list[int]]) -> Any:
        """Token ids, EOS last, as the engine takes them; not timed."""
        ...

    def translate(self, prepared: Any, case: dict[str, Any]) -> Any:
        """The best translation of every source.

        Args:
            prepared: of `prepare`.
            case: `beam`; `batch`, most sentences (or, if `by_tokens`, tokens) at a time; `limit`, most tokens; `fixed`,
                whether there are exactly so many; hypotheses are compared by score / length, EOS counted.
        """
        ...

    def tokens_of(self, translated: Any) -> list[list[int]]:
        """The tokens without EOS; not timed."""
        ...


def sinusoid(positions: int, d_model: int) -> np.ndarray:
    """The table of Sec. 3.5, sines and cosines interleaved: (positions, d_model)."""
    frequency = 10000.0 ** (-np.arange(0, d_model, 2, dtype=np.float64) / d_model)
    angle = np.outer(np.arange(positions, dtype=np.float64), frequency)
    return np.stack([np.sin(angle), np.cos(angle)], axis=-1).reshape(positions, d_model).astype(np.float32)


def memory_mib(field: str) -> float:
    """A figure of this process: VmRSS now, VmHWM at its highest."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith(field))


def run(build: Callable[[dict[str, Any]], Engine], packages: tuple[str, ...]) -> None:
    """Does the cases of the order named on the command line and writes the results to the file that it names."""
    order = json.loads(Path(sys.argv[1]).read_text())
    engine = build(order)
    results = {}
    for case in order["cases"]:
        sources = json.loads(Path(case["sources"]).read_text())[: case["sentences"]]
        prepared = engine.prepare(sources)
        engine.translate(prepared, case)
        begun = time.perf_counter()
        translated = engine.translate(prepared, case)
        seconds = time.perf_counter() - begun
        results[case["name"]] = {"seconds": seconds, "tokens": engine.tokens_of(translated)}
    versions = {"python": platform.python_version()} | {name: version(name) for name in packages}
    result = {"cases": results, "versions": versions, "peak_mib": memory_mib("VmHWM")}
    Path(order["result"]).write_text(json.dumps(result))
