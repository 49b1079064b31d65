"""`transformer info`: describes a model, or lists the families and presets."""

from pathlib import Path
from typing import Annotated, Any

import typer

from transformer.errors import printable
from transformer.models import family, family_names

FLOPS_LENGTH = 32


def info(
    model: Annotated[
        Path | None,
        typer.Argument(
            help="model folder, run folder, Hugging Face folder, or name of a family; lists all families if not given"
        ),
    ] = None,
) -> None:
    """Show architecture, parameters per block, FLOPs per token, tokenizer and scores; or list families and presets.

    For a family, it lists the keys of a recipe's `model` section. Example: transformer info runs/first
    """
    if model is None:
        _families()
        return
    if str(model) in family_names() and not model.exists():
        fields = family(str(model)).config.model_fields
        _table(
            f"{model}: keys of the model section",
            {name: f"{field.default}  {field.description or ''}" for name, field in fields.items()},
        )
        return
    from transformer.models.parameter_count import flops_per_token, parameters_by_block
    from transformer.pipelines.auto import read_model  # loads torch

    bundle = read_model(model, "float32")
    plain = family(bundle.family).build(bundle.config)  # packed weights cannot be counted by block
    facts = {"folder": bundle.folder or model, "precision": bundle.precision, "kind": family(bundle.family).kind}
    _table("model", {**facts, **bundle.config.model_dump()})
    sizes = parameters_by_block(plain)
    _table("parameters", {name: f"{size:,}" for name, size in [*sizes.items(), ("total", sum(sizes.values()))]})
    if flops := flops_per_token(plain, FLOPS_LENGTH):
        _table(
            f"FLOPs per token at {FLOPS_LENGTH} tokens (forward)",
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
    origin = {
        name: provenance.get(name)
        for name in ("step", "languages", "max_source_tokens", "created", "versions", "imported")
    }
    if "averaged" in provenance:
        origin["step"] = "mean of " + ", ".join(str(source["step"]) for source in provenance["averaged"])
    _table("origin", {name: value for name, value in origin.items() if value is not None})


def _families() -> None:
    """Prints each family with its kind, the published models that it reads, and the sizes of its presets."""
    for name in family_names():
        family_info = family(name)
        types = ", ".join(family_info.published_types())
        published = f"; reads published {types}" if types else "; exported as Marian (post-norm) or Pegasus (pre-norm)"
        sizes = {
            preset: ", ".join(f"{key} {value}" for key, value in values.items())
            for preset, values in family_info.presets().items()
        }
        _table(f"{name}: {family_info.kind}{published}", sizes)
    typer.echo("next: transformer info FAMILY lists the model keys of a family")


def _table(title: str, rows: dict[str, Any]) -> None:
    typer.echo(title)
    width = max(map(len, rows), default=0)
    for name, value in rows.items():
        typer.echo(f"  {printable(f'{name:<{width}}  {value}')}")
