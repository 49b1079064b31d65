"""`transformer info`: describes a model, or lists the families and presets."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, TypedDict, TypeVar

import typer

from transformer.cli.arguments import JsonObjectOption
from transformer.cli.completion import complete_model
from transformer.cli.hub import obtain_model
from transformer.config import JsonObject
from transformer.errors import printable
from transformer.models import family, family_names

FLOPS_LENGTH = 32
DIGITS = {"loss": 4, "perplexity": 4}
"""Decimal places of scores; others have two, as in the literature."""
Facts = TypeVar("Facts")


class ModelFacts(TypedDict):
    """All facts about a model."""

    model: dict[str, object]
    parameters: dict[str, int]
    shared: dict[str, str]
    flops_per_token: dict[str, float]
    tokenizer: dict[str, str]
    validation: JsonObject
    origin: Mapping[str, object]


class FamilyFacts(TypedDict):
    """A family of models: its kind, the published models that it reads, and its presets."""

    kind: str
    published: list[str]
    presets: dict[str, dict[str, object]]


class FamilyKeys(TypedDict):
    """The keys of the `model` section for a family, each with its default and description."""

    family: str
    keys: dict[str, dict[str, object]]


def info(
    model: Annotated[
        Path | None,
        typer.Argument(
            help="model folder, run folder, Hugging Face folder, or name of a family; lists all families if not given",
            autocompletion=complete_model,
        ),
    ] = None,
    as_json: JsonObjectOption = False,
) -> None:
    """Show architecture, parameters per block, FLOPs per token, tokenizer and scores; or list families and presets.

    For a family, it lists the keys of a recipe's `model` section.

    Example: transformer info runs/first
    """
    if model is None:
        _report(_families(), _print_families, as_json=as_json)
    elif str(model) in family_names() and not model.exists():
        _report(_keys(str(model)), _print_keys, as_json=as_json)
    else:
        _report(_model(model), _print_model, as_json=as_json)


def _report(described: Facts, show: Callable[[Facts], None], *, as_json: bool) -> None:
    """Prints facts as JSON, or for readers."""
    if as_json:
        typer.echo(json.dumps(described, ensure_ascii=False, default=str))
    else:
        show(described)


def _keys(name: str) -> FamilyKeys:
    fields = family(name).config.model_fields
    keys: dict[str, dict[str, object]] = {
        key: {"default": None if field.is_required() else field.default, "description": field.description or ""}
        for key, field in fields.items()
    }
    return {"family": name, "keys": keys}


def _print_keys(described: FamilyKeys) -> None:
    rows = {name: f"{_shown(key['default'])}  {key['description']}" for name, key in described["keys"].items()}
    _table(f"{described['family']}: keys of the model section", rows)


def _model(path: Path) -> ModelFacts:
    """Returns all facts about a model, figures as they are stored."""
    from transformer.bundle.languages import recorded_pairs
    from transformer.models.parameter_count import flops_per_token, parameters_by_block, shared_blocks
    from transformer.pipelines.auto import read_model  # loads torch

    bundle = read_model(obtain_model(path), "float32")
    plain = family(bundle.family).build(bundle.config)  # packed weights cannot be counted by block
    facts = {"folder": str(bundle.folder or path), "precision": bundle.precision, "kind": family(bundle.family).kind}
    sizes, provenance = parameters_by_block(plain), bundle.provenance
    origin = {
        name: provenance.get(name)
        for name in ("step", "languages", "max_source_tokens", "created", "versions", "imported")
    }
    if pairs := recorded_pairs(bundle):
        origin["languages"] = ", ".join("-".join(pair) for pair in pairs)
    if "averaged" in provenance:
        origin["step"] = "mean of " + ", ".join(str(source["step"]) for source in provenance["averaged"])
    return {
        "model": {**facts, **bundle.config.model_dump()},
        "parameters": {**sizes, "total": sum(sizes.values())},
        "shared": shared_blocks(plain),
        "flops_per_token": flops_per_token(plain, FLOPS_LENGTH),
        "tokenizer": {"kind": str(bundle.text)} if bundle.text else {},
        "validation": provenance.get("validation", {}),
        "origin": origin,
    }


def _print_model(described: ModelFacts) -> None:
    facts = described["model"]
    if facts.get("encoder_layers") and facts.get("decoder_layers"):
        facts = {name: value for name, value in facts.items() if name != "N"}  # which neither stack then has
    _table("model", facts)
    shared = {name: f"shared with {owner}" for name, owner in described["shared"].items()}
    _table("parameters", {**{name: f"{size:,}" for name, size in described["parameters"].items()}, **shared})
    flops = {name: f"{value / 1e6:,.2f} million" for name, value in described["flops_per_token"].items()}
    _table(f"FLOPs per token at {FLOPS_LENGTH} tokens (forward)", flops)
    _table("tokenizer", described["tokenizer"])
    validation = described["validation"]
    signatures = validation.get("signatures", {})
    scores = {
        name: f"{_rounded(name, value)}   {signatures.get(name, '')}".rstrip()
        for name, value in validation.get("scores", {}).items()
    }
    _table(f"validation at step {validation['step']}" if "step" in validation else "validation", scores)
    _table("origin", described["origin"])


def _rounded(name: str, value: object) -> str:
    return f"{value:.{DIGITS.get(name, 2)}f}" if isinstance(value, float) else str(value)


def _families() -> dict[str, FamilyFacts]:
    return {
        name: {
            "kind": family(name).kind,
            "published": list(family(name).published_types()),
            "presets": {preset: dict(values) for preset, values in family(name).presets().items()},
        }
        for name in family_names()
    }


def _print_families(families: Mapping[str, FamilyFacts]) -> None:
    for name, facts in families.items():
        types = ", ".join(facts["published"])
        published = f"; reads published {types}" if types else "; exported as Marian (post-norm) or Pegasus (pre-norm)"
        typer.echo(f"{name}: {facts['kind']}{published}")
        _rows(facts["presets"])
    typer.echo("next: transformer info FAMILY lists the model keys of a family")


def _table(title: str, rows: Mapping[str, object]) -> None:
    """Prints the rows that have a value under a title, if there are any."""
    known = {name: value for name, value in rows.items() if value is not None}
    if known:
        typer.echo(title)
        _rows(known)


def _rows(rows: Mapping[str, object]) -> None:
    width = max(map(len, rows), default=0)
    for name, value in rows.items():
        typer.echo(f"  {printable(f'{name:<{width}}  {_shown(value)}')}")


def _shown(value: object) -> str:
    """Returns a value as users write it: no words of Python."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_shown(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(_shown, value)) or "-"
    return str(value)
