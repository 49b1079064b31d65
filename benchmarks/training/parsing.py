"""How well the demo's parser does: F1 of labelled brackets and trees without an error on held-out sentences.

Runs `transformer demo --parsing`: trees that a small grammar generates to train on, and others to test. Searches with a
beam follow, that stop when as many parses as the beam size have ended, or when no other can become better.

Usage: python benchmarks/training/parsing.py --folder FOLDER --out FILE
"""

import argparse
import json
import platform
import time
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import torch
from report import command_line, hardware

from transformer.cli.demo import TREE_SEARCH, TREES, demo
from transformer.data.readers import read_side
from transformer.evaluation.scores import TREE_METRICS, corpus_scores
from transformer.pipelines.auto import load_translator
from transformer.run.recipe import load_recipe
from transformer.text.trees import bracketed

SEARCHES = {
    "greedy": TREE_SEARCH,
    "beam 4": replace(TREE_SEARCH, beam=4),
    "beam 4, exhaustive": replace(TREE_SEARCH, beam=4, stopping="exhaustive"),
}


def main() -> None:
    """Runs the demo, scores its parses and writes the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    started = time.monotonic(), time.process_time()
    demo(arguments.folder, parsing=True)
    seconds, cpu_seconds = time.monotonic() - started[0], time.process_time() - started[1]
    test = arguments.folder / "corpus" / "test.trees"
    sentences, gold = read_side(test, 0), read_side(test, 1)
    parser_model = load_translator(arguments.folder / "run", split="none", copy=False)
    measured, wrong = {}, {}
    for name, search in SEARCHES.items():
        parses = [translation.text for translation in parser_model.translations(sentences, search=search)]
        measured[name] = {
            score.name: {"score": round(score.value, 2), "interval": score.interval, "signature": score.signature}
            for score in corpus_scores(parses, gold, metrics=TREE_METRICS, samples=1000)
        } | {
            "exact": round(100 * sum(map(str.__eq__, parses, gold)) / len(gold), 2),
            "malformed": sum(bracketed(*pair) is None for pair in zip(sentences, parses, strict=True)),
        }
        print(name, measured[name], flush=True)
        wrong[name] = [line[:2] for line in zip(sentences, parses, gold, strict=True) if line[1] != line[2]]
    recipe = load_recipe(arguments.folder / "run" / "recipe.toml")
    facts = {
        "command": command_line(),
        "hardware": hardware(torch.device("cpu")) | {"threads": torch.get_num_threads()},
        "versions": {
            "transformer": version("transformer"),
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        "trees": TREES,
        "updates": recipe.training.max_steps,
        "meaning": "held-out trees, in percent; malformed: lines that do not form a tree of the sentence; wrong: "
        "sentences and wrong parses of the greedy search; seconds of the demo, while other programs ran on the machine",
        "seconds": round(seconds),
        "cpu_seconds": round(cpu_seconds),
        "scores": measured,
        "wrong": wrong["greedy"],
        "mean_words": round(sum(len(line.split()) for line in sentences) / len(sentences), 1),
    }
    arguments.out.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
