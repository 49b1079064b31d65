"""Annotated fields of a dataclass: their metadata, and the check of their values."""

import math
from dataclasses import dataclass, fields
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Le

from transformer.errors import ConfigError

Count = Annotated[int, Ge(0)]
Positive = Annotated[int, Ge(1)]


@dataclass(frozen=True)
class Doc:
    """Description of a field."""

    text: str

    def __get_pydantic_json_schema__(self, core_schema: Any, handler: Any) -> dict[str, Any]:
        """Returns the schema of a field of a pydantic model, with the description."""
        return {**handler(core_schema), "description": self.text}


@dataclass(frozen=True)
class Remedy:
    """Advice about a value that is out of bounds, for messages."""

    text: str


@dataclass(frozen=True)
class FieldFacts:
    """A field of a dataclass.

    Attributes:
        name: Name of the field.
        kind: Its type without None.
        default: Its default; MISSING, or the like of pydantic, if it is required.
        metadata: All metadata of its annotation.
    """

    name: str
    kind: Any
    default: Any
    metadata: tuple[Any, ...]

    @property
    def help(self) -> str:
        """Description."""
        return next((entry.text for entry in self._of(Doc)), "")

    @property
    def bounds(self) -> dict[str, Any]:
        """Minimum and maximum as `typer.Option` takes them; an exclusive minimum counts as an inclusive one."""
        minimum = next((entry.gt if isinstance(entry, Gt) else entry.ge for entry in self._of(Ge, Gt)), None)
        return {"min": minimum, "max": next((entry.le for entry in self._of(Le)), None)}

    def problem(self, value: Any) -> str:
        """Returns what is wrong about a value of the type, and what to do; empty if it is right."""
        if get_origin(self.kind) is Literal:
            choices = get_args(self.kind)
            return "" if value in choices else f"is unknown; choose one of {', '.join(choices)}"
        wrong = "is not a finite number" if self.kind is float and not math.isfinite(value) else ""
        for entry in self._of(Ge, Gt, Le):
            match entry:
                case Ge(ge=bound) if value < bound:
                    wrong = f"is below {bound}"
                case Gt(gt=bound) if value <= bound:
                    wrong = f"is not above {bound}"
                case Le(le=bound) if value > bound:
                    wrong = f"is above {bound}"
                case _:
                    pass
        remedy = next((entry.text for entry in self._of(Remedy)), f"choose e.g. {self.default or self.bounds['min']}")
        return wrong and f"{wrong}; {remedy}"

    def _of(self, *kinds: type) -> list[Any]:
        return [entry for entry in self.metadata if isinstance(entry, kinds)]


@cache
def facts_of(config: type) -> dict[str, FieldFacts]:
    """Returns the fields of a dataclass, or of a pydantic model, by name."""
    hints = get_type_hints(config, include_extras=True)
    known = getattr(config, "model_fields", None) or {field.name: field for field in fields(config)}
    return {name: _facts(name, field.default, hints[name]) for name, field in known.items()}


def check_bounds(config: Any) -> None:
    """Checks that the fields of a dataclass are within their bounds, and choices among them.

    Raises:
        ConfigError: One is not.
    """
    for name, facts in facts_of(type(config)).items():
        value = getattr(config, name)
        if value is not None and (problem := facts.problem(value)):
            raise ConfigError(f"{name}={value!r} {problem}")


def _facts(name: str, default: Any, hint: Any) -> FieldFacts:
    metadata: list[Any] = []
    while True:
        if get_origin(hint) is Annotated:
            hint, *more = get_args(hint)
            metadata += more
        elif get_origin(hint) in (Union, UnionType) and NoneType in get_args(hint):
            hint = next(kind for kind in get_args(hint) if kind is not NoneType)
        else:
            return FieldFacts(name, hint, default, tuple(metadata))
