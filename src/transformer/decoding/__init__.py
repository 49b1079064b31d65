"""Search over token ids; knows models by the `GenerativeModel` protocol alone."""

from transformer.decoding.candidates import normalized
from transformer.decoding.config import GREEDY, GUARD_NGRAM, Request, Search, Tokens
from transformer.decoding.constrained import Constraint
from transformer.decoding.cuda_graphs import GraphedSearcher
from transformer.decoding.ensemble import Ensemble, averaged
from transformer.decoding.hypothesis import Hypothesis
from transformer.decoding.length_penalties import length_normalization, paper_length_penalty
from transformer.decoding.repetition import repeats_itself
from transformer.decoding.retokenizing import Reread, RetokenizingModel, as_they_are, rereader
from transformer.decoding.sampling import Sampling
from transformer.decoding.search import search_all, search_each, write_each
from transformer.decoding.shortlist import Shortlist, ShortlistModel
from transformer.decoding.worker_pool import Workers, most_workers, one_thread

__all__ = [
    "GREEDY",
    "GUARD_NGRAM",
    "Constraint",
    "Ensemble",
    "GraphedSearcher",
    "Hypothesis",
    "Request",
    "Reread",
    "RetokenizingModel",
    "Sampling",
    "Search",
    "Shortlist",
    "ShortlistModel",
    "Tokens",
    "Workers",
    "as_they_are",
    "averaged",
    "length_normalization",
    "most_workers",
    "normalized",
    "one_thread",
    "paper_length_penalty",
    "repeats_itself",
    "rereader",
    "search_all",
    "search_each",
    "write_each",
]
