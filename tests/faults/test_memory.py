"""Memory of `transformer translate`, measured between two lines, when it waits for its input."""

import os
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from samples import digit_pairs

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")

LINES = [source for source, _ in digit_pairs(2000)]


class RunningTranslator:
    """The command, which answers lines as they arrive."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    def translate(self, lines: Sequence[str]) -> list[str]:
        """Returns the translations of lines, which are written meanwhile, so that no pipe fills up."""
        assert self._process.stdin
        assert self._process.stdout
        writer = Thread(target=self._write, args=("".join(f"{line}\n" for line in lines).encode(),))
        writer.start()
        translations = [self._process.stdout.readline().decode() for _ in lines]
        writer.join()
        assert all(translations), "the command ended"
        return translations

    def _write(self, text: bytes) -> None:
        assert self._process.stdin
        self._process.stdin.write(text)
        self._process.stdin.flush()

    def mib(self, field: str) -> float:
        """Returns a size of the process from /proc."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(next(line.split()[1] for line in status.splitlines() if line.startswith(f"{field}:"))) / 1024


@contextmanager
def running_translator(model: Path) -> Iterator[RunningTranslator]:
    call = [sys.executable, "-m", "transformer", "translate", str(model), "--quiet"]
    with subprocess.Popen(
        call, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        yield RunningTranslator(process)
        assert process.stdin
        process.stdin.close()
        assert process.wait() == 0


def test_anonymous_memory_is_flat_over_a_long_file(tiny_run: Path) -> None:
    """Catches translations, notes or arrays that are kept: a kilobyte of each line would be 18 MiB."""
    with running_translator(tiny_run) as translator:
        sizes: list[float] = []
        for _ in range(10):
            translator.translate(LINES)
            sizes.append(translator.mib("RssAnon"))
    assert sizes[-1] - sizes[0] < 12, sizes


def huge_lines() -> dict[str, str]:
    generator = random.Random(1)
    return {
        "word": "".join(generator.choices("abcdefghijklmnopqrstuvwxyz", k=900_000)),
        "two words": " ".join("".join(generator.choices("zeronetwi", k=16_000)) for _ in range(2)),
        "sentences": ". ".join(LINES)[:60_000],
        "line": "one " * (4 << 20),
    }


@pytest.mark.parametrize("kind", huge_lines())
def test_a_huge_line_takes_hardly_more_memory_than_ordinary_ones(tiny_run: Path, kind: str) -> None:
    """Catches a line that a tokenizer sees as a whole, which took 200 bytes for each of its characters."""
    with running_translator(tiny_run) as translator:
        translator.translate(LINES)
        before = translator.mib("VmHWM")
        line = huge_lines()[kind]
        (translation,) = translator.translate([line])
        growth = translator.mib("VmHWM") - before
        assert translator.translate(LINES[:1])[0].strip()
    assert (translation == f"{line}\n") == (kind == "word")
    assert growth < 64
