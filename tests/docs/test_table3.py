"""The figures of the scaled-down Table 3 in `docs/explanation/hyperparameters.md` are those of the result file."""

import json
import re

from samples import ROOT

PAGE = ROOT / "docs" / "explanation" / "hyperparameters.md"
RESULT = ROOT / "benchmarks" / "results" / "xeon-amx-2-cores" / "table3.json"


def test_the_page_shows_the_measured_figures() -> None:
    """Catches a figure that was not measured, and a run that the page leaves out."""
    section = PAGE.read_text(encoding="utf-8").partition("### The table at a small scale")[2].partition("\n## ")[0]
    shown = re.findall(r"^\| (base|[A-E]) \| [^|]* \| ([\d., ]+) \| ([\d., ]+) \|", section, re.M)
    rows = json.loads(RESULT.read_text(encoding="utf-8"))["rows"]
    measured = [
        (
            name.partition(":")[0],
            *(
                ", ".join(f"{run[score]:.1f}" for _, run in sorted(row["runs"].items()))
                for score in ("perplexity", "bleu")
            ),
        )
        for name, row in rows.items()
    ]
    assert shown == measured
