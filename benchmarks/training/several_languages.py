"""One model of English, German and French compared with a model for each direction, on Multi30k.

The model of several languages is trained by `recipes/multi30k-en-de-fr.toml`, each model of one direction by
`recipes/multi30k-en-de.toml` with the other files. Reported are BLEU and chrF on test_2016_flickr (greedy) of every
direction that the model learned, the differences to the models of one direction, and the scores of French to German and
back, of which it saw no pair: directly, and through English. The goal is a difference of at most 1 BLEU.

Usage: python benchmarks/training/several_languages.py --out FILE [--folder RUNS] [--steps N] [--single-steps N]
    [--set KEY=VALUE ...]
With the same --folder, an interrupted benchmark continues where it stopped; --set changes keys of all runs.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from report import command_line, hardware

DATA = Path(os.environ.get("TRANSFORMER_DATA", "../shared/data")) / "multi30k"
SEVERAL, SINGLE = Path("recipes/multi30k-en-de-fr.toml"), Path("recipes/multi30k-en-de.toml")
PIVOT = "en"
TEST = "test_2016_flickr"


def command(*arguments: object) -> str:
    """Runs a command of the package and returns its output; progress is shown on the screen."""
    call = [sys.executable, "-m", "transformer", *map(str, arguments)]
    return subprocess.run(call, check=True, stdout=subprocess.PIPE, text=True).stdout


def train(run: Path, recipe: Path, steps: int | None, changes: list[str]) -> None:
    """Trains by a recipe; a run that is finished is left as it is."""
    length = [f"--set=training.max_steps={steps}"] if steps else []
    command("train", recipe, "--run", run, *length, *(f"--set={change}" for change in changes))


def files_of(direction: tuple[str, str]) -> list[str]:
    """Returns the changes of the recipe for English to German that make it one for another direction."""
    sides = dict(zip(("source", "target"), direction, strict=True))
    training = [f"data.{side}={DATA / 'train'}.{language}" for side, language in sides.items()]
    validation = [f"data.validation_{side}={DATA / 'val'}.{language}" for side, language in sides.items()]
    return [*training, *validation, f"data.test_source={DATA / TEST}.{direction[0]}"]


def scores(directions: str, *systems: object) -> dict[str, dict[str, Any]]:
    """Scores a model, or with `--translations` a file, on the test set of each direction."""
    files = ("--source", DATA / f"{TEST}.{{source}}", "--reference", DATA / f"{TEST}.{{target}}")
    printed = command("evaluate", *systems, *files, "--directions", directions, "--bootstrap", 0, "--json")
    return json.loads(printed)["directions"]


def figures(evaluation: dict[str, Any]) -> dict[str, float]:
    """Returns the score of each metric."""
    return {name: score["score"] for name, score in evaluation["systems"][0]["scores"].items()}


def through_english(model: Path, direction: tuple[str, str], folder: Path) -> dict[str, float]:
    """Scores two translations by the model, through English."""
    text = DATA / f"{TEST}.{direction[0]}"
    for source, target in ((direction[0], PIVOT), (PIVOT, direction[1])):
        output = folder / f"{'-'.join(direction)}.{target}"
        languages = ("--source-language", source, "--target-language", target)
        command("translate", model, "--input", text, "--output", output, *languages)
        text = output
    name = "-".join(direction)
    return figures(scores(name, "--translations", text)[name])


def measure(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Trains all models and returns the scores."""
    several = folder / "several"
    train(several, SEVERAL, arguments.steps, arguments.set)
    results: dict[str, Any] = {"learned": {}, "zero_shot": {}}
    for name, evaluation in scores("all", several).items():
        source, _, target = name.partition("-")
        direction, one = (source, target), figures(evaluation)
        if evaluation["zero_shot"]:
            through = through_english(several, direction, folder)
            results["zero_shot"][name] = {"direct": one, "through_english": through}
            continue
        train(folder / name, SINGLE, arguments.single_steps, [*files_of(direction), *arguments.set])
        alone = figures(scores(name, folder / name)[name])
        difference = {metric: one[metric] - alone[metric] for metric in one}
        results["learned"][name] = {"several": one, "single": alone, "difference": difference}
    return results


def main() -> None:
    """Trains what is not yet trained, and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--folder", type=Path, help="folder of the runs, which are continued")
    parser.add_argument("--steps", type=int, help="steps of the model of several languages")
    parser.add_argument("--single-steps", type=int, help="steps of each model of one direction")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change of all recipes")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        report = {
            "command": command_line(), "hardware": hardware(torch.device("cpu")), **measure(folder, arguments)
        }  # fmt: skip
    print(json.dumps(report, indent=2))
    arguments.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
