"""How well does the confidence of a bundled model tell good translations from bad ones, and what does it cost?

    python benchmarks/translation/confidence.py --model en-de --data DATA --output FILE

Lines are mixed in equal numbers from Tatoeba (the domain of the model), Multi30k test_2016 and newstest2014. A
translation with a chrF below 30 is bad. Version 1.1 of the models was calibrated on the validation set of Tatoeba
alone, later ones on held-out messages of programs, too.

The time is measured in turns: the search and checks without the confidence, then the confidence of the same lines.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import numpy as np

import transformer
from transformer import Search
from transformer.evaluation.scores import sentence_scores
from transformer.pipelines.translation.confidence import GOOD, area_under_curve, with_confidence
from transformer.runtime.machine import machine

SETS = {"Tatoeba": "tatoeba-en-de/test", "Multi30k": "multi30k/test_2016_flickr", "newstest2014": "wmt/newstest2014"}


def read_pairs(data: Path, name: str, model: str, n_lines: int) -> list[tuple[str, str]]:
    """Returns the first lines of a set as pairs of source and reference."""
    sides = [(data / f"{name}.{tag}").read_text(encoding="utf-8").split("\n")[:n_lines] for tag in model.split("-")]
    return list(zip(*sides, strict=True))


def measure(
    translator: transformer.Translator, pairs: list[tuple[str, str, str]], beam: int, turns: int
) -> dict[str, object]:
    """Returns the figures of one search."""
    search = Search(beam=beam)
    model = translator.confidence_model(search)
    lines = [source for _, source, _ in pairs]
    translating, estimating = [], []
    for _ in range(turns):
        started = time.perf_counter()
        checked = translator.finish_checked(translator.begin(lines, search=search))
        translating.append(time.perf_counter() - started)
        started = time.perf_counter()
        translations = [with_confidence(line, model) for line in checked]
        estimating.append(time.perf_counter() - started)
    chrf = np.array(sentence_scores([one.text for one in translations], [reference for *_, reference in pairs])) / 100
    confidence = np.array([1.0 if one.confidence is None else one.confidence for one in translations])
    is_unsure = np.array([any(flag.startswith("unsure") for flag in one.flags) for one in translations])
    sets, is_good = np.array([name for name, *_ in pairs]), chrf >= GOOD
    tatoeba = (sets == "Tatoeba") & is_good
    return {
        "beam": beam,
        "threshold": model.threshold,
        "auc": area_under_curve(confidence, is_good),
        "auc_by_set": {name: area_under_curve(confidence[sets == name], is_good[sets == name]) for name in SETS},
        "bad": float((~is_good).mean()),
        "bad_flagged": float(is_unsure[~is_good].mean()),
        "good_flagged": float(is_unsure[is_good].mean()),
        "good_tatoeba_flagged": float(is_unsure[tatoeba].mean()),
        "mean_absolute_error": float(np.abs(confidence - chrf).mean()),
        "seconds": [round(value, 3) for value in translating],
        "confidence_seconds": [round(value, 4) for value in estimating],
        "share_of_time": statistics.median(a / b for a, b in zip(estimating, translating, strict=True)),
    }


def main() -> None:
    """Measures a model and writes the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="en-de", choices=["en-de", "de-en"])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--lines", type=int, default=1000, help="lines of each set")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    folder = (
        Path(__file__).parents[2]
        / "models"
        / arguments.model
        / f"transformer_model_{arguments.model.replace('-', '_')}"
    )
    translator = transformer.load(folder / "bundle", workers=1, device="cpu")
    pairs = [
        (name, *pair) for name, path in SETS.items()
        for pair in read_pairs(arguments.data, path, arguments.model, arguments.lines)
    ]  # fmt: skip
    results = {
        "machine": machine(),
        "command": " ".join(["python", *sys.argv]),
        "model": arguments.model,
        "computed": translator.description,
        "lines_of_each_set": arguments.lines,
        "searches": [measure(translator, pairs, beam, arguments.turns) for beam in (1, 4)],
    }
    arguments.output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
