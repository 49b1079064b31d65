"""Command-line options generated from the annotated fields of a dataclass."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from functools import wraps
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import typer
from annotated_types import DocInfo, Ge, Le

Command = Callable[..., None]


@dataclass(frozen=True)
class FieldFacts:
    """A field of a dataclass.

    Attributes:
        name: Name of the field.
        kind: Its type without None.
        default: Its default; MISSING if it is required.
        help: Description.
        metadata: All metadata of its annotation.
    """

    name: str
    kind: Any
    default: Any
    help: str
    metadata: tuple[Any, ...]

    @property
    def bounds(self) -> dict[str, Any]:
        """Minimum and maximum as `typer.Option` takes them."""
        minimum = next((entry.ge for entry in self.metadata if isinstance(entry, Ge)), None)
        maximum = next((entry.le for entry in self.metadata if isinstance(entry, Le)), None)
        return {"min": minimum, "max": maximum}


def facts_of(config: type) -> list[FieldFacts]:
    """Returns the fields of a dataclass."""
    hints = get_type_hints(config, include_extras=True)
    return [_facts(field, hints[field.name]) for field in fields(config)]


def _facts(field: "Field[Any]", hint: Any) -> FieldFacts:
    metadata: list[Any] = []
    while True:
        if get_origin(hint) is Annotated:
            hint, *more = get_args(hint)
            metadata += more
        elif get_origin(hint) in (Union, UnionType) and NoneType in get_args(hint):
            hint = next(kind for kind in get_args(hint) if kind is not NoneType)
        else:
            break
    text = next((entry.documentation for entry in metadata if isinstance(entry, DocInfo)), "")
    return FieldFacts(field.name, hint, field.default, text, tuple(metadata))


def takes_fields(
    name: str,
    config: type,
    panels: Mapping[str, Sequence[str]],
    flags: Mapping[str, str] | None = None,
    metavars: Mapping[str, str] | None = None,
) -> Callable[[Command], Command]:
    """Decorates a command: replaces one of its parameters by options for fields, whose given values it gets by name.

    Args:
        name: Name of the parameter.
        config: Dataclass with the fields.
        panels: Names of the fields, by the heading of their options in `--help`.
        flags: Option strings that differ from the name of the field.
        metavars: Placeholders of values in `--help`.
    """
    facts = {entry.name: entry for entry in facts_of(config)}
    options = [
        _option(facts[field], panel, (flags or {}).get(field), (metavars or {}).get(field))
        for panel, chosen in panels.items()
        for field in chosen
    ]

    def with_options(command: Command) -> Command:
        others = [p for p in inspect.signature(command).parameters.values() if p.name != name]

        @wraps(command)
        def run(**arguments: Any) -> None:
            values = {option.name: arguments.pop(option.name) for option in options}
            set_values = {
                field: value for field, value in values.items() if value not in (None, []) and value is not False
            }
            command(**arguments, **{name: set_values})

        keywords = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in others]
        run.__signature__ = inspect.Signature([*keywords, *options])  # pyright: ignore[reportAttributeAccessIssue]
        run.__annotations__ = {p.name: p.annotation for p in (*keywords, *options)}
        return run

    return with_options


def _option(facts: FieldFacts, panel: str, flag: str | None, metavar: str | None) -> inspect.Parameter:
    """Returns the parameter of an option that is left out unless it is given."""
    strings = [flag or f"--{facts.name.replace('_', '-')}"]
    kind, text = facts.kind, facts.help
    if get_origin(kind) is tuple:
        kind, text = list[get_args(kind)[0]], f"{text}; may be repeated"
    elif kind is not bool and facts.default not in (None, MISSING, 0, ""):
        text = f"{text} (default: {facts.default})"
    default = False if kind is bool else None
    information = typer.Option(*strings, help=text, metavar=metavar, rich_help_panel=panel, **facts.bounds)
    annotation = Annotated[bool if kind is bool else kind | None, information]
    return inspect.Parameter(facts.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
