"""Benefit of pretraining on the available text for T5, on real text, using the command line only.

A T5 learns spans of English captions of Multi30k by `recipes/multi30k-spans.toml`, is exported as a published folder,
imported again and fine-tuned on a learner's exercise: to fill in the preposition that is missing from a caption, with
1,000 other captions as examples (a .tsv). The same model with random weights is trained likewise. Reported are the
held-out losses of pretraining, and for both starts the loss and the share of correctly filled gaps.

Usage: python benchmarks/training/pretraining.py --out FILE [--folder RUNS] [--spans 3000] [--fine-tuning 150]
With the same --folder, an interrupted benchmark continues where it stopped.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from report import command_line, hardware

DATA = Path(os.environ.get("TRANSFORMER_DATA", "../shared/data")) / "multi30k"
CAPTIONS = 1000
PREPOSITIONS = frozenset(
    [
        "in",
        "on",
        "at",
        "of",
        "with",
        "by",
        "to",
        "from",
        "for",
        "over",
        "under",
        "near",
        "behind",
        "through",
        "into",
        "onto",
        "down",
        "up",
        "off",
        "around",
        "across",
        "along",
    ]
)
RECIPE = Path("recipes/multi30k-spans.toml")
FINE_TUNING = """
[data]
pairs = "{pairs}"
validation_source = "{gaps}"
validation_target = "{words}"
max_length_ratio = 100

[training]
start_from = "{start}"
max_steps = {steps}
learning_rate = 3e-4
warmup_steps = 20
batch_tokens = 4096
schedule = "cosine"
label_smoothing = 0.0
validate_every = 10
save_every = 10
patience = 0
best_metric = "loss"
"""


def command(*arguments: object) -> str:
    """Runs a command of the package and returns its output; progress is shown on the screen."""
    call = [sys.executable, "-m", "transformer", *map(str, arguments)]
    return subprocess.run(call, check=True, stdout=subprocess.PIPE, text=True).stdout


def train(run: Path, recipe: Path, **settings: object) -> dict[str, Any]:
    """Trains by a recipe, some settings of which are given; its validations by step, and seconds."""
    started = time.perf_counter()
    changes = [f"--set={name.replace('__', '.')}={value}" for name, value in settings.items()]
    command("train", recipe, "--run", run, *changes)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = {row["step"]: row["loss"] for row in rows if row["kind"] == "validation"}
    return {"losses": losses, "seconds": time.perf_counter() - started}


def write_data(folder: Path) -> None:
    """Captions without the first ones, and captions with gaps, those to learn from among the first ones."""
    captions = lines_of("train.en")
    write_lines(folder / "text.en", captions[CAPTIONS:])
    exercises = {"train": captions[:CAPTIONS], "val": lines_of("val.en"), "test": lines_of("test_2016_flickr.en")}
    draw = random.Random(1)
    for name, lines in exercises.items():
        pairs = [exercise(line, draw) for line in lines if PREPOSITIONS & set(line.split())]
        write_lines(folder / f"{name}.tsv", ["\t".join(pair) for pair in pairs])
        write_lines(folder / f"{name}.gaps", [pair[0] for pair in pairs])
        write_lines(folder / f"{name}.words", [pair[1] for pair in pairs])


def lines_of(name: str) -> list[str]:
    """A file of Multi30k."""
    return (DATA / name).read_text(encoding="utf-8").splitlines()


def write_lines(path: Path, lines: list[str]) -> None:
    """One a line."""
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def exercise(caption: str, draw: random.Random) -> tuple[str, str]:
    """A caption with a gap, and the preposition that stood there."""
    words = caption.split()
    place = draw.choice([place for place, word in enumerate(words) if word in PREPOSITIONS])
    return " ".join([*words[:place], "_", *words[place + 1 :]]), words[place]


def filled_right(folder: Path, name: str) -> float:
    """Percent of the gaps of the test set that a run fills with the word that stood there."""
    written = command("translate", folder / name, "--input", folder / "test.gaps").splitlines()
    wanted = (folder / "test.words").read_text(encoding="utf-8").splitlines()
    return 100 * sum(a == b for a, b in zip(wanted, written, strict=True)) / len(wanted)


def main() -> None:
    """Trains all, and writes what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--folder", type=Path, help="where runs are kept; a temporary folder if not given")
    parser.add_argument("--spans", type=int, default=3000)
    parser.add_argument("--fine-tuning", type=int, default=150)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        write_data(folder)
        report = {
            "command": command_line(),
            "hardware": hardware(torch.device("cpu")),
            **learners(folder, arguments.spans, arguments.fine_tuning),
        }
    print(json.dumps(report, indent=2))
    arguments.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def learners(folder: Path, spans: int, steps: int) -> dict[str, Any]:
    """Both starts, and what they were fine-tuned to."""
    text = {"data__text": folder / "text.en"}
    outcome: dict[str, Any] = {
        "spans": train(folder / "spans", RECIPE, **text, training__max_steps=spans),
        # the first weights, with the same tokenizer: one step that changes nothing
        "first weights": train(
            folder / "first",
            RECIPE,
            **text,
            training__max_steps=1,
            training__learning_rate=1e-12,
            training__warmup_steps=1,
        ),
    }
    files = {"pairs": "train.tsv", "gaps": "val.gaps", "words": "val.words"}
    paths = {name: folder / file for name, file in files.items()}
    for name, start in (("pre-trained", "spans"), ("random", "first")):
        published, imported = folder / f"{start}-hf", folder / f"{start}-imported"
        if not imported.exists():
            command("export", folder / start, "--format", "hf", "--output", published)
            command("import", published, "--output", imported)
        recipe = folder / f"{name}.toml"
        recipe.write_text(FINE_TUNING.format(**paths, start=imported, steps=steps), encoding="utf-8")
        run = train(folder / name, recipe)
        outcome[f"exercise, {name}"] = {**run, "percent of gaps right, test_2016_flickr": filled_right(folder, name)}
    return outcome


if __name__ == "__main__":
    main()
