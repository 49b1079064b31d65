"""`transformer inspect`: shows forward and backward propagation of a model step by step."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transformer.cli.files import check_files, check_image_file
from transformer.cli.hub import obtain_model
from transformer.cli.progress import spinner
from transformer.cli.search import language_of
from transformer.cli.translate import ModelArgument
from transformer.cli.verbosity import say, takes_verbosity
from transformer.errors import ConfigError

if TYPE_CHECKING:
    from transformer.bundle import Bundle

EPILOG = "Example: transformer inspect runs/first 'A man sleeps.' --output page.html"


@takes_verbosity
def inspect(
    model: ModelArgument,
    text: Annotated[str, typer.Argument(help="sentence, or path of an image for models of images")],
    target: Annotated[
        str | None, typer.Option(help="correct translation, label or masked words; the model's own output if not given")
    ] = None,
    output_path: Annotated[
        Path | None, typer.Option("--output", help="write one HTML file instead of serving the page")
    ] = None,
    layers: Annotated[
        str | None,
        typer.Option(help="layers in the file, e.g. 1,6 or all; as many as fit if not given", metavar="LIST"),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(help="port on this machine; 0 (default) chooses a free one", min=0, max=65535, show_default=False),
    ] = None,
    no_open: Annotated[bool, typer.Option("--no-open", help="do not open a browser")] = False,
    target_language: Annotated[
        str | None,
        typer.Option(metavar="TAG", help="language of the translation, which a model of several languages needs"),
    ] = None,
) -> None:
    """See forward and backward propagation of a sentence through a model, step by step, in a browser.

    Shows every operation with its formula, shapes and numbers, the gradient of the loss along the same path, and the
    attention of every layer and head. The page is served on 127.0.0.1 until Ctrl-C; `--output` writes a file that needs
    neither the server nor the model.
    """
    if layers is not None and output_path is None:
        raise ConfigError(f"layers={layers} is for a file, the served page shows all layers; add --output FILE")
    if port is not None and output_path is not None:
        raise ConfigError("--port is for the served page, --output writes a file; leave out one of them")
    check_files([], [output_path])
    from transformer.bundle.kind import model_kind
    from transformer.pipelines.auto import read_model  # loads torch

    if model_kind(obtain_model(model)) == "image encoder":
        check_image_file(Path(text))
    with spinner(f"reading {model}"):
        bundle = read_model(model, None)
    if language := language_of("--target-language", target_language):
        bundle = _to_language(bundle, language)
    if bundle.rounding_note:
        say(bundle.rounding_note)
    if output_path is not None:
        _write(bundle, text, target, output_path, layers)
        return
    from transformer.inspection.server import Inspector, InspectorServer

    with spinner("computing the passes"):
        inspector = Inspector(bundle, text, target)
    try:
        server = InspectorServer(inspector, port or 0)
    except OSError as error:
        raise ConfigError(f"port={port} cannot be used on this machine; choose another, or 0 for a free one") from error
    with server:
        typer.echo(f"{server.address}  (Ctrl-C ends)")
        if not no_open:
            typer.launch(server.address)
        server.serve_forever()


def _to_language(bundle: "Bundle", language: str) -> "Bundle":
    """Returns the model with tokenizers whose sources begin with the tag of a target language, if it has tags.

    Raises:
        ConfigError: The model does not translate, or not to this language.
    """
    from transformer.bundle.languages import recorded_languages
    from transformer.pipelines.translation.directions import known_target

    if bundle.config.kind != "encoder-decoder":
        raise ConfigError(f"a {bundle.family} model does not translate; leave out --target-language")
    tag = known_target(language, bundle.tokenizers, recorded_languages(bundle)[1])
    return replace(bundle, text=bundle.tokenizers.to_language(tag))


def _write(bundle: "Bundle", text: str, target: str | None, output_path: Path, layers: str | None) -> None:
    """Writes the page of a pass to one file."""
    from transformer.inspection.gradient_norms import compared_norms, step_norms
    from transformer.inspection.packing import parse_layers
    from transformer.inspection.page import render
    from transformer.inspection.page_data import page_data
    from transformer.inspection.passes import record_pass
    from transformer.storage.atomic import atomic_file

    with spinner("computing the passes"):
        recorded = record_pass(bundle, text, target)
        data = page_data(recorded, compared_norms(recorded, step_norms))
        numbers = None if layers is None else parse_layers(layers, data.facts)
        page = render(data, layers=numbers).encode()
    with atomic_file(output_path) as file:
        file.write(page)
    typer.echo(f"next: open {output_path} in a browser")
