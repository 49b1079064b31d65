"""Command-line options generated from the annotated fields of a dataclass."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING
from functools import wraps
from typing import Annotated, Any, get_args, get_origin

import typer

from transformer.options.fields import FieldFacts, facts_of

Command = Callable[..., None]


def option(config: type, name: str, *flags: str, panel: str | None = None, metavar: str | None = None) -> Any:
    """Returns the `typer.Option` of a field, for a parameter whose default is that of the field or None.

    Args:
        config: Dataclass with the field.
        name: Name of the field.
        flags: Option strings that differ from the name of the field.
        panel: Heading of the option in `--help`.
        metavar: Placeholder of the value in `--help`.
    """
    facts = facts_of(config)[name]
    string = f"--{name.replace('_', '-')}"
    default = f"{string}/--no-{string[2:]}" if facts.default is True else string
    option_info = typer.Option(*(flags or (default,)), help=_help_of(facts), metavar=metavar, **facts.bounds)
    option_info.rich_help_panel, option_info.show_default = panel, False
    return option_info


def collects(
    config: type,
    panels: Mapping[str, Sequence[str]],
    flags: Mapping[str, str] | None = None,
    metavars: Mapping[str, str] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorates a function: adds a command-line option for each field, and passes on the values that were given.

    Args:
        config: Dataclass with the fields.
        panels: Names of the fields, by the heading of their options in `--help`.
        flags: Option strings that differ from the name of the field.
        metavars: Placeholders of values in `--help`.
    """
    flags, metavars, facts = flags or {}, metavars or {}, facts_of(config)
    options = [
        _parameter(
            facts[name], option(config, name, *filter(None, [flags.get(name)]), panel=panel, metavar=metavars.get(name))
        )
        for panel, names in panels.items()
        for name in names
    ]
    defaults = {parameter.name: parameter.default for parameter in options}

    def with_options(make: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(make)
        def run(**arguments: Any) -> Any:
            is_left_out = {name: value == [] or value is defaults.get(name, ...) for name, value in arguments.items()}
            return make(**{name: value for name, value in arguments.items() if not is_left_out[name]})

        set_signature(run, [*parameters_of(make), *options])
        return run

    return with_options


def takes(name: str, make: Callable[..., object], panel: str | None = None) -> Callable[[Command], Command]:
    """Decorates a command: replaces one of its parameters with the options that its value is built from.

    Args:
        name: Name of the parameter.
        make: Function that builds the value; its parameters become the options.
        panel: Heading in `--help` of those options that have none.
    """
    options = parameters_of(make)
    for parameter in options:
        option_info = get_args(parameter.annotation)[-1]
        option_info.rich_help_panel = option_info.rich_help_panel or panel

    def with_options(command: Command) -> Command:
        @wraps(command)
        def run(**arguments: object) -> None:
            value = make(**{option.name: arguments.pop(option.name) for option in options})
            command(**arguments, **{name: value})

        set_signature(run, [*(parameter for parameter in parameters_of(command) if parameter.name != name), *options])
        return run

    return with_options


def parameters_of(function: Callable[..., object]) -> list[inspect.Parameter]:
    """Returns the named parameters of a function as keyword-only parameters."""
    return [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]


def set_signature(function: Callable[..., Any], parameters: Sequence[inspect.Parameter]) -> None:
    """Sets the parameters of a function that `inspect` and typer see."""
    function.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}


def _help_of(facts: FieldFacts) -> str:
    if get_origin(facts.kind) is tuple:
        return f"{facts.help}; may be repeated"
    is_shown = facts.kind is not bool and facts.default not in (None, MISSING, 0, "") and "default" not in facts.help
    return f"{facts.help} (default: {facts.default})" if is_shown else facts.help


def _parameter(facts: FieldFacts, option_info: Any) -> inspect.Parameter:
    """Returns the parameter of an option; its default, None or False, means that the option was not given."""
    kind = list[get_args(facts.kind)[0]] if get_origin(facts.kind) is tuple else facts.kind
    default = False if facts.default is False else None
    annotation = Annotated[bool if default is False else kind | None, option_info]
    return inspect.Parameter(facts.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
