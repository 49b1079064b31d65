"""Search over token ids; knows models by the `Generates` protocol alone."""

from transformer.decoding.beam import GREEDY, Beam, beam_search
from transformer.decoding.greedy import greedy
from transformer.decoding.hypothesis import Hypothesis
from transformer.decoding.penalties import length_normalization, paper_length_penalty

__all__ = ["GREEDY", "Beam", "Hypothesis", "beam_search", "greedy", "length_normalization", "paper_length_penalty"]
