"""Calls the real command line, each call in a new process forked from a server that has imported everything.

Importing torch and the program takes seconds per process, whereas a fork takes almost no time. The exit code, signals,
files and streams of the command are real. `faults/run_server.py` is the server.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Self

SERVER = Path(__file__).parent / "faults" / "run_server.py"


class Commands:
    """Runs `transformer ...` in forked processes, with faults injected on request.

    Args:
        folder: Folder of the files that hold the standard streams of a command.
    """

    def __init__(self, folder: Path) -> None:
        self._files = {name: str(folder / name) for name in ("stdin", "stdout", "stderr")}
        self._server = subprocess.Popen(
            [sys.executable, str(SERVER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def __call__(
        self, *arguments: object, stdin: str | bytes = b"", cwd: Path | None = None, **faults: object
    ) -> "subprocess.CompletedProcess[str]":
        """Runs a command to its end.

        Args:
            *arguments: Arguments after `transformer`; bytes need not be UTF-8.
            stdin: Contents of standard input.
            cwd: Working directory.
            **faults: Faults to inject, with the keys that `child` in `run_server.py` accepts; or another `stdout`.
        """
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        Path(self._files["stdin"]).write_bytes(stdin.encode() if isinstance(stdin, str) else stdin)
        environment = {"OMP_NUM_THREADS": "1", "COLUMNS": "200", **os.environ}
        texts = [os.fsdecode(argument) if isinstance(argument, bytes) else str(argument) for argument in arguments]
        call = {"arguments": texts, "cwd": cwd or Path.cwd(), "environment": environment, **self._files, **faults}
        self._server.stdin.write(json.dumps(call, default=str) + "\n")
        self._server.stdin.flush()
        code = int(self._server.stdout.readline())
        files = [Path(str(call[name])) for name in ("stdout", "stderr")]
        streams = (file.read_bytes().decode() if file.is_file() else "" for file in files)
        return subprocess.CompletedProcess(texts, code, *streams)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._server.communicate()


_shared: list[Commands] = []
_folder = tempfile.TemporaryDirectory(prefix="commands-", ignore_cleanup_errors=True)


def run(*arguments: object, stdin: str | bytes = b"", cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    """Runs a command with a server that all tests of a process share and that the first call starts."""
    if not _shared:
        _shared.append(Commands(Path(_folder.name)))
    return _shared[0](*arguments, stdin=stdin, cwd=cwd)


def close() -> None:
    """Ends the shared server."""
    for commands in _shared:
        commands.__exit__()
    _shared.clear()
    _folder.cleanup()
