"""The one place where errors of all commands are reported."""

import sys
from typing import Any

import pytest

from substitution import substitute
from transformer.cli import main
from transformer.errors import DataError, OutputError


class PanicException(BaseException):
    """A panic of a library in Rust, which is no `Exception`."""


UNEXPECTED = {
    "TypeError": TypeError("unsupported operand type(s)\nfor +: 'int' and 'str'"),
    "PanicException": PanicException("index out of bounds"),
}


def fail_with(monkeypatch: pytest.MonkeyPatch, error: BaseException, *arguments: str) -> Any:
    def command(**_: object) -> None:
        raise error

    substitute(monkeypatch, "app.make_app", lambda commands: lambda arguments, **_: command())
    monkeypatch.setattr(sys, "argv", ["transformer", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


@pytest.mark.parametrize("name", UNEXPECTED)
def test_an_unexpected_error_is_one_line(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches a traceback, the words of a library, and an exit code that means a mistake of the user."""
    assert fail_with(monkeypatch, UNEXPECTED[name], "average", "a", "b") == 1
    assert capsys.readouterr().err == (
        f"error: transformer average failed unexpectedly ({name}); run `transformer --debug average ...` to see "
        "where, and report it\n"
    )


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a request to report an installation that lacks a package, and blame of a package for a fault in ours."""
    error = ModuleNotFoundError("No module named 'sacrebleu.metrics'", name="sacrebleu.metrics")
    assert fail_with(monkeypatch, error, "evaluate") == 2
    message = "error: the package sacrebleu is missing, which this command needs; pip install sacrebleu\n"
    assert capsys.readouterr().err == message
    for module, package in {
        "uvicorn.config": "'transformer[serve]'",
        "prometheus_client": "'transformer[serve]'",
        "PIL": "'transformer[images]'",
        "ray": "'transformer[ray]'",
        "sphinx": "sphinx",  # only developers need it
    }.items():
        assert fail_with(monkeypatch, ModuleNotFoundError("missing", name=module), "serve") == 2
        assert capsys.readouterr().err.endswith(f"which this command needs; pip install {package}\n")
    own = ModuleNotFoundError("No module named 'transformer.x'", name="transformer.x")
    assert fail_with(monkeypatch, own, "evaluate") == 1
    assert "failed unexpectedly (ModuleNotFoundError)" in capsys.readouterr().err


def test_memory_that_runs_out_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a request to report what is no error of the program."""
    assert fail_with(monkeypatch, MemoryError(), "check") == 1
    assert capsys.readouterr().err.startswith("error: transformer check ran out of memory; ")


def test_known_errors_have_the_code_2(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches codes that scripts rely on."""
    assert fail_with(monkeypatch, DataError("a\nb\x1b"), "info") == 2
    assert fail_with(monkeypatch, OutputError("x", "y", "z"), "info") == 2
    assert fail_with(monkeypatch, FileNotFoundError(2, "own words", "name"), "info") == 2
    assert capsys.readouterr().err == (
        "error: a b\\x1b\nerror: x: y; z\n"
        "error: name: No such file or directory; check path, permissions and disk space\n"
    )
    assert fail_with(monkeypatch, KeyboardInterrupt(), "info") == 130


def test_the_traceback_is_there_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches an error that nobody can find."""
    with pytest.raises(TypeError, match="unsupported"):
        fail_with(monkeypatch, UNEXPECTED["TypeError"], "--debug", "info")
