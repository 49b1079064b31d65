"""How the validation loss falls with the size of the model and of the corpus.

Three sizes of model are trained on three sizes of corpus for the same number of steps, several times from different
seeds. Of each run the lowest validation loss is recorded, without label smoothing and in nats a character: each corpus
has its own tokenizer, so losses a token could not be compared. `transformer plot scaling FILE` draws the result. With
the same --folder, an interrupted benchmark resumes.

Usage: python benchmarks/training/scaling.py --data ../shared/data/tatoeba-en-de --source en --target de --out FILE
The folder holds `train` and `valid` files of both languages.
"""

import argparse
import json
import math
import platform
import statistics
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from report import command_line, hardware

from transformer.bundle import load_bundle
from transformer.run.recipe import parse_recipe
from transformer.run.train import train

WIDTHS = (32, 64, 128)
PAIRS = (2_000, 8_000, 32_000)
SEEDS = (1, 2, 3)


def cut(source: Path, target: Path, n: int) -> str:
    """Writes the first lines of a file and returns the path of the part."""
    lines = source.read_text(encoding="utf-8").split("\n")[:n]
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    return str(target)


def measure(folder: Path, arguments: argparse.Namespace, width: int, pairs: int, seed: int) -> dict[str, Any]:
    """Trains one model, and returns its size and its lowest validation loss."""
    data: dict[str, Any] = {}
    for side, language in (("source", arguments.source), ("target", arguments.target)):
        corpus = folder / f"corpus-{pairs}"
        data[side] = cut(arguments.data / f"train.{language}", corpus / f"train.{language}", pairs)
        data[f"validation_{side}"] = cut(arguments.data / f"valid.{language}", corpus / f"valid.{language}", 150)
    recipe = {
        "data": data,
        "tokenizer": {"vocab_size": 1000},
        "model": {"d_model": width, "N": 2, "h": 4, "d_ff": 2 * width, "dropout": 0.1},
        "training": {
            "max_steps": arguments.steps, "batch_tokens": 2048, "learning_rate": 0.004,
            "warmup_steps": arguments.steps // 5,
            "validate_every": max(1, arguments.steps // 3), "save_every": max(1, arguments.steps // 3),
            "best_metric": "loss", "patience": 0, "threads": 1, "seed": seed,
        },
    }  # fmt: skip
    run = folder / f"run-{width}-{pairs}-{seed}"
    train(parse_recipe(recipe), run, quiet=True)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    perplexity = min(row["perplexity"] for row in rows if row["kind"] == "validation")
    bundle = load_bundle(run)
    lines = Path(data["validation_target"]).read_text(encoding="utf-8").splitlines()
    tokens = sum(len(bundle.tokenizers.target.encode(line)) + 1 for line in lines)  # and the end of the sentence
    return {
        "parameters": sum(parameter.numel() for parameter in bundle.model.parameters()),
        "loss": math.log(perplexity) * tokens / sum(map(len, lines)),
        "perplexity": perplexity,
    }


def main() -> None:
    """Trains all sizes and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--source", default="en")
    parser.add_argument("--target", default="de")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--widths", type=int, nargs="+", default=list(WIDTHS))
    parser.add_argument("--pairs", type=int, nargs="+", default=list(PAIRS))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--folder", type=Path, help="where runs are kept; a temporary one if not given")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    measured: dict[tuple[int, int], list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        for seed in arguments.seeds:
            for pairs in arguments.pairs:
                for width in arguments.widths:
                    run = measure(folder, arguments, width, pairs, seed)
                    measured.setdefault((width, pairs), []).append(run)
                    print(f"d_model {width}, {pairs} pairs, seed {seed}: {run['loss']:.4f}", flush=True)
    runs = [
        {
            "d_model": width, "parameters": repeats[0]["parameters"], "pairs": pairs,
            "loss": statistics.median(one["loss"] for one in repeats), "losses": [one["loss"] for one in repeats],
            "perplexities": [one["perplexity"] for one in repeats],
        }
        for (width, pairs), repeats in measured.items()
    ]  # fmt: skip
    facts = {
        "command": command_line(),
        "hardware": hardware(torch.device("cpu")),
        "versions": {"transformer": version("transformer"), "torch": torch.__version__,
                     "python": platform.python_version()},
        "spread": f"loss is the median of losses, one of each of the seeds {arguments.seeds}",
        "unit": "nats a character",
        "runs": runs,
    }  # fmt: skip
    arguments.out.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
