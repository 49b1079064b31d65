"""Scores of a test set by each kind of search, measured by `transformer evaluate`; searches that have a row are kept.

Usage: python benchmarks/translation/search_kinds.py FORWARD REVERSE --source FILE --reference FILE --out FILE
"""

import argparse
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from transformer.runtime.machine import machine

SEARCHES = (
    "", "--beam 4", "--sample --seed 1", "--sample --top-p 0.9 --seed 1", "--sample --temperature 0.5 --seed 1",
    "--mbr 16 --seed 1", "--mbr 16 --mbr-metric bleu --seed 1", "--beam 4 --rerank {reverse}",
    "--beam 8 --rerank {reverse}",
)  # fmt: skip
MEANING = (
    "scores of one translation of the Tatoeba test set by each kind of search; interval: half of the 95 % interval"
)


def main() -> None:
    """Adds the rows that the file lacks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("forward", help="model from source to reference")
    parser.add_argument("reverse", help="model of the other direction")
    for name in ("--source", "--reference"):
        parser.add_argument(name, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    texts = f"--source {arguments.source} --reference {arguments.reference}"
    results = json.loads(arguments.out.read_text()) if arguments.out.exists() else {"meaning": MEANING, "runs": []}
    here = machine()
    results.setdefault("machine", here)
    for search in SEARCHES:
        options = search.format(reverse=arguments.reverse)
        command = f"transformer evaluate {arguments.forward} {texts} --json {options}".strip()
        if command not in {run["command"] for run in results["runs"]}:
            row = measure(command)
            results["runs"].append(row if here == results["machine"] else {**row, "machine": here})
            arguments.out.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
            print(json.dumps(results["runs"][-1]))


def measure(command: str) -> dict[str, Any]:
    """Returns the scores that a command prints."""
    run = subprocess.run([sys.executable, "-m", *shlex.split(command)], check=True, capture_output=True, text=True)
    printed = json.loads(run.stdout)
    scores = printed["systems"][0]["scores"]
    rounded = {name: {key: round(scores[name][key], 2) for key in ("score", "interval")} for name in ("BLEU", "chrF")}
    return {"command": command, "lines": printed["lines"], **rounded}


if __name__ == "__main__":
    main()
