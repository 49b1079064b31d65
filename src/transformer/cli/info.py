"""`transformer info`: what a model is."""

from typing import Any

import typer

from transformer.cli.translate import ModelArgument

FLOPS_LENGTH = 32


def info(model: ModelArgument) -> None:
    """Show architecture, parameters by block, FLOPs a token, tokenizer and scores.

    Example: transformer info runs/first
    """
    from transformer.bundle import load_bundle
    from transformer.inspection.size import flops_per_token, parameters_by_block
    from transformer.models import family

    bundle = load_bundle(model, packed_in="float32")
    plain = family(bundle.family).build(bundle.config)  # a packed model does not tell
    _table("model", {"folder": bundle.folder, "precision": bundle.precision, **bundle.config.model_dump()})
    sizes = parameters_by_block(plain)
    _table("parameters", {name: f"{size:,}" for name, size in [*sizes.items(), ("total", sum(sizes.values()))]})
    flops = flops_per_token(plain, FLOPS_LENGTH)
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
    _table(f"validation at step {validation['step']}" if "step" in validation else "validation", scores)
    origin = {name: provenance.get(name) for name in ("step", "max_source_tokens", "created", "versions")}
    if "averaged" in provenance:
        origin["step"] = "mean of " + ", ".join(str(source["step"]) for source in provenance["averaged"])
    _table("trained", origin)


def _table(title: str, rows: dict[str, Any]) -> None:
    typer.echo(title)
    width = max(map(len, rows), default=0)
    for name, value in rows.items():
        typer.echo(f"  {name:<{width}}  {value}")
