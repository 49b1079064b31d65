"""The Ray cluster of `--engine ray`: how it is found or started, and what its errors say in one line."""

import logging
import os
import socket
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from transformer.cli.sharding import ended_by_signal
from transformer.errors import ConfigError, TransformerError, WorkerError

FREE_CPUS: Final = 2
"""Cores that are left for tasks which read and write."""
CONNECTION_SECONDS: Final = 15
WRAPPED: Final = "traceback_str"
"""Attribute of an error that Ray wraps around another one, whose type it takes on."""
OWN_ERRORS: Final = f"{TransformerError.__module__}."
"""Beginning of the last words of an actor that could not be made, by which Ray names the type of the error."""


def ray_modules(*names: str) -> list[Any]:
    """Imports modules of Ray, which is not installed where its types are checked."""
    return [import_module(name) for name in names]


def _require_answer(address: str) -> None:
    """Connects to the port of an address, if it has one; Ray itself tries again for minutes.

    Raises:
        ConfigError: Nothing answers.
    """
    host, _, port = address.rpartition("//")[2].rpartition(":")
    if not (host and port.isdecimal()):
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECTION_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"no Ray cluster answers at RAY_ADDRESS={address} ({error}); start one there with ray start --head, or "
            "set RAY_ADDRESS=local to start Ray on this machine"
        ) from error


@contextmanager
def ray_cluster() -> Generator[None]:
    """Connects to the cluster that `RAY_ADDRESS` names or that runs here, or starts Ray on this machine.

    Ray is started if no cluster runs here, or if `RAY_ADDRESS` is `local`, as Ray itself has it.

    Raises:
        ConfigError: Nothing answers at `RAY_ADDRESS`.
    """
    (ray,) = ray_modules("ray")
    quiet: Any = {"log_to_driver": False, "logging_level": logging.ERROR}
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    address = os.environ.get("RAY_ADDRESS", "")
    if address != "local":
        _require_answer(address)
        with suppress(ConnectionError) if not address else nullcontext():
            ray.init(address or "auto", **quiet)
    if not ray.is_initialized():
        ray.init("local", num_cpus=len(os.sched_getaffinity(0)) + FREE_CPUS, include_dashboard=False, **quiet)
    with ended_by_signal():  # Ray has replaced the handler by its own
        try:
            yield
        finally:
            ray.shutdown()


@contextmanager
def one_line_errors(folder: Path, *, continues: bool) -> Generator[None]:
    """Reports an error of Ray in one line.

    Raises:
        TransformerError: The error that an actor raised, or one with the last words of Ray.
    """
    try:
        yield
    except Exception as error:
        causes = _causes(error)
        raised = [cause for cause in causes if isinstance(cause, TransformerError) and not hasattr(cause, WRAPPED)]
        if raised:
            raise raised[0] from error
        words = str(error).strip().splitlines() or [type(error).__name__]
        if words[-1].startswith(OWN_ERRORS):
            raise TransformerError(words[-1].partition(": ")[2]) from error
        advice = "the same command continues" if continues else f"remove {folder} and start again"
        raise WorkerError(f"Ray ended the job: {_last_words(words)}; {advice}") from error


def _last_words(lines: Sequence[str]) -> str:
    """Returns the last words of an error of Ray.

    Where an actor died, those are its class and what follows the indented lines about it: the reason, and whether it
    had started.
    """
    facts = [number for number, line in enumerate(lines) if line.startswith("\tclass_name: ")]
    if not facts:
        return lines[-1].strip()
    words = [line.strip() for line in lines[facts[-1] + 1 :] if line.strip() and not line.startswith("\t")]
    return f"actor {lines[facts[-1]].partition(': ')[2]}: {' '.join(words)}".rstrip(".")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yields an error and those that led to it, as Ray and Python record them."""
    seen = set[int]()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = getattr(error, "cause", None) or error.__cause__ or error.__context__
