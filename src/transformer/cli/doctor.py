"""`transformer doctor`: describes this installation and this machine."""

import json
import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import typer

EPILOG = "Example: transformer doctor, to see why translation is slow, or to report a bug"
LIBRARIES = ("torch", "numpy", "tokenizers", "safetensors", "pydantic", "sacrebleu", "matplotlib", "sentencepiece")


def doctor(as_json: Annotated[bool, typer.Option("--json", help="print the facts as JSON")] = False) -> None:
    """Print versions, processor, compiled kernels, GPU, threads, memory and installed models.

    Ends with what could be better, and how.
    """
    sections = _sections()
    advice = _advice()
    if as_json:
        typer.echo(json.dumps({**sections, "advice": advice}, ensure_ascii=False, indent=2))
        return
    for title, facts in sections.items():
        typer.echo(title)
        for key, value in facts.items():
            typer.echo(f"  {key:<14} {value}")
    typer.echo("\n".join(advice) or "all is well")


def _sections() -> dict[str, dict[str, object]]:
    import torch

    from transformer.bundle.installed import installed_models
    from transformer.kernels.library import ENVIRONMENT_VARIABLE, INSTRUCTION_SETS, instruction_set
    from transformer.runtime.machine import machine
    from transformer.training.planning.memory import available_bytes

    facts = machine()
    kernels, chosen = instruction_set(), os.environ.get(ENVIRONMENT_VARIABLE)
    available = available_bytes(torch.device("cpu"))
    return {
        "versions": {
            "transformer": f"{version('transformer')} in {Path(__file__).parents[1]}",
            "python": f"{platform.python_version()} in {sys.prefix}",
            **{name: _version(name) for name in LIBRARIES},
        },
        "machine": {
            **{key.replace("memory_gib", "memory in GiB"): value for key, value in facts.items() if key != "kernels"},
            "free": "unknown" if available is None else f"{available / 2**30:.1f} GiB",
        },
        "kernels": {
            "in use": f"{kernels}: {INSTRUCTION_SETS[kernels]}" if kernels else "none; PyTorch computes",
            **({"set by": f"{ENVIRONMENT_VARIABLE}={chosen}"} if chosen else {}),
        },
        "models": {name: model.distribution for name, model in installed_models().items()},
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _advice() -> list[str]:
    from transformer.cli.kernel_note import missing_kernels_note

    note = missing_kernels_note()
    return [note] if note else []
