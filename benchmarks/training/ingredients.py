"""Measures what each ingredient of a bundled model is worth: the recipe as it is, and without one ingredient at a time.

Each row trains `models/DIRECTION/next.toml`, or `recipe.toml` where there is no next one, for a fifth of its updates
and translates the test sets of `benchmarks/translation/domains.py`. Runs are kept, so that the same command goes on
where it was stopped, and the result is written after each row.

    python models/build_corpora.py
    python benchmarks/training/ingredients.py en-de --data ../shared/data --runs runs/ingredients --output results.json
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from report import command_line, hardware

from transformer.run.recipe import Recipe, load_recipe

ROOT = Path(__file__).parents[2]
SHARE = 5
"""The runs have a share of 1 / SHARE of the updates and of the warm-up."""


def without(*parts: str) -> Callable[[Recipe], Recipe]:
    """Returns a function that leaves files of a recipe out whose names contain one of the parts."""

    def change(recipe: Recipe) -> Recipe:
        data = recipe.data.model_dump()
        rows = [
            row
            for row in zip(data["source"], data["target"], data["weights"], strict=True)
            if not any(part in row[0] for part in parts)
        ]
        keys = zip(("source", "target", "weights"), zip(*rows, strict=True), strict=True)
        return recipe.with_keys("data", dict(keys))

    return change


ROWS: dict[str, Callable[[Recipe], Recipe]] = {
    "all": lambda recipe: recipe,
    "without the dictionary": without("dictionary"),
    "without its example sentences": without("examples"),
    "without software texts": without("messages", "documents"),
    "without augmentation": lambda recipe: recipe.with_keys("data", {"augment": None}),
    "with BPE dropout 0.1": lambda recipe: recipe.with_keys("tokenizer", {"dropout": 0.1}),
}


def shortened(recipe: Recipe) -> Recipe:
    """Returns a recipe with a share of its updates."""
    training = recipe.training
    steps, warmup = int(training.max_steps or 0) // SHARE, int(training.warmup_steps or 0) // SHARE
    return recipe.with_keys("training", {"max_steps": steps, "warmup_steps": warmup, "validate_every": steps // 2})


def measure(direction: str, row: str, folder: Path, data: Path) -> dict[str, Any]:
    """Trains a row, or continues its run, and returns its scores by test set.

    Raises:
        SystemExit: Training or scoring failed, or was stopped.
    """
    folder.mkdir(parents=True, exist_ok=True)
    recipes = (ROOT / "models" / direction / name for name in ("next.toml", "recipe.toml"))
    recipe = ROWS[row](shortened(load_recipe(next(path for path in recipes if path.exists()))))
    (folder / "next.toml").write_text(recipe.to_toml(), encoding="utf-8")
    train = ["-m", "transformer", "train", folder / "next.toml", "--run", folder / "run"]
    score = [ROOT / "benchmarks/translation/domains.py", folder / "run", "--direction", direction, "--data", data]
    for arguments in (train, [*score, "--output", folder / "scores.json"]):
        if code := subprocess.run([sys.executable, *map(str, arguments)], cwd=ROOT, check=False).returncode:
            raise SystemExit(code)
    return json.loads((folder / "scores.json").read_text(encoding="utf-8"))["scores"]


def main() -> None:
    """Measures all rows and writes the result after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("direction", choices=["en-de", "de-en"])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--runs", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=list(ROWS))
    arguments = parser.parse_args()
    facts: dict[str, Any] = {
        "command": command_line(),
        "hardware": hardware(torch.device("cpu")),
        "versions": {"transformer": version("transformer"), "torch": torch.__version__},
        "rows": {},
    }
    if arguments.output.exists():
        facts["rows"] = json.loads(arguments.output.read_text(encoding="utf-8"))["rows"]
    for row in arguments.rows:
        if row not in facts["rows"]:
            folder = (arguments.runs / row.replace(" ", "-")).absolute()
            facts["rows"][row] = measure(arguments.direction, row, folder, arguments.data.absolute())
            print(row, facts["rows"][row], flush=True)
            arguments.output.write_text(json.dumps(facts, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
