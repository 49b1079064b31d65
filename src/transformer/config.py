"""Base class of every configuration: immutable, strict about unknown keys, convertible to and from JSON."""

import json
import os
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Final, Self

from annotated_types import Ge, Le
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from transformer.errors import TransformerError

MAX_SHOWN: Final = 80
"""Maximum number of characters of a wrong value in a message."""
RULES: Final = {
    "greater_than": "greater than {gt}", "greater_than_equal": "greater than or equal to {ge}",
    "less_than": "less than {lt}", "less_than_equal": "less than or equal to {le}", "finite_number": "a finite number",
    "literal_error": "{expected}", "none_required": "unset", "string_pattern_mismatch": "of the form {pattern}",
    "too_short": "a list of at least {min_length}", "too_long": "a list of at most {max_length}",
    **dict.fromkeys(("int_type", "int_parsing", "int_parsing_size", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    **dict.fromkeys(("string_type", "string_unicode"), "text"),
    **dict.fromkeys(("tuple_type", "list_type"), "a list"),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type", "dataclass_type"), "a table of keys"),
}  # fmt: skip
"""Rule that a value breaks, by type of pydantic's error."""
MAX_PROCESSORS: Final = 1024
"""Maximum number of threads or worker processes: more than any machine has processors."""
MAX_LAYERS: Final = 1000
"""Maximum number of layers of a stack, each of which takes 0.1 s and 60 KB even if it has hardly any parameters."""
Processors = Annotated[int, Ge(1), Le(MAX_PROCESSORS)]
Layers = Annotated[int, Field(ge=1, le=MAX_LAYERS)]
Seconds = Annotated[float, Field(gt=0, le=366 * 24 * 3600)]


JsonObject = Mapping[str, Any]
"""A JSON object that another program wrote: its values have any type, and each reader checks those that it reads."""


class Config(BaseModel):
    """Immutable values that are validated once, when they enter the program; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def updated(self, **values: object) -> Self:
        """Returns a copy with some values replaced, which is validated as a whole."""
        return type(self).model_validate({**self.model_dump(), **values})


def describe_problems(error: ValidationError, max_depth: int | None = None, tables: Collection[str] = ()) -> str:
    """Describes in one line which values break which rules, in this program's words.

    Args:
        error: Error of a validation.
        max_depth: Number of leading names of a key that are shown; list indices are always shown.
        tables: Keys of this many names whose value is a table, so that the names of its keys are shown too.
    """
    rules: dict[str, list[str]] = {}
    for entry in error.errors(include_url=False):
        is_table = ".".join(map(str, entry["loc"][:max_depth])) in tables
        subject, rule = _describe(entry, None if is_table else max_depth)
        rules.setdefault(subject, []).append(rule)
    return "; ".join(_join(subject, list(dict.fromkeys(broken))) for subject, broken in rules.items())


def describe_error(error: Exception) -> str:
    """Describes an error in the content of a file, in this program's words."""
    match error:
        case TransformerError():
            return str(error)
        case ValidationError():
            return describe_problems(error)
        case json.JSONDecodeError():
            return f"it is not JSON from line {error.lineno}, column {error.colno} on"
        case UnicodeError():
            return "its text is not UTF-8"
        case KeyError():
            return f"{' '.join(map(str, error.args))} is missing"[:MAX_SHOWN]
        case RecursionError():
            return "it is nested too deeply"
        case OSError() if error.errno:
            return os.strerror(error.errno)
        case _:
            return "its parts do not fit together"


def _describe(entry: ErrorDetails, max_depth: int | None) -> tuple[str, str]:
    """Returns the subject of a problem, and the rule that it breaks; some subjects need none."""
    location = enumerate(entry["loc"])
    key = ".".join(str(part) for n, part in location if max_depth is None or n < max_depth or isinstance(part, int))
    kind = entry["type"]
    if kind == "value_error":
        return entry["msg"].removeprefix("Value error, "), ""
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"{key} is not a known key", ""
    if kind == "missing":
        return f"{key} is missing", ""
    if kind == "json_invalid":
        return "it is not JSON", ""
    shown = repr(entry["input"])
    shown = shown if len(shown) <= MAX_SHOWN else f"{shown[:MAX_SHOWN]}..."
    return f"{key or 'it'}={shown}", RULES.get(kind, "of another type").format(**entry.get("ctx", {}))


def _join(subject: str, rules: list[str]) -> str:
    """Joins the rules of one value, each of which would do if the value may be of several types."""
    return f"{subject} must be {' or '.join(rules)}" if any(rules) else subject
