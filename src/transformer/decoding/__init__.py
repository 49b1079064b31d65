"""Search over token ids; knows models by the `Generates` protocol alone."""

from transformer.decoding.candidates import normalized
from transformer.decoding.config import GREEDY, GUARD_NGRAM, Request, Search, Tokens
from transformer.decoding.constrained import Phrase
from transformer.decoding.cuda_graphs import Searcher
from transformer.decoding.ensemble import Ensemble, averaged
from transformer.decoding.hypothesis import Hypothesis
from transformer.decoding.length_penalties import length_normalization, paper_length_penalty
from transformer.decoding.repetition import repeats_itself
from transformer.decoding.retokenizing import Reread, Rereading, as_they_are, rereader
from transformer.decoding.sampling import Sampling
from transformer.decoding.search import search_all, search_each, write_each
from transformer.decoding.shortlist import Shortlist, Shortlisted
from transformer.decoding.worker_pool import Workers, most_workers, one_thread

__all__ = [
    "GREEDY",
    "GUARD_NGRAM",
    "Ensemble",
    "Hypothesis",
    "Phrase",
    "Request",
    "Reread",
    "Rereading",
    "Sampling",
    "Search",
    "Searcher",
    "Shortlist",
    "Shortlisted",
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
