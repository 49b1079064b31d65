"""`transformer models`: lists the models on this machine, and removes those that were downloaded."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transformer.storage.disk_space import describe_bytes

if TYPE_CHECKING:
    from transformer.config import JsonObject

EPILOG = "Example: transformer models, then transformer translate en-de"


def models(
    as_json: Annotated[bool, typer.Option("--json", help="print the list as JSON")] = False,
    remove: Annotated[
        str | None, typer.Option(help="remove a published model that is kept on this machine", metavar="NAME")
    ] = None,
) -> None:
    """List the models on this machine, each with its size, license and attribution.

    Their names stand wherever a command takes a model. A model is installed as a Python package with an entry point in
    the group `transformer.models`; a published model is downloaded at its first use, and kept.
    """
    from transformer.bundle.installed import PROJECT_MODELS, installed_models, model_installation_hint  # loads torch
    from transformer.bundle.kept_models import kept_models, remove_kept_model

    if remove is not None:
        typer.echo(f"removed {remove}, {describe_bytes(remove_kept_model(remove))}")
        return
    installed = {
        name: _facts(model.folder, package=model.distribution, license=model.license)
        for name, model in installed_models().items()
    } | {name: _facts(folder) for name, folder in kept_models().items()}
    if as_json:
        typer.echo(json.dumps(installed, ensure_ascii=False, indent=2))
        return
    for name, facts in installed.items():
        typer.echo(name)
        for key, value in facts.items():
            typer.echo(f"  {key:<12} {value}")
    if not installed:
        typer.echo(f"no model is installed; for {PROJECT_MODELS[-1]}, {model_installation_hint(PROJECT_MODELS[-1])}")


def _languages(provenance: "JsonObject") -> str:
    """Returns the languages of a model, or its directions if it has several; empty if they are not recorded."""
    from transformer.bundle.languages import LANGUAGES, pairs_of_provenance  # loads torch

    if pairs := pairs_of_provenance(provenance):
        return ", ".join(map("-".join, pairs))
    return " to ".join(map(str, provenance.get(LANGUAGES, {}).values()))


def _facts(folder: Path, **of_package: str) -> dict[str, str]:
    """Returns what a user should know of a model; only its small files are read.

    Args:
        folder: Folder of the model.
        of_package: Facts of the package that installs it.
    """
    try:
        provenance = json.loads((folder / "provenance.json").read_bytes())
    except (OSError, ValueError):
        again = "install" if of_package else "remove and download"
        return {**of_package, "folder": str(folder), "problem": f"damaged; {again} it again"}
    data, published = provenance.get("recipe", {}).get("data", {}), provenance.get("imported", {})
    scores = provenance.get("validation", {}).get("scores", {})
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    facts = {
        "package": of_package.get("package", ""),
        "published": f"{published['host']}, revision {published['revision'][:12]}" if "revision" in published else "",
        "languages": _languages(provenance),
        "size": f"{size / 1e6:.1f} MB",
        "scores": ", ".join(f"{name} {value:.1f}" for name, value in scores.items()),
        "license": of_package.get("license", published.get("license", "")),
        "data": "; ".join(filter(None, (data.get("attribution"), data.get("license")))),
        "folder": str(folder),
    }
    return {key: value for key, value in facts.items() if value}
