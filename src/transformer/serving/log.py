"""The log of the server: one line per request on standard error, without texts unless asked for."""

import json
import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from transformer.errors import printable


class ServerLog:
    """Writes events as JSON or text.

    Args:
        form: "json", "text" or "none".
        stream: Where the log goes; standard error by default.
    """

    def __init__(self, form: Literal["json", "text", "none"] = "text", stream: TextIO | None = None) -> None:
        self._form = form
        self._stream = stream or sys.stderr

    def write(self, event: str, **fields: Any) -> None:
        """Writes one line.

        Args:
            event: What happened, e.g. "request".
            fields: Facts of it; those that are None are left out.
        """
        if self._form == "none":
            return
        entry = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event}
        entry |= {name: value for name, value in fields.items() if value is not None}
        line = json.dumps(entry) if self._form == "json" else _as_text(entry)
        try:
            self._stream.write(f"{line}\n")
            self._stream.flush()
        except OSError:
            self._form = "none"  # nobody reads it any more

    def failure(self, event: str, error: BaseException, **fields: Any) -> None:
        """Writes an unexpected error: its type and where it happened, without its message, which may contain texts."""
        frames = traceback.extract_tb(error.__traceback__)
        places = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
        self.write(event, error=type(error).__name__, at=places, **fields)


def _as_text(entry: Mapping[str, Any]) -> str:
    """Returns an entry as `TIME EVENT name=value ...` without control characters."""
    time, event, *_ = entry.values()
    facts = [f"{name}={value if isinstance(value, int | float) else json.dumps(value, ensure_ascii=False)}"
             for name, value in entry.items() if name not in ("time", "event")]  # fmt: skip
    return printable(" ".join([time, event, *facts]))
