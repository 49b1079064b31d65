"""`transformer info`: what a model is, or which families and presets there are."""

from pathlib import Path
from typing import Annotated, Any

import typer

from transformer.errors import printable
from transformer.models import family, family_names

FLOPS_LENGTH = 32


def info(
    model: Annotated[
        Path | None,
        typer.Argument(help="model folder, run folder, published folder, or a family; lists families if not given"),
    ] = None,
) -> None:
    """Show architecture, parameters by block, FLOPs a token, tokenizer and scores; or all families and presets.

    Of a family, it shows what a recipe's `model` section can set. Example: transformer info runs/first
    """
    if model is None:
        _families()
        return
    if str(model) in family_names() and not model.exists():
        fields = family(str(model)).config.model_fields
        _table(
            f"{model}: keys of model",
            {name: f"{field.default}  {field.description or ''}" for name, field in fields.items()},
        )
        return
    from transformer.models.parameter_count import flops_per_token, parameters_by_block
    from transformer.pipelines.auto import read_model  # loads torch

    bundle = read_model(model, "float32")
    plain = family(bundle.family).build(bundle.config)  # a packed model does not tell
    facts = {"folder": bundle.folder or model, "precision": bundle.precision, "kind": family(bundle.family).kind}
    _table("model", {**facts, **bundle.config.model_dump()})
    sizes = parameters_by_block(plain)
    _table("parameters", {name: f"{size:,}" for name, size in [*sizes.items(), ("total", sum(sizes.values()))]})
    if flops := flops_per_token(plain, FLOPS_LENGTH):
        _table(
            f"FLOPs a token at {FLOPS_LENGTH} tokens (forward)",
            {name: f"{value / 1e6:,.2f} million" for name, value in flops.items()},
        )
    if bundle.text:
        _table("tokenizer", {"kind": str(bundle.text)})
    provenance = bundle.provenance
    validation = provenance.get("validation", {})
    signatures = validation.get("signatures", {})
    scores = {name: f"{value}   {signatures.get(name, '')}" for name, value in validation.get("scores", {}).items()}
    if scores:
        _table(f"validation at step {validation['step']}" if "step" in validation else "validation", scores)
    origin = {name: provenance.get(name) for name in ("step", "max_source_tokens", "created", "versions", "imported")}
    if "averaged" in provenance:
        origin["step"] = "mean of " + ", ".join(str(source["step"]) for source in provenance["averaged"])
    _table("origin", {name: value for name, value in origin.items() if value is not None})


def _families() -> None:
    """Every family: what it is, what it reads, its presets with their sizes."""
    for name in family_names():
        found = family(name)
        types = ", ".join(found.published_types())
        published = f"; reads published {types}" if types else "; exported as Marian (post-norm) or Pegasus (pre-norm)"
        sizes = {
            preset: ", ".join(f"{key} {value}" for key, value in values.items())
            for preset, values in found.presets().items()
        }
        _table(f"{name}: {found.kind}{published}", sizes)
    typer.echo("transformer info FAMILY shows what can be set")


def _table(title: str, rows: dict[str, Any]) -> None:
    typer.echo(title)
    width = max(map(len, rows), default=0)
    for name, value in rows.items():
        typer.echo(f"  {printable(f'{name:<{width}}  {value}')}")
