"""Search over token ids: greedy search, beam search and sampling with any `GenerativeModel`.

`search_each` in `transformer.decoding.search` is the entry point, `Search` its options. `Workers` runs it in several
processes, `GraphedSearcher` with CUDA graphs on a GPU.
"""

from transformer.decoding.constrained import Constraint
from transformer.decoding.cuda_graphs import GraphedSearcher
from transformer.decoding.degeneration import repeats_itself
from transformer.decoding.ensemble import Ensemble, average_log_p
from transformer.decoding.hypothesis import Hypothesis
from transformer.decoding.parallel import SharedModels, Workers, default_workers, single_thread
from transformer.decoding.request import Request
from transformer.decoding.retokenizing import Retokenize, RetokenizingModel, keep_tokens, make_retokenizer
from transformer.decoding.search import search_all, search_each, stream_tokens
from transformer.decoding.shortlist import Shortlist, ShortlistModel
from transformer.options.length_penalties import length_normalization, paper_length_penalty
from transformer.options.search import GREEDY, RETRY_NGRAM, Average, Sampling, Search, SearchOptions, Tokens

__all__ = [
    "GREEDY",
    "RETRY_NGRAM",
    "Average",
    "Constraint",
    "Ensemble",
    "GraphedSearcher",
    "Hypothesis",
    "Request",
    "Retokenize",
    "RetokenizingModel",
    "Sampling",
    "Search",
    "SearchOptions",
    "SharedModels",
    "Shortlist",
    "ShortlistModel",
    "Tokens",
    "Workers",
    "average_log_p",
    "default_workers",
    "keep_tokens",
    "length_normalization",
    "make_retokenizer",
    "paper_length_penalty",
    "repeats_itself",
    "search_all",
    "search_each",
    "single_thread",
    "stream_tokens",
]
