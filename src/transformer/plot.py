"""Figures for notebooks: each function returns a matplotlib figure."""

from transformer.inspection.complexity import measure as measure_complexity
from transformer.inspection.complexity import read_costs as read_complexity
from transformer.inspection.plots import (
    attention,
    complexity,
    gradients,
    positions,
    scaling,
    schedule,
    untrained_gradients,
)
from transformer.reporting.figures import colour_map, save
from transformer.style import MATPLOTLIB

__all__ = [
    "MATPLOTLIB",
    "attention",
    "colour_map",
    "complexity",
    "gradients",
    "measure_complexity",
    "positions",
    "read_complexity",
    "save",
    "scaling",
    "schedule",
    "untrained_gradients",
]
