"""Shape checks in tests: they cover the first calls of each test and are off where they would cost the most."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from beartype import beartype
from jaxtyping import config

CALLS_PER_TEST = 1_000
"""Number of checked calls per test. One check takes about 50 microseconds, longer than a tiny block."""

_calls = 0


def check(function: Callable[..., Any]) -> Callable[..., Any]:
    """Type checker of the import hook: beartype, with its calls counted and limited to `CALLS_PER_TEST`."""
    checked = beartype(function)

    def counted(*arguments: Any, **keywords: Any) -> Any:
        global _calls
        _calls += 1
        if _calls >= CALLS_PER_TEST:
            config.update("jaxtyping_disable", True)
        return checked(*arguments, **keywords)

    return counted


def begin_test(*, checked: bool) -> None:
    """Turns the checks of a test on or off and resets the count."""
    global _calls
    _calls = 0
    config.update("jaxtyping_disable", not checked)


@contextmanager
def unchecked_shapes() -> Generator[None]:
    """Turns shape checks off within a context, for oracles and fixtures that call a model many times."""
    was_disabled = config.jaxtyping_disable
    config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        config.update("jaxtyping_disable", was_disabled)
