"""Draws the figures of the documentation again.

Usage: python tools/figures [MODULE ...], e.g. `python tools/figures costs positions`; all without names.
"""

import importlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from figures.plots import save
from figures.svg import FIGURES

MODULES = (
    "architecture", "attention", "batches", "costs", "decoding", "encoders", "heads", "masks", "paths", "positions",
    "quantization", "residuals", "schedules", "tokens", "trees",
)  # fmt: skip

for module in map(importlib.import_module, (f"figures.{name}" for name in sys.argv[1:] or MODULES)):
    for name, draw in getattr(module, "DRAWINGS", {}).items():
        (FIGURES / f"{name}.svg").write_text(draw().svg(), encoding="utf-8")
    for name, draw in getattr(module, "PLOTS", {}).items():
        save(draw(), name)
