"""`transformer serve`: an HTTP server that clients of LibreTranslate, DeepL and OpenAI can use."""

from pathlib import Path
from typing import Annotated, Any

import typer

from transformer.cli.completion import complete_model
from transformer.cli.fields import collects, takes
from transformer.cli.hub import obtain_model
from transformer.cli.verbosity import is_quiet, say, takes_verbosity
from transformer.errors import ConfigError
from transformer.serving.settings import ServerSettings

EPILOG = "Example: transformer serve en-de de-en --port 5000"
PANELS = {
    "Server": ("host", "port"),
    "Models": (
        "workers", "device", "precision", "beam", "preload", "deterministic", "memory_mb", "watch_seconds",
    ),
    "Access": ("keys", "cors", "proxies"),
    "Log": ("log", "log_texts"),
}  # fmt: skip
"""Settings that have options, by their heading in `--help`; the others are set in a file."""


@collects(ServerSettings, PANELS, flags={"proxies": "--proxy"}, metavars={"cors": "ORIGIN", "proxies": "ADDRESS"})
def _settings_of(**options: Any) -> dict[str, Any]:
    return options


@takes_verbosity
@takes("options", _settings_of)
def serve(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME=]MODEL...",
            help="model folders, run folders or names of models, with their names",
            autocompletion=complete_model,
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file with these and all other settings; options override it")
    ] = None,
    new_key: Annotated[
        str | None, typer.Option(help="make a key, print it, add its hash to the file --keys, and exit", metavar="NAME")
    ] = None,
    *,
    options: dict[str, Any],
) -> None:
    """Serve translations over HTTP to clients of LibreTranslate, DeepL and OpenAI, and on a page at /.

    Prints its address when it is ready. SIGTERM or Ctrl-C ends it after all accepted requests are answered, a second
    one at once; SIGHUP loads changed models and keys again.
    """
    if new_key is not None:
        _make_key(new_key, options.get("keys"))
        return
    if is_quiet():
        options = {"log": "none"} | options
    from transformer.serving.configuration import load_settings

    settings = load_settings(config, models or (), options)
    for path in settings.models.values():
        obtain_model(Path(path))
    from transformer.serving.run import run

    run(settings)


def _make_key(name: str, path: Path | None) -> None:
    """Prints a new key and stores its hash."""
    from transformer.serving.keys import add_key

    if path is None:
        raise ConfigError("--new-key needs the file of its hash; add --keys FILE")
    typer.echo(add_key(path, name))
    say(f"added {name} to {path}; the key is not stored and cannot be shown again")
