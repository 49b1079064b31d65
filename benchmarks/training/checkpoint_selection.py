"""Which validation metric selects the best checkpoint: loss, BLEU or chrF, judged by scores on a test set.

Small translation models are trained with frequent checkpoints, all of which are kept. The greedy translations of the
validation and the test set are scored for each checkpoint. For each metric, the result holds the checkpoint that it
selects, its regret (how far its test score lies below that of the best checkpoint), and Spearman's rank correlation of
the metric with the test scores, over all checkpoints and over the later half, in which the choice is made. The loss is
negated, so that higher is better.

Usage: python benchmarks/training/checkpoint_selection.py --out FILE CORPUS=NAME.SOURCE,NAME.TARGET ...
Each corpus is named by training files; files of the same suffixes with `.valid` or `.test` before them must lie beside.
The files may be parts of larger corpora: --pairs limits the training text.
With the same --folder, an interrupted benchmark continues where it stopped.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from report import command_line, hardware

from transformer.evaluation.scores import Tokenization, corpus_scores
from transformer.pipelines.auto import load_translator
from transformer.run.recipe import parse_recipe
from transformer.run.train import train

METRICS = ("loss", "bleu", "chrf")


def read(path: Path, n: int | None = None) -> list[str]:
    """Returns the first lines of a file."""
    return path.read_text(encoding="utf-8").split("\n")[:-1][:n]


def write(path: Path, lines: Sequence[str]) -> Path:
    """Writes lines to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    return path


def prepare(folder: Path, corpus: Sequence[Path], n_pairs: int, n_lines: int) -> dict[str, Any]:
    """Cuts the training text to its first pairs, and returns the `data` section of the recipe."""
    sides = dict(zip(("source", "target"), corpus, strict=True))
    files = {
        side: write(folder / f"train{path.suffix}", read(path, n_pairs)) for side, path in sides.items()
    } | {
        f"validation_{side}": write(folder / f"valid{path.suffix}", read(beside(path, "valid"), n_lines))
        for side, path in sides.items()
    }  # fmt: skip
    return {key: str(path) for key, path in files.items()}


def beside(path: Path, part: str) -> Path:
    """Returns the validation or test file of the same language."""
    return path.with_name(f"{part}{path.suffix}")


def train_run(folder: Path, data: dict[str, Any], arguments: argparse.Namespace) -> dict[int, dict[str, float]]:
    """Trains a model and keeps all checkpoints; returns the validation loss by step."""
    steps, every = arguments.steps, arguments.every
    training = {
        "max_steps": steps, "batch_tokens": arguments.batch_tokens, "validate_every": every, "save_every": every,
        "keep_last": 1 + steps // every, "patience": 0, "threads": 1, "seed": arguments.seed,
    }  # fmt: skip
    train(parse_recipe({"data": data, "training": training}), folder)
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return {row["step"]: {"loss": row["loss"]} for row in rows if row["kind"] == "validation"}


def score(model: Path, source: Sequence[str], reference: Sequence[str], tokenize: Tokenization) -> dict[str, float]:
    """Translates greedily and returns BLEU and chrF."""
    translator = load_translator(model, precision="float32", workers=1)
    translations = [translation.text for translation in translator.translations(source)]
    translator.close()
    return {score.name.lower(): score.value for score in corpus_scores(translations, reference, tokenize)}


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Computes Spearman's rank correlation."""
    ranks = [np.argsort(np.argsort(values)) for values in (first, second)]
    return float(np.corrcoef(*ranks)[0, 1])


def judge(rows: dict[int, dict[str, dict[str, float]]]) -> dict[str, Any]:
    """Returns selected checkpoint, regret and rank correlations of each metric."""
    steps = sorted(rows)
    test = {name: [rows[step]["test"][name] for step in steps] for name in ("bleu", "chrf")}
    verdicts: dict[str, Any] = {}
    for metric in METRICS:
        values = [(-1 if metric == "loss" else 1) * rows[step]["validation"][metric] for step in steps]
        selected = max(range(len(steps)), key=lambda index: values[index])
        half = len(steps) // 2
        verdicts[metric] = {
            "step": steps[selected],
            "regret": {name: round(max(scores) - scores[selected], 3) for name, scores in test.items()},
            "rank correlation": {name: round(rank_correlation(values, scores), 3) for name, scores in test.items()},
            "rank correlation, later half": {
                name: round(rank_correlation(values[half:], scores[half:]), 3) for name, scores in test.items()
            },
        }
    return verdicts


def measure(name: str, corpus: Sequence[Path], arguments: argparse.Namespace) -> dict[str, Any]:
    """Trains on one corpus and judges the metrics."""
    folder = arguments.folder / name
    data = prepare(folder / "corpus", corpus, arguments.pairs, arguments.lines)
    started = time.process_time()
    losses = train_run(folder / "run", data, arguments)
    tokenize: Tokenization = "zh" if corpus[1].suffix == ".zh" else "13a"
    texts = {
        "validation": [read(Path(data[f"validation_{side}"])) for side in ("source", "target")],
        "test": [read(beside(path, "test"), arguments.lines) for path in corpus],
    }
    rows: dict[int, dict[str, dict[str, float]]] = {}
    for step, loss in losses.items():
        model = folder / "run" / "checkpoints" / f"step-{step:08}" / "model"
        rows[step] = {part: score(model, *lines, tokenize) for part, lines in texts.items()}
        rows[step]["validation"] |= loss
        print(name, step, rows[step], flush=True)
    seconds = time.process_time() - started
    return {"tokenization": tokenize, "metrics": judge(rows), "checkpoints": rows, "cpu seconds": round(seconds)}


def main() -> None:
    """Measures all corpora and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpora", nargs="+", help="NAME=SOURCE,TARGET: training files")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "checkpoint-selection")
    parser.add_argument("--pairs", type=int, default=8000)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--batch-tokens", type=int, default=2048)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    results: dict[str, Any] = {}
    for entry in arguments.corpora:
        name, _, files = entry.partition("=")
        results[name] = measure(name, [Path(file) for file in files.split(",")], arguments)
        content = {
            "command": command_line(),
            "hardware": hardware(torch.device("cpu")),
            "threads": 1,
            "corpora": results,
        }
        arguments.out.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
