"""The summary of skipped tests."""

from types import SimpleNamespace
from typing import Any

from skipped import skip_summary


def report(reason: str) -> Any:
    return SimpleNamespace(longrepr=("file.py", 3, f"Skipped: {reason}"))


def test_reasons_are_counted_and_fit_a_table() -> None:
    """Catches skipped tests that nobody hears of, and a reason that breaks the table."""
    summary = skip_summary([report("no GPU"), report("a | b"), report("no GPU")], "pytest -m slow")
    assert "**3 tests were skipped** by `pytest -m slow`" in summary
    assert summary.splitlines()[-2:] == ["| 2 | no GPU |", "| 1 | a \\| b |"]
    assert skip_summary([], "pytest") == ""
