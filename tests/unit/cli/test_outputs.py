"""What a command has written stands in its output once, wherever Ctrl-C comes."""

import subprocess
import sys
from pathlib import Path

import pytest

# Interrupts a program right after the n-th call of a `write` in C that Python code makes: where a signal handler runs.
PROGRAM = """
import sys
from pathlib import Path

from transformer.cli.outputs import open_output
from transformer.cli.streams import flush_standard_output, open_streams

def interrupt(frame, event, argument):
    global left
    if event == "c_return" and argument.__name__ == "write":
        left -= 1
        if left == 0:
            sys.setprofile(None)
            raise KeyboardInterrupt

open_streams()
left, path = int(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None
try:
    with open_output(path) as sink:
        sys.setprofile(interrupt)
        for number in range(300):
            sink.write(f"{number:099}\\n".encode())
except KeyboardInterrupt:
    pass
finally:
    sys.setprofile(None)
    flush_standard_output()
"""


@pytest.mark.parametrize("calls", [1, 81, 82, 83, 84, 164, 165, 166, 300])
@pytest.mark.parametrize("is_file", [True, False])
def test_interrupted_output_is_a_prefix(tmp_path: Path, calls: int, is_file: bool) -> None:
    """Catches a buffer that never learns what was written, because its file is written by code in Python."""
    path = tmp_path / "out"
    arguments = [str(path)] if is_file else []
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(calls), *arguments], capture_output=True, text=True, check=True
    )
    lines = (path.read_text() if is_file else result.stdout).splitlines()
    assert lines == [f"{number:099}" for number in range(len(lines))]
    assert lines
