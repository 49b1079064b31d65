"""Accuracy of the memory estimate that a run prints before its first step.

Runs `transformer train` with models and batches of very different shapes and divides the estimate by the peak of the
whole process, including preparation, validation and checkpoints.

Usage: python benchmarks/training/memory_plan.py --corpus SOURCE TARGET --validation SOURCE TARGET [--steps 60]
       [--out FILE]
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import torch
from report import hardware

CASES: Final[dict[str, dict[str, dict[str, Any]]]] = {
    "tiny": {"model": {"preset": "tiny"}, "training": {"batch_tokens": 8192}},
    "tiny, float32": {"model": {"preset": "tiny"}, "training": {"batch_tokens": 8192, "precision": "float32"}},
    "tiny, accumulated, layers computed again": {
        "model": {"preset": "tiny"},
        "training": {"batch_tokens": 16384, "accumulation": 4, "activation_checkpointing": True},
    },
    "16 wide": {"model": {"d_model": 16, "N": 2, "h": 2, "d_ff": 32}, "training": {"batch_tokens": 1024}},
    "16 wide, many tokens": {"model": {"d_model": 16, "N": 2, "h": 2, "d_ff": 32}, "training": {"batch_tokens": 25000}},
    "64 wide, 20,000 words": {
        "tokenizer": {"vocab_size": 20000},
        "model": {"d_model": 64, "N": 2, "h": 4, "d_ff": 128},
        "training": {"batch_tokens": 4096},
    },
    "96 wide, uneven": {
        "tokenizer": {"vocab_size": 3001},
        "model": {"d_model": 96, "N": 5, "h": 3, "d_ff": 161},
        "training": {"batch_tokens": 16384},
    },
    "256 wide, deep": {"model": {"d_model": 256, "N": 8, "h": 4, "d_ff": 512}, "training": {"batch_tokens": 2048}},
    "512 wide, one layer": {
        "tokenizer": {"vocab_size": 20000},
        "model": {"d_model": 512, "N": 1, "h": 8, "d_ff": 2048},
        "training": {"batch_tokens": 512},
    },
    "base": {"model": {"preset": "base"}, "training": {"batch_tokens": 2048}},
}


def toml(value: Any) -> str:
    """A value as a recipe has it."""
    return json.dumps(str(value) if isinstance(value, Path) else value)


def recipe(data: dict[str, Path], case: dict[str, dict[str, Any]], steps: int) -> str:
    """The settings of a case, and for all cases those of a short run."""
    common = {
        "data": data, "tokenizer": {"vocab_size": 6000}, "model": {},
        "training": {"max_steps": steps, "warmup_steps": steps, "validate_every": steps // 2, "save_every": steps // 2},
    }  # fmt: skip
    sections = {name: {**section, **case.get(name, {})} for name, section in common.items()}
    return "\n".join(
        f"[{name}]\n" + "".join(f"{key} = {toml(value)}\n" for key, value in section.items())
        for name, section in sections.items()
    )


def run(folder: Path, data: dict[str, Path], case: dict[str, dict[str, Any]], steps: int) -> dict[str, float]:
    """Trains once; what was said and what was taken, in MiB."""
    (folder / "recipe.toml").write_text(recipe(data, case, steps), encoding="utf-8")
    log = folder / "log"
    command = [sys.executable, "-m", "transformer", "train", folder / "recipe.toml", "--run", folder / "run"]
    with log.open("w") as file, subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    said = re.search(r"memory: about ([\d.]+) GiB", log.read_text())
    if process.returncode or not said:
        raise SystemExit(f"{command} failed:\n{log.read_text()[-3000:]}")
    return {"said_mib": float(said[1]) * 1024, "peak_mib": usage.ru_maxrss / 1024}


def main() -> None:
    """Runs each case and prints the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, nargs=2, required=True)
    parser.add_argument("--validation", type=Path, nargs=2, required=True)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--only", help="cases whose name holds this")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    names: list[str] = ["source", "target", "validation_source", "validation_target"]
    paths = [path.resolve() for path in arguments.corpus + arguments.validation]
    data: dict[str, Path] = dict(zip(names, paths, strict=True))
    figures: dict[str, dict[str, float]] = {}
    for name, case in CASES.items():
        if arguments.only and arguments.only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            outcome = run(Path(folder), data, case, arguments.steps)
        figures[name] = {**outcome, "said_over_peak": outcome["said_mib"] / outcome["peak_mib"]}
        print(f"{name}: {figures[name]}", flush=True)
    result = {
        "command": "python benchmarks/training/memory_plan.py --corpus SOURCE TARGET --validation SOURCE TARGET "
        f"--steps {arguments.steps} --out FILE",
        "hardware": hardware(torch.device("cpu")),
        "versions": {"python": platform.python_version(), "torch": torch.__version__}, "cases": figures,
    }  # fmt: skip
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
