"""Progress displays on a terminal."""

import io
import sys

import pytest

from transformer.cli.progress import counted, shown_while
from transformer.training.monitoring.reporter import Reporter


class Terminal(io.StringIO):
    """A text buffer that claims to be a terminal."""

    def isatty(self) -> bool:
        """Returns True."""
        return True


@pytest.mark.parametrize(("total", "count"), [(None, "1,500 lines"), (3000, "1,500 of 3,000 lines")])
def test_count_and_rate_are_shown(monkeypatch: pytest.MonkeyPatch, total: int | None, count: str) -> None:
    """Catches a counter without a rate or without the total."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    with counted("lines", total) as done:
        done(500)
        done(1000)
    text = terminal.getvalue()
    assert count in text
    assert "lines/s" in text


def test_a_terminal_that_cannot_go_back_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches an empty line for each counter."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "dumb")
    with counted("lines") as done, shown_while("reading model"):
        done(500)
    assert terminal.getvalue() == ""


def test_files_and_pipes_get_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Catches control characters in a log."""
    with counted("lines") as done:
        done(500)
    assert capsys.readouterr().err == ""


def test_a_run_says_what_it_waits_for(capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a silent wait before the first step, and control characters in a log."""
    reporter = Reporter(None, 10, 5)
    with reporter.waiting("trying batches"):
        assert capsys.readouterr().err == "trying batches ...\n"
    reporter.close()
    assert capsys.readouterr().err == ""
