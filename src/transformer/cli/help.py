"""The pages of `--help`: plain text, since colours load slowly, with the options that most people need first."""

from collections.abc import Mapping
from typing import Any, Final

import typer
from typer.core import TyperCommand

from transformer.cli.usage import PROGRAM

HELP: Final = ("-h", "--help")

FIRST: Final[Mapping[str, tuple[str, ...]]] = {
    "translate": (
        "input_path", "output_path", "beam", "n_best", "as_json", "glossary", "protect", "source_language",
        "target_language", "quiet",
    ),
    "evaluate": (
        "source", "reference", "translations", "output", "metrics", "beam", "details", "report", "as_json", "quiet",
    ),
    "generate": (
        "input_path", "output_path", "max_tokens", "sample", "temperature", "top_p", "seed", "n_best", "as_json",
        "quiet",
    ),
    "quantize": ("source", "reference", "output_path", "tolerance", "beam", "workers", "as_json", "quiet"),
}  # fmt: skip
"""Options that stand first in the help of commands with many; "help" follows them."""
MORE: Final = "More options"


class HelpfulCommand(TyperCommand):
    """A command whose help shows its options under the headings of their panels."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes arguments and options."""
        first = FIRST.get(self.name or "", ())
        first = (*first, "help") if first else ()
        rows: dict[str, dict[str, Any]] = {"Arguments": {}, "Options": dict.fromkeys(first), MORE: {}}
        for parameter in self.get_params(ctx):
            panel = getattr(parameter, "rich_help_panel", None) or (MORE if first else "Options")
            if parameter.param_type_name == "argument":
                panel = "Arguments"
            elif parameter.name in first:
                panel = "Options"
            if record := parameter.get_help_record(ctx):
                rows.setdefault(panel, {})[parameter.name] = record
        for heading, records in rows.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl([record for record in records.values() if record])


def command_help(app: typer.Typer, name: str) -> str:
    """Returns the help of a command, or of the program, without parsing arguments, for which typer loads pydantic."""
    group: Any = typer.main.get_command(app)
    command = group.commands[name] if name else group
    context = typer.Context(command, info_name=f"{PROGRAM} {name}".strip(), help_option_names=[*HELP])
    return command.get_help(context)
