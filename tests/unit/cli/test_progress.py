"""Progress displays on a terminal."""

import io
import sys

import pytest

from transformer.cli.progress import progress_bar, spinner
from transformer.data.progress import show_progress
from transformer.training.monitoring.progress import Progress, Window
from transformer.training.monitoring.reporter import Reporter
from transformer.training.step import StepResult


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
    with progress_bar("lines", total) as done:
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
    with progress_bar("lines") as done, spinner("reading model"):
        done(500)
    assert terminal.getvalue() == ""


def test_files_and_pipes_get_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Catches control characters in a log."""
    with progress_bar("lines") as done:
        done(500)
    assert capsys.readouterr().err == ""


def test_a_run_says_what_it_waits_for(capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a silent wait before the first step, and control characters in a log."""
    reporter = Reporter(None, 10, 5)
    with reporter.waiting("trying batches"):
        assert capsys.readouterr().err == "trying batches ...\n"
    reporter.close()
    assert capsys.readouterr().err == ""


def test_a_terminal_shows_one_wait_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches bars of finished stages that go on moving, and a stage without its name or count."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    with show_progress() as progress:
        progress("reading the corpus", 0, None)
        progress("reading the corpus", 8192, None)
        start = len(terminal.getvalue())
        progress("encoding and filtering pairs", 2048, 29_000)
    last = terminal.getvalue()[start:]
    assert "reading the corpus" in terminal.getvalue()[:start]
    assert "encoding and filtering pairs" in last
    assert "2,048 of 29,000" in last
    assert "reading" not in last


def test_the_bar_of_a_run_fits_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a count of steps or figures that a terminal cuts, and a wait that is not named."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    reporter = Reporter(None, 100_000, 50)
    progress = Progress(step=99_950)
    progress.window.seconds = 1.0
    with reporter.busy("saving a checkpoint"):
        pass
    reporter.step(progress, StepResult(2.0, 2.0, 10_000, 1.0), 1e-3)
    reporter.step(Progress(step=100_000, window=Window(seconds=1.0)), StepResult(2.0, 2.0, 10_000, 1.0), 1e-3)
    reporter.close()
    assert "100,000/100,000 loss 2.000  lr 1.00e-03  10,000 tokens/s" in terminal.getvalue()
