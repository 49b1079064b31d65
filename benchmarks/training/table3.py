"""Table 3 of "Attention Is All You Need" at a small scale: one change of the base model at a time.

The base model and its changes are a quarter of the paper's in width, half in heads and layers: d_model 128, d_ff 512, 4
heads of 32, 3 + 3 layers. Dropout, label smoothing, norms and optimizer are the paper's; the peak of the learning rate
is in proportion to d_model^-0.5, as in Eq. 3. Each row is the recipe `multi30k-en-de` with `--set`, trained for few
updates on one core, with all rows for the first seed before the second. Perplexity (a token, without label smoothing)
and BLEU (greedy) are those of the validation set after the last update. The result is written after each run, and runs
that it holds are not repeated.

Usage: python benchmarks/training/table3.py --out FILE
"""

import argparse
import json
import platform
import time
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from report import command_line, hardware

from transformer.bundle import load_bundle
from transformer.run.recipe import load_recipe
from transformer.run.train import train

RECIPE = Path("multi30k-en-de")
STEPS, LEARNING_RATE = 400, 0.003
SCALE = (
    "tokenizer.vocab_size=4000", "model.d_model=128", "model.d_ff=512", "model.h=4", "model.N=3", "model.dropout=0.1",
    "model.attention_dropout=0", "model.activation_dropout=0", "model.norm_order=post", "model.initialization=fairseq",
    "model.share_embeddings=all", "training.batch_tokens=1024", f"training.learning_rate={LEARNING_RATE}",
    f"training.max_steps={STEPS}", f"training.warmup_steps={STEPS // 3}", f"training.validate_every={STEPS}",
    f"training.save_every={STEPS}", "training.threads=1",
)  # fmt: skip
"""The base model and its training, as changes of `RECIPE`."""


def width(d_model: int) -> tuple[str, str]:
    """Changes the width of the model, and the learning rate with it."""
    return f"model.d_model={d_model}", f"training.learning_rate={LEARNING_RATE * (128 / d_model) ** 0.5:.5f}"


ROWS: dict[str, tuple[str, ...]] = {
    "base": (),
    "A: 1 head of 128": ("model.h=1",),
    "A: 2 heads of 64": ("model.h=2",),
    "A: 8 heads of 16": ("model.h=8",),
    "A: 16 heads of 8": ("model.h=16",),
    "B: d_k = 8": ("model.d_k=8", "model.d_v=32"),
    "B: d_k = 16": ("model.d_k=16", "model.d_v=32"),
    "C: N = 1": ("model.N=1",),
    "C: N = 2": ("model.N=2",),
    "C: N = 4": ("model.N=4",),
    "C: d_model = 64": width(64),
    "C: d_model = 256": width(256),
    "C: d_ff = 256": ("model.d_ff=256",),
    "C: d_ff = 1024": ("model.d_ff=1024",),
    "D: no dropout": ("model.dropout=0",),
    "D: dropout 0.2": ("model.dropout=0.2",),
    "D: no label smoothing": ("training.label_smoothing=0",),
    "D: label smoothing 0.2": ("training.label_smoothing=0.2",),
    "E: learned positions": ("model.positions=learned",),
}
"""The rows of Table 3 as values of `--set`."""


def measure(row: str, seed: int, folder: Path) -> dict[str, float]:
    """Trains one row and returns its size and validation scores.

    Raises:
        SystemExit: Training was stopped by a signal.
    """
    recipe = load_recipe(RECIPE, [*SCALE, *ROWS[row], f"training.seed={seed}", f"data.prepared={folder / 'prepared'}"])
    with TemporaryDirectory() as run:
        started = time.monotonic(), time.process_time()
        if train(recipe, run, quiet=True).interruption.requested:
            raise SystemExit("stopped")
        seconds, cpu_seconds = time.monotonic() - started[0], time.process_time() - started[1]
        lines = (Path(run) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        (scores,) = (entry for entry in map(json.loads, lines) if entry["kind"] == "validation")
        parameters = sum(parameter.numel() for parameter in load_bundle(Path(run)).model.parameters())
    return {
        "parameters": parameters,
        "perplexity": round(scores["perplexity"], 3),
        "bleu": round(scores["bleu"], 2),
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu_seconds, 1),
    }


def main() -> None:
    """Trains all rows and writes the result after each run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rows", nargs="+", default=["base", *"ABCDE"], help="rows in this order")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    facts: dict[str, Any] = {
        "command": command_line(),
        "hardware": hardware(torch.device("cpu")) | {"threads": 1},
        "versions": {
            "transformer": version("transformer"),
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        "recipe": str(RECIPE),
        "set": SCALE,
        "meaning": "validation set of Multi30k, en-de: perplexity a token and greedy BLEU after the last update; "
        "runs by seed, seconds while other programs ran on the machine",
        "rows": {row: {"set": changes, "runs": {}} for row, changes in ROWS.items()},
    }
    if arguments.out.exists():
        for row, known in json.loads(arguments.out.read_text(encoding="utf-8"))["rows"].items():
            facts["rows"][row]["runs"] = known["runs"]
    with TemporaryDirectory() as folder:
        for seed in arguments.seeds:
            for row in [row for group in arguments.rows for row in ROWS if row.partition(":")[0] == group]:
                runs = facts["rows"][row]["runs"]
                if str(seed) in runs:
                    continue
                runs[str(seed)] = measure(row, seed, Path(folder))
                print(row, seed, runs[str(seed)], flush=True)
                written = arguments.out.with_suffix(".part")
                written.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
                written.replace(arguments.out)


if __name__ == "__main__":
    main()
