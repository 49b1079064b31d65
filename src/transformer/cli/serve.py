"""`transformer serve`: an HTTP server that clients of LibreTranslate, DeepL and OpenAI can use."""

from pathlib import Path
from typing import Annotated

import typer

from transformer.cli.verbosity import is_quiet, say, takes_verbosity
from transformer.errors import ConfigError

EPILOG = "Example: transformer serve en-de de-en --port 5000"
SERVER, MODELS, ACCESS, LOG = "Server", "Models", "Access", "Log"


@takes_verbosity
def serve(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME=]MODEL...", help="model folders, run folders or names of installed models, with their names"
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(help="address to listen on; 127.0.0.1 if not given", rich_help_panel=SERVER),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(help="port; 0 chooses a free one; 5000 if not given", min=0, max=65535, rich_help_panel=SERVER),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="TOML file with these and all other settings; options override it", rich_help_panel=SERVER),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            help="processes that compute for each model; one per processor core if not given",
            min=1,
            max=64,
            rich_help_panel=MODELS,
        ),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="'auto' (default), 'cpu' or 'cuda'", rich_help_panel=MODELS)
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(help="'auto' (default), 'float32', 'bf16' or 'int8'", rich_help_panel=MODELS),
    ] = None,
    beam: Annotated[
        int | None, typer.Option(help="beam size where a request names none", min=1, rich_help_panel=MODELS)
    ] = None,
    preload: Annotated[
        bool, typer.Option("--preload", help="load all models before the first request", rich_help_panel=MODELS)
    ] = False,
    deterministic: Annotated[
        bool,
        typer.Option(
            "--deterministic",
            help="translate each line alone, so that answers do not depend on other requests",
            rich_help_panel=MODELS,
        ),
    ] = False,
    memory_mb: Annotated[
        int | None,
        typer.Option(help="unload the least recently used models above this memory", min=0, rich_help_panel=MODELS),
    ] = None,
    watch_seconds: Annotated[
        float | None,
        typer.Option(help="interval in which changed model folders are loaded again", min=0, rich_help_panel=MODELS),
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option(help="file of API keys; without it, everybody may use the server", rich_help_panel=ACCESS),
    ] = None,
    new_key: Annotated[
        str | None,
        typer.Option(
            help="make a key, print it, add its hash to the file --keys, and exit",
            metavar="NAME",
            rich_help_panel=ACCESS,
        ),
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(
            help="origin whose pages may use the server from a browser; * is all; may be repeated",
            metavar="ORIGIN",
            rich_help_panel=ACCESS,
        ),
    ] = None,
    proxy: Annotated[
        list[str] | None,
        typer.Option(
            help="address or network of a reverse proxy whose X-Forwarded-For is trusted; may be repeated",
            metavar="ADDRESS",
            rich_help_panel=ACCESS,
        ),
    ] = None,
    log: Annotated[
        str | None,
        typer.Option(help="log on standard error: 'text' (default), 'json' or 'none'", rich_help_panel=LOG),
    ] = None,
    log_texts: Annotated[
        bool, typer.Option("--log-texts", help="write the texts of requests to the log", rich_help_panel=LOG)
    ] = False,
) -> None:
    """Serve translations over HTTP to clients of LibreTranslate, DeepL and OpenAI, and on a page at /.

    Prints its address when it is ready. SIGTERM or Ctrl-C ends it after all accepted requests are answered, a second
    one at once; SIGHUP loads changed models and keys again.
    """
    from transformer.serving.configuration import load_settings

    if new_key is not None:
        _make_key(new_key, keys)
        return
    options = {
        "host": host, "port": port, "workers": workers, "device": device, "precision": precision, "beam": beam,
        "preload": preload or None, "deterministic": deterministic or None, "memory_mb": memory_mb,
        "watch_seconds": watch_seconds, "keys": keys, "cors": cors or None, "proxies": proxy or None,
        "log": log or ("none" if is_quiet() else None), "log_texts": log_texts or None,
    }  # fmt: skip
    settings = load_settings(config, models or (), options)
    from transformer.serving.run import run

    run(settings)


def _make_key(name: str, path: Path | None) -> None:
    """Prints a new key and stores its hash."""
    from transformer.serving.keys import add_key

    if path is None:
        raise ConfigError("--new-key needs the file of its hash; add --keys FILE")
    typer.echo(add_key(path, name))
    say(f"added {name} to {path}; the key is not stored and cannot be shown again")
