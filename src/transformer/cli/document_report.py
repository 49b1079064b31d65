"""The report of `transformer translate --report`: a row for each segment that is unsure or was left untranslated."""

import json
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from transformer.cli.outputs import open_output

if TYPE_CHECKING:
    from transformer.pipelines.translation.documents import Problem

COLUMNS: Final = ("document", "line", "state", "reason", "source", "translation")
"""Columns of a table, and keys of JSON objects."""
_ESCAPES: Final = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


@contextmanager
def open_report(path: Path | None) -> "Generator[Callable[[Sequence[Problem]], None]]":
    """Opens a report and yields a function that adds problems to it. It appears under its name when it is complete.

    Args:
        path: File, a table (`.tsv`) or a JSON list (`.json`); None for no report.

    Raises:
        OutputError: It cannot be written.
    """
    if path is None:
        yield lambda problems: None
        return
    is_json, separator = path.suffix == ".json", "["
    with open_output(path, whole=True) as file:

        def add(problems: "Sequence[Problem]") -> None:
            nonlocal separator
            for problem in problems:
                row = _row(problem)
                if is_json:
                    file.write(f"{separator}\n{json.dumps(row, ensure_ascii=False)}".encode())
                    separator = ","
                else:
                    file.write("\t".join(str(value).translate(_ESCAPES) for value in row.values()).encode() + b"\n")

        if not is_json:
            file.write("\t".join(COLUMNS).encode() + b"\n")
        yield add
        if is_json:
            file.write(b"[]\n" if separator == "[" else b"\n]\n")


def _row(problem: "Problem") -> dict[str, str | int]:
    state = "untranslated" if problem.translation is None else "unsure"
    values = (problem.document, problem.line, state, problem.reason, problem.source, problem.translation or "")
    return dict(zip(COLUMNS, values, strict=True))
