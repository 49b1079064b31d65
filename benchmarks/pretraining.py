"""What pre-training on the text at hand is worth, on real text, all by the command line.

T5 learns spans (`data.task = "spans"`) of English captions of Multi30k, is exported as a published folder, imported
again and fine-tuned to an exercise of learners: captions with a gap in place of a preposition, which is to be written,
of which it is shown 1,000 others (a .tsv); beside it the same model with its first, random weights goes the same way. A
BERT learns masked words of German and English captions. Reported: the held-out losses of both pre-trainings, first and
last, and loss and the share of gaps filled right of both starts.

Usage: python benchmarks/pretraining.py --out FILE [--folder RUNS] [--spans 3000] [--fine-tuning 150] [--masked 1500]
A run that is cut off goes on where it was, given the same --folder.
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

from training_report import hardware

DATA = Path(os.environ.get("TRANSFORMER_DATA", "../shared/data")) / "multi30k"
CAPTIONS = 1000
RATE = 0.5  # so that a step of short windows has as many tokens to learn from as other tasks have
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
TEXT = """
[data]
task = "{task}"
text = "{text}"
window = {window}
stride = {stride}
{more}
[tokenizer]
vocab_size = 4000
"""
T5 = """
[model]
family = "t5"
d_model = 192
N = 3
h = 3
d_ff = 512
attention_dropout = 0.0
activation_dropout = 0.0
"""
BERT = """
[model]
family = "bert"
d_model = 192
N = 3
h = 3
d_ff = 512
seq_len = 64
attention_dropout = 0.0
"""
TRAINING = """
[training]
max_steps = {steps}
learning_rate = {rate}
warmup_steps = {warmup}
batch_tokens = 4096
schedule = "cosine"
label_smoothing = 0.0
validate_every = {every}
save_every = {every}
patience = 0
best_metric = "loss"
"""


def command(*arguments: object) -> str:
    """What a command of the package prints; its progress goes to the screen."""
    call = [sys.executable, "-m", "transformer", *map(str, arguments)]
    return subprocess.run(call, check=True, stdout=subprocess.PIPE, text=True).stdout


def train(folder: Path, name: str, recipe: str, **training: Any) -> dict[str, Any]:
    """Trains by a recipe; its validations by step, and seconds."""
    values = {"warmup": 100, "every": max(1, training["steps"] // 6), **training}
    path = folder / f"{name}.toml"
    path.write_text(recipe + TRAINING.format(**values), encoding="utf-8")
    started = time.perf_counter()
    command("train", path, "--run", folder / name)
    rows = [json.loads(line) for line in (folder / name / "metrics.jsonl").read_text().splitlines()]
    losses = {row["step"]: row["loss"] for row in rows if row["kind"] == "validation"}
    return {"losses": losses, "seconds": time.perf_counter() - started}


def write_data(folder: Path) -> None:
    """The running text of all lines but the first ones, of both languages and of one, and captions with gaps."""
    sides = [lines_of(f"train.{language}") for language in ("de", "en")]
    text = [line for pair in zip(*sides, strict=True) for line in pair][2 * CAPTIONS :]
    write_lines(folder / "text.txt", text)
    write_lines(folder / "text.en", sides[1][CAPTIONS:])
    exercises = {"train": sides[1][:CAPTIONS], "val": lines_of("val.en"), "test": lines_of("test_2016_flickr.en")}
    draw = random.Random(1)
    for name, captions in exercises.items():
        pairs = [exercise(line, draw) for line in captions if PREPOSITIONS & set(line.split())]
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
    parser.add_argument("--masked", type=int, default=1500)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        write_data(folder)
        report = {
            "command": " ".join(["python benchmarks/pretraining.py", *sys.argv[1:]]),
            "hardware": hardware(torch.device("cpu")),
            "masked words": masked(folder, arguments.masked),
            **learners(folder, arguments.spans, arguments.fine_tuning),
        }
    print(json.dumps(report, indent=2))
    arguments.out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def masked(folder: Path, steps: int) -> dict[str, Any]:
    """Masked words of the text."""
    recipe = TEXT.format(task="masked-words", text=folder / "text.txt", window=64, stride=32, more="") + BERT
    return train(folder, "masked", recipe, steps=steps, rate=1e-3)


def learners(folder: Path, spans: int, steps: int) -> dict[str, Any]:
    """Both starts, and what they were fine-tuned to."""
    more = f"corruption_rate = {RATE}"
    recipe = TEXT.format(task="spans", text=folder / "text.en", window=24, stride=12, more=more) + T5
    found: dict[str, Any] = {
        "spans": train(folder, "spans", recipe, steps=spans, rate=1e-3),
        # the first weights, with the same tokenizer: one step that changes nothing
        "first weights": train(folder, "first", recipe, steps=1, rate=1e-12, warmup=1),
    }
    data = (
        f"[data]\npairs = '{folder / 'train.tsv'}'\nvalidation_source = '{folder / 'val.gaps'}'\n"
        f"validation_target = '{folder / 'val.words'}'\n"
        "max_length_ratio = 100\n"
    )
    for name, start in (("pre-trained", "spans"), ("random", "first")):
        published, imported = folder / f"{start}-hf", folder / f"{start}-imported"
        if not imported.exists():
            command("export", folder / start, "--format", "hf", "--out", published)
            command("import", published, "--out", imported)
        run = train(folder, name, data, steps=steps, rate=f"3e-4\nstart_from = '{imported}'", warmup=20, every=10)
        found[f"exercise, {name}"] = {**run, "percent of gaps right, test_2016_flickr": filled_right(folder, name)}
    return found


if __name__ == "__main__":
    main()
