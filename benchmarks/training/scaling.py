"""How the validation loss falls with the size of the model and of the corpus.

Three sizes of model are trained on three sizes of corpus for the same number of steps, and the lowest validation loss
of each run is recorded. `transformer plot scaling FILE` draws the result. With the same --folder, an interrupted
benchmark resumes.

Usage: python benchmarks/training/scaling.py --data ../shared/data/tatoeba-en-de --source en --target de --out FILE
The folder holds `train` and `valid` files of both languages.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from report import command_line, hardware

from transformer.bundle import load_bundle
from transformer.run.recipe import parse_recipe
from transformer.run.train import train

WIDTHS = (32, 64, 128)
PAIRS = (5_000, 20_000, 80_000)


def cut(source: Path, target: Path, n: int) -> str:
    """Writes the first lines of a file and returns the path of the part."""
    lines = source.read_text(encoding="utf-8").split("\n")[:n]
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    return str(target)


def measure(folder: Path, arguments: argparse.Namespace, width: int, pairs: int) -> dict[str, Any]:
    """Trains one model, and returns its size, its corpus and its lowest validation loss."""
    data: dict[str, Any] = {}
    for side, language in (("source", arguments.source), ("target", arguments.target)):
        corpus = folder / f"corpus-{pairs}"
        data[side] = cut(arguments.data / f"train.{language}", corpus / f"train.{language}", pairs)
        data[f"validation_{side}"] = cut(arguments.data / f"valid.{language}", corpus / f"valid.{language}", 500)
    recipe = {
        "data": data,
        "tokenizer": {"vocab_size": 4000},
        "model": {"d_model": width, "N": 2, "h": 4, "d_ff": 2 * width, "dropout": 0.1},
        "training": {
            "max_steps": arguments.steps, "batch_tokens": 4096, "warmup_steps": arguments.steps // 5,
            "validate_every": max(1, arguments.steps // 5), "save_every": max(1, arguments.steps // 5),
            "best_metric": "loss", "patience": 0, "threads": 1,
        },
    }  # fmt: skip
    run = folder / f"run-{width}-{pairs}"
    train(parse_recipe(recipe), run, quiet=True)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    loss = min(row["loss"] for row in rows if row["kind"] == "validation")
    parameters = sum(parameter.numel() for parameter in load_bundle(run).model.parameters())
    return {"d_model": width, "parameters": parameters, "pairs": pairs, "loss": loss}


def main() -> None:
    """Trains all sizes and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--source", default="en")
    parser.add_argument("--target", default="de")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--widths", type=int, nargs="+", default=WIDTHS)
    parser.add_argument("--pairs", type=int, nargs="+", default=PAIRS)
    parser.add_argument("--folder", type=Path, help="where runs are kept; a temporary one if not given")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        runs = [measure(folder, arguments, width, pairs) for pairs in arguments.pairs for width in arguments.widths]
    facts = {"command": command_line(), "hardware": hardware(torch.device("cpu")), "spread": "one run each, one seed"}
    arguments.out.write_text(json.dumps(facts | {"runs": runs}, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(runs, indent=1))


if __name__ == "__main__":
    main()
