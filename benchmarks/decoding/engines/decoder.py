"""Main program of every engine of `benchmarks/decoding/throughput.py`, run in the environment of the engine.

Imports numpy alone. An engine's file hands `run` a function that builds it from the order's weights, whose names are
those of this project's model. Each case is translated once to warm up and then timed, unless the order says `cold`;
token ids go in and come out, or, where a case names an `input`, a file of text in and one out.
"""

import json
import platform
import sys
import time
import unicodedata
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import numpy as np

PAD, BOS, EOS, UNK = range(4)
CONTROL, NORM_EPS = 4, 1e-6


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


def translate_ids(engine: Engine, case: dict[str, Any]) -> dict[str, Any]:
    """Seconds of token ids to token ids, and the ids."""
    prepared = engine.prepare(json.loads(Path(case["sources"]).read_text())[: case["sentences"]])
    engine.translate(prepared, case)
    begun = time.perf_counter()
    translated = engine.translate(prepared, case)
    return {"seconds": time.perf_counter() - begun, "tokens": engine.tokens_of(translated)}


def translate_text(engine: Engine, case: dict[str, Any], order: dict[str, Any]) -> dict[str, Any]:
    """Seconds from a file of text to another one."""
    translate = getattr(engine, "translate_file", None) or Text(engine, order).translate_file
    for _ in range(1 if order["cold"] else 2):
        begun = time.perf_counter()
        translate(case)
        seconds = time.perf_counter() - begun
    return {"seconds": seconds}


class Text:
    """Files of text by an engine of token ids, with this project's byte-pair tokenizer (one for both sides).

    It is the library `tokenizers` with a space before each text and ids that leave room for the control tokens.
    """

    def __init__(self, engine: Engine, order: dict[str, Any]) -> None:
        from tokenizers import Tokenizer

        content = json.loads(Path(order["tokenizer"]).read_text())
        self.form = content["normalization"]["unicode"]
        if content["normalization"]["lowercase"]:
            raise SystemExit("the model's tokenizer lowercases, which this driver does not; give another model")
        self.engine, self.pieces = engine, Tokenizer.from_str(json.dumps(content["merges"]))

    def translate_file(self, case: dict[str, Any]) -> None:
        """Reads, encodes, translates, decodes and writes."""
        lines = Path(case["input"]).read_bytes().decode().removesuffix("\n").split("\n")
        requests = [[line] for line in lines] if case["each"] else [lines]
        texts = [text for request in requests for text in self.translate_lines(request, case)]
        Path(case["output"]).write_bytes("".join(f"{text}\n" for text in texts).encode())

    def translate_lines(self, lines: list[str], case: dict[str, Any]) -> list[str]:
        """Translates lines in one call of the engine."""
        if self.form != "none":
            lines = [unicodedata.normalize(self.form.upper(), line) for line in lines]
        encoded = self.pieces.encode_batch([f" {line}" for line in lines], add_special_tokens=False)
        sources = [[*(token + CONTROL for token in encoding.ids[: case["longest"] - 1]), EOS] for encoding in encoded]
        outputs = self.engine.tokens_of(self.engine.translate(self.engine.prepare(sources), case))
        texts = self.pieces.decode_batch([[i - CONTROL for i in ids if i >= CONTROL] for ids in outputs])
        return [text.removeprefix(" ") for text in texts]


def run(build: Callable[[dict[str, Any]], Engine], packages: tuple[str, ...]) -> None:
    """Does the cases of the order named on the command line and writes the results to the file that it names."""
    order = json.loads(Path(sys.argv[1]).read_text())
    engine = build(order)
    results = {}
    for case in order["cases"]:
        results[case["name"]] = translate_text(engine, case, order) if "input" in case else translate_ids(engine, case)
    versions = {"python": platform.python_version()} | {name: version(name) for name in packages}
    result = {"cases": results, "versions": versions, "peak_mib": memory_mib("VmHWM")}
    Path(order["result"]).write_text(json.dumps(result))
