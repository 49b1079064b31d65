"""The switch for the shape checks that the tests run with."""

from collections.abc import Generator
from contextlib import contextmanager

from jaxtyping import config


@contextmanager
def unchecked_shapes() -> Generator[None]:
    """Turns shape checks off, for oracles and fixtures that call a model many times.

    A check costs some 50 microseconds a call, more than a tiny block itself.
    """
    was_disabled = config.jaxtyping_disable
    config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        config.update("jaxtyping_disable", was_disabled)
