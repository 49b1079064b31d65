"""Compares the translations of two checkouts of this project, in many configurations, to the last bit.

Each checkout translates the same lines in a process of its own: everyday sentences, and lines with numbers, addresses,
tags, several sentences, repetitions and characters that no model knows. Texts, scores, alternatives, flags, tokens and
alignments are compared.

Usage: python benchmarks/code/outputs.py FIRST SECOND [--lines 200] [--out FILE]
"""

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

ODD = [
    "", "   ", "7", "...", "example.com", "I paid 24986 for it.", "Call +49 30 5551 or mail anna@example.org.",
    "It was 1,000.50 euros on 6 June 1916.", "See https://example.org/a?b=1 for 3 more.", "Room 305, 10:40 to 11:00.",
    "He said <b>yes</b> and <i>no</i>.", "Press <kbd>Ctrl</kbd> {name} %s times &amp; wait.", "No, no, no, no!",
    "ha " * 40, "NATO AND THE EU MEET IN THE CITY.", "☃ is a snowman.", "Tom", "a",
    "I like tea. You like milk. We talk.", "When it rains, I stay at home. When the sun shines, I go out. " * 6,
    "word " * 300, "x" * 400, "  A line with space around it.  ",
    "Dr. Smith met Mr. Jones at 5 p.m. They left. It was late.",
]  # fmt: skip
"""Lines with something that is treated in a way of its own."""
PROGRAM = """
import json, sys, warnings
warnings.simplefilter("ignore")
import torch
torch.set_num_threads(2)
from pathlib import Path
from transformer import load
from transformer.decoding import Sampling, Search, length_normalization
from transformer.pipelines.translation.alignment_output import word_alignment
from transformer.pipelines.translation.terminology import Terminology

models, lines = Path(sys.argv[1]), json.load(sys.stdin)
everything = ("placeholders", "entities", "urls", "tags", "numbers")
CASES = {
    "greedy": {}, "beam 4": {"search": Search(4)}, "n-best": {"search": Search(4, n_best=4)},
    "float32": {"precision": "float32"}, "float32, beam 3": {"precision": "float32", "search": Search(3)},
    "bf16": {"precision": "bf16"}, "deterministic": {"deterministic": True},
    "no guard": {"search": Search(retry_degenerate=False)},
    "sampling": {"search": Search(sampling=Sampling(seed=3))},
    "top-k": {"search": Search(2, n_best=2, sampling=Sampling(0.7, top_k=5, top_p=0.9))},
    "groups": {"search": Search(4, groups=2, diversity=0.5)}, "coverage": {"search": Search(4, coverage=0.2)},
    "minimum": {"search": Search(min_tokens=6)}, "maximum": {"search": Search(max_tokens=5)},
    "no repeats": {"search": Search(no_repeat_ngram=2)}, "repetition": {"search": Search(repetition_penalty=1.3)},
    "normalized": {"search": Search(4, length_normalization(1.0))},
    "exhaustive": {"search": Search(3, stopping="exhaustive")}, "unknown": {"search": Search(allow_unknown=True)},
    "glossary": {"search": Search(4), "terminology": Terminology(glossary=[("tea", "Kaffee"), ("Tom", "Tim")])},
    "banned": {"terminology": Terminology(banned=["ich", "das"])},
    "protected": {"search": Search(4), "terminology": Terminology(protected=everything)},
    "tags": {"terminology": Terminology(protected=("tags",))}, "by sentence": {"split": "sentence"},
    "unsplit": {"split": "none"}, "not copied": {"copy": False}, "task": {"task": "now: "},
    "short pieces": {"max_source_tokens": 20}, "short output": {"max_target_tokens": 12},
    "small batches": {"batch_tokens": 64}, "one process": {"workers": 1}, "prefixes": {},
    "ensemble": {"ensemble": [models / "en-de/transformer_model_en_de/bundle"], "search": Search(2)},
    "other direction": {},
}
for name, options in CASES.items():
    model = "de-en" if name == "other direction" else "en-de"
    translator = load(models / model / f"transformer_model_{model.replace('-', '_')}" / "bundle", **options)
    prefixes = ["Ich" if i % 3 == 0 else "" for i in range(len(lines))] if name == "prefixes" else None
    results = translator.translations(lines, prefixes=prefixes)
    translator.close()
    rows = [
        [
            [[a.text, a.score, a.value, a.finished, a.tokens] for a in line.alternatives], line.flags, line.sources,
            line.words, line.unseen, line.is_copied,
            word_alignment(translator, line) if name in ("greedy", "tags") else None,
        ]
        for line in results
    ]
    print(json.dumps([name, rows]), flush=True)
"""


def translate(checkout: Path, models: Path, lines: list[str]) -> dict[str, Any]:
    """Returns the translations of a checkout in each configuration."""
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(models)], input=json.dumps(lines), capture_output=True, text=True,
        check=False, env={**os.environ, "PYTHONPATH": str(checkout / "src")},
    )  # fmt: skip
    if result.returncode:
        raise SystemExit(result.stderr[-2000:])
    return dict(map(json.loads, result.stdout.splitlines()))


def main() -> None:
    """Prints the number of lines that differ in each configuration, with the first differences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    parser.add_argument("--lines", type=int, default=200)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    corpus = options.second / "tests" / "corpus" / "everyday.en"
    lines = [*corpus.read_text(encoding="utf-8").splitlines()[: options.lines], *ODD]
    first, second = (translate(side, options.second / "models", lines) for side in (options.first, options.second))
    different: dict[str, list[dict[str, Any]]] = {}
    for name, rows in first.items():
        pairs = zip(lines, rows, second[name], strict=True)
        different[name] = [
            {"line": line[:80], "first": [old[0][0][0][:80], old[1]], "second": [new[0][0][0][:80], new[1]]}
            for line, old, new in pairs
            if old != new
        ]
        print(f"{name:<18}{len(different[name]):4} of {len(lines)} lines differ", flush=True)
    counts = Counter(line["line"] for lines_of_case in different.values() for line in lines_of_case)
    commits = [
        subprocess.check_output(["git", "-C", side, "rev-parse", "--short", "HEAD"], text=True).strip()
        for side in (options.first, options.second)
    ]
    about = {
        "first": commits[0], "second": commits[1], "torch": version("torch"), "lines": len(lines),
        "command": " ".join(Path(argument).name for argument in sys.argv),
    }  # fmt: skip
    print(f"{len(first)} configurations; lines that differ in any of them: {len(counts)}")
    if options.out:
        result = about | {"differences": different}
        options.out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
