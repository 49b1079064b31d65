"""Options of a task, as a worker receives them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transformer.errors import TransformerError
from transformer.serving.errors import ServiceError
from transformer.serving.interfaces import OPTIONS, Task

MAX_SEED = 2**63 - 1


@dataclass(frozen=True)
class TaskOptions:
    """Checked access to the options of a task.

    Args:
        task: Task of the options.
        values: Options, see `transformer.serving.interfaces.OPTIONS`; None stands for an option that was left out.

    Raises:
        ServiceError: An option is unknown.
    """

    task: Task
    values: Mapping[str, Any]

    def __post_init__(self) -> None:
        """Checks the names."""
        for name in self.values:
            if name not in OPTIONS[self.task]:
                known = ", ".join(OPTIONS[self.task]) or "none"
                raise ServiceError(
                    "invalid_request", f"{name} is not an option of {self.task}; known: {known}", param=name
                )

    def integer(self, name: str, default: int, *, least: int = 1) -> int:
        """Returns an option that is a whole number of at least `least`."""
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MAX_SEED:
            raise ServiceError("invalid_request", f"{name} is not a whole number of at least {least}", param=name)
        return value

    def number(self, name: str, default: float) -> float:
        """Returns an option that is a finite number of at least 0."""
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < float("inf"):
            raise ServiceError("invalid_request", f"{name} is not a finite number of at least 0", param=name)
        return float(value)

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Returns an option that is true or false."""
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise ServiceError("invalid_request", f"{name} is neither true nor false", param=name)
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """Returns an option that is a list of texts; empty if it was left out."""
        value = self.values.get(name)
        if value is None:
            return ()
        if not is_list_of_texts(value):
            raise ServiceError("invalid_request", f"{name} is not a list of texts", param=name)
        return tuple(without_surrogates(text) for text in value)

    def pairs(self, name: str) -> tuple[tuple[str, str], ...]:
        """Returns an option that is a list of pairs of texts; empty if it was left out."""
        value = self.values.get(name)
        if value is None:
            return ()
        if not isinstance(value, list | tuple) or not all(is_list_of_texts(pair) and len(pair) == 2 for pair in value):
            raise ServiceError("invalid_request", f"{name} is not a list of pairs of texts", param=name)
        return tuple((without_surrogates(first), without_surrogates(second)) for first, second in value)

    def seed(self) -> int | None:
        """Returns the seed; None if it was left out."""
        return None if self.values.get("seed") is None else self.integer("seed", 0, least=-MAX_SEED)

    def refusal(self, error: TransformerError) -> ServiceError:
        """Returns the error for the client whose options the package refuses, e.g. with `beam=0 is below 1; ...`."""
        name = str(error).partition("=")[0]
        return ServiceError("invalid_request", str(error), param=name if name in OPTIONS[self.task] else None)


def is_list_of_texts(value: Any) -> bool:
    """Whether a JSON-like value is a list of texts."""
    return isinstance(value, list | tuple) and all(isinstance(text, str) for text in value)


def without_surrogates(text: str) -> str:
    """Returns a text with U+FFFD for surrogates without a partner, which JSON allows and tokenizers do not."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
