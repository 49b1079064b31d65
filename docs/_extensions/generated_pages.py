"""Writes the pages of the reference that come from the code: options and their keys.

They are written to `docs/reference/_generated` before Sphinx reads the pages, and are not kept in git.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

FOLDER = Path(__file__).resolve().parents[1] / "reference" / "_generated"


def command_pages() -> dict[str, str]:
    """Returns a page for each command of the program."""
    import typer

    from transformer.cli.app import COMMANDS, make_app

    group: Any = typer.main.get_command(make_app(COMMANDS))
    return {f"commands/{name}.md": command_page(name, group.commands[name]) for name in COMMANDS}


def command_page(name: str, command: Any) -> str:
    """Describes one command in Markdown: usage, text, arguments and options."""
    parameters = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    arguments = [parameter for parameter in parameters if parameter.param_type_name == "argument"]
    options = [parameter for parameter in parameters if parameter.param_type_name == "option"]
    with command.make_context(f"transformer {name}", [], resilient_parsing=True) as context:
        usage = re.sub(r"\{(\w+)\}", lambda name: name[1].upper(), command.get_usage(context).removeprefix("Usage: "))
        rows = [(parameter, parameter.get_help_record(context)) for parameter in options]
        places = [(argument.display_name_raw.upper(), argument.help or "") for argument in arguments]
    lines = [f"# transformer {name}", "", "```text", usage.strip(), "```", "", _prose(command.help or ""), ""]
    for heading, cells in (
        ("Arguments", [(f"`{place}`", text) for place, text in places]),
        ("Options", [(f"`{record[0].strip()}`", record[1]) for _, record in rows if record]),
    ):
        if cells:
            lines += [f"## {heading}", ""]
            for left, right in cells:
                lines += [left, f": {_escaped(right) or 'see above'}", ""]
    if command.epilog:
        lines += [_prose(command.epilog), ""]
    return "\n".join(lines)


def recipe_page() -> str:
    """Returns the page with all keys of a recipe."""
    from transformer.cli.train import recipe_sections

    intro = "All keys of a recipe with their defaults. `transformer recipes --keys` prints the same."
    lines = ["# Recipe keys", "", intro, ""]
    for heading, keys in recipe_sections():
        lines += [f"## {heading}", "", "| key | default | meaning |", "|---|---|---|"]
        lines += [f"| `{key}` | {_escaped(str(default))} | {_escaped(text)} |" for key, default, text in keys]
        lines.append("")
    return "\n".join(lines)


def fields_table(config: type, heading: str = "key", written: Callable[[Any], str] | None = None) -> str:
    """Returns a table of annotated fields; for limits of the server, its last column also tells what clients get."""
    written = written or _toml
    from transformer.options.fields import facts_of
    from transformer.serving.settings import LimitResponse

    lines = [f"| {heading} | default | meaning |", "|---|---|---|"]
    for facts in filter(lambda facts: facts.help, facts_of(config).values()):
        is_shown = isinstance(facts.default, bool | int | float | str | tuple | None)
        default = f"`{written(facts.default)}`" if is_shown else ""
        responses = [f"; beyond it: {entry.text}" for entry in facts.metadata if isinstance(entry, LimitResponse)]
        lines.append(f"| `{facts.name}` | {default} | {_escaped(facts.help)}{''.join(responses)} |")
    return "\n".join([*lines, ""])


def _toml(value: Any) -> str:
    """Returns a default as it is written in a file; a file leaves None out."""
    return "none" if value is None else json.dumps(list(value) if isinstance(value, tuple) else value)


def _prose(text: str) -> str:
    """Returns the text of a command in Markdown: examples as code, and options within sentences too."""
    text = re.sub(r"^Example: (transformer [^\n]+)$", r"```sh\n\1\n```", text, flags=re.MULTILINE)
    parts = re.split(r"(```.*?```|`[^`]*`)", text, flags=re.DOTALL)
    parts[::2] = [re.sub(r"(?<![\w-])(--[a-z][\w-]*)", r"`\1`", part) for part in parts[::2]]
    return "".join(parts)


def _escaped(text: str) -> str:
    parts = _prose(" ".join(text.split())).split("`")
    parts[::2] = [re.sub(r"([<*\[$_|])", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)


def write_pages(app: Sphinx) -> None:
    """Writes the pages that have changed, so that Sphinx reads only those again."""
    (FOLDER / "commands").mkdir(parents=True, exist_ok=True)
    from transformer.options.search import Sampling, Search
    from transformer.options.translation import LoadingOptions
    from transformer.serving.routes.translate_fields import TranslateFields
    from transformer.serving.settings import Limits, ServerSettings

    pages = {
        **command_pages(),
        "recipe-keys.md": recipe_page(),
        "server-settings.md": fields_table(ServerSettings),
        "server-limits.md": fields_table(Limits),
        "request-fields.md": fields_table(TranslateFields, "field", json.dumps),
        "search-options.md": fields_table(Search, "field", repr),
        "sampling-options.md": fields_table(Sampling, "field", repr),
        "loading-options.md": fields_table(LoadingOptions, "argument", repr),
    }
    for path in FOLDER.rglob("*.md"):
        if path.relative_to(FOLDER).as_posix() not in pages:
            path.unlink()
    for name, text in pages.items():
        path = FOLDER / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Writes the pages when a build begins."""
    app.connect("builder-inited", write_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
