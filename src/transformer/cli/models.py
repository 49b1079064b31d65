"""`transformer models`: lists the models that are installed."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from transformer.bundle.installed import InstalledModel

EPILOG = "Example: transformer models, then transformer translate en-de"


def models(as_json: Annotated[bool, typer.Option("--json", help="print the list as JSON")] = False) -> None:
    """List the models that are installed, each with its size, license and attribution.

    Their names stand wherever a command takes a model. A model is installed as a Python package with an entry point in
    the group `transformer.models`.
    """
    from transformer.bundle.installed import PROJECT_MODELS, installed_models, model_installation_hint  # loads torch

    installed = {name: _facts(model) for name, model in installed_models().items()}
    if as_json:
        typer.echo(json.dumps(installed, ensure_ascii=False, indent=2))
        return
    for name, facts in installed.items():
        typer.echo(name)
        for key, value in facts.items():
            typer.echo(f"  {key:<12} {value}")
    if not installed:
        typer.echo(f"no model is installed; for {PROJECT_MODELS[-1]}, {model_installation_hint(PROJECT_MODELS[-1])}")


def _facts(model: "InstalledModel") -> dict[str, str]:
    """Returns what a user should know of a model; only its small files are read."""
    try:
        provenance = json.loads((model.folder / "provenance.json").read_bytes())
    except (OSError, ValueError):
        return {"package": model.distribution, "folder": str(model.folder), "problem": "damaged; install it again"}
    data = provenance.get("recipe", {}).get("data", {})
    scores = provenance.get("validation", {}).get("scores", {})
    size = sum(path.stat().st_size for path in model.folder.rglob("*") if path.is_file())
    facts = {
        "package": model.distribution,
        "languages": " to ".join(provenance.get("languages", {}).values()),
        "size": f"{size / 1e6:.1f} MB",
        "scores": ", ".join(f"{name} {value:.1f}" for name, value in scores.items()),
        "license": model.license,
        "data": "; ".join(filter(None, (data.get("attribution"), data.get("license")))),
        "folder": str(model.folder),
    }
    return {key: value for key, value in facts.items() if value}
