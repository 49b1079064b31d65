"""Search over token ids; knows models by the `Generates` protocol alone."""

from transformer.decoding.greedy import Hypothesis, greedy

__all__ = ["Hypothesis", "greedy"]
