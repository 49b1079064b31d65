"""Greedy and beam search for a batch of sentences in one call."""

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from jaxtyping import Bool
from torch import Tensor

from transformer.kernels.compiled_model import CompiledModel
from transformer.kernels.library import compiled_library

MAX_STEPS: Final = 32
"""Number of steps after which a search returns to Python at the latest, so that signals are handled."""


class SearchArgs(ctypes.Structure):
    """Arguments of a search, with the fields of the C++ struct `SearchArgs` in beam_search.h, in its order."""

    __slots__ = ()  # a misspelled field is an error
    _fields_ = (
        *((name, ctypes.c_void_p) for name in (
            "source", "lengths", "limits", "start_tokens", "reserves_end", "forbidden", "forbidden_early", "ends",
            "length_penalties",
        )),
        *((name, ctypes.c_long) for name in (
            "n_sentences", "n_ends", "beam", "min_tokens", "no_repeat_ngram",
        )),
        ("stops_early", ctypes.c_int),
    )  # fmt: skip


class SearchResults(ctypes.Structure):
    """Results of a search, with the fields of the C++ struct `SearchResults` in beam_search.h, in its order."""

    __slots__ = ()  # a misspelled field is an error
    _fields_ = (
        ("integers", ctypes.POINTER(ctypes.c_int64)), ("scores", ctypes.POINTER(ctypes.c_float)),
        ("n_integers", ctypes.c_long), ("n_done", ctypes.c_long), ("n_active", ctypes.c_long),
    )  # fmt: skip


@dataclass(frozen=True)
class BeamSearchOptions:
    """Options of a search.

    Attributes:
        beam: Number of hypotheses per sentence; 1 is greedy search.
        ends: Tokens that end a sentence.
        forbidden: Tokens that are never generated.
        forbidden_early: Tokens that are not generated in the first `min_tokens` steps.
        min_tokens: Minimum number of tokens of a hypothesis.
        no_repeat_ngram: Length of the n-grams that are not repeated; 0 without a limit.
        length_penalties: Divisor of the scores of hypotheses, at the index of their length, up to the largest limit.
        stops_early: Whether a sentence is done as soon as `beam` hypotheses have ended.
    """

    beam: int
    ends: Sequence[int]
    forbidden: Bool[Tensor, " V"]
    forbidden_early: Bool[Tensor, " V"]
    min_tokens: int
    no_repeat_ngram: int
    length_penalties: Sequence[float]
    stops_early: bool


@dataclass(frozen=True)
class BeamSearchInputs:
    """Sentences to search for, in the order of the attributes of each.

    Attributes:
        sources: Tokens of each source.
        limits: Largest number of tokens that may be generated for each, at least 1.
        start_tokens: Token that the decoder reads first.
        reserves_end: Whether the last token within the limit may only be an end.
    """

    sources: Sequence[Sequence[int]]
    limits: Sequence[int]
    start_tokens: Sequence[int]
    reserves_end: Sequence[bool]


@dataclass(frozen=True)
class SearchedSentence:
    """The hypotheses of a sentence: tokens without the end, and the sum of log-probabilities.

    Attributes:
        index: Index among the inputs.
        finished: Hypotheses that ended, in the order in which they did.
        truncated: Hypotheses that were active at the limit.
    """

    index: int
    finished: list[tuple[list[int], float]]
    truncated: list[tuple[list[int], float]]


def beam_search(
    model: CompiledModel, inputs: BeamSearchInputs, options: BeamSearchOptions
) -> Iterator[SearchedSentence]:
    """Yields each sentence as soon as it is done.

    Raises:
        IndexError: A token is out of range.
        MemoryError: There is not enough memory.
    """
    compiled, search, results = compiled_library(), ctypes.c_void_p(), SearchResults()
    arrays = [
        torch.tensor([token for source in inputs.sources for token in source], dtype=torch.long),
        torch.tensor([len(source) for source in inputs.sources], dtype=torch.long),
        torch.tensor(inputs.limits, dtype=torch.long),
        torch.tensor(inputs.start_tokens, dtype=torch.long),
        torch.tensor(inputs.reserves_end, dtype=torch.bool),
        options.forbidden.contiguous(),
        options.forbidden_early.contiguous(),
        torch.tensor(options.ends, dtype=torch.long),
        torch.tensor(options.length_penalties, dtype=torch.float64),
    ]
    args = SearchArgs(
        *(array.data_ptr() for array in arrays), len(inputs.sources), len(options.ends), options.beam,
        options.min_tokens, options.no_repeat_ngram, options.stops_early,
    )  # fmt: skip
    threads = torch.get_num_threads()
    _check(compiled.transformer_beam_search_begin(model.address, ctypes.byref(args), threads, ctypes.byref(search)))
    try:
        n_active = len(inputs.sources)
        while n_active:
            _check(compiled.transformer_beam_search_advance(search, MAX_STEPS, threads, ctypes.byref(results)))
            n_active = results.n_active
            yield from _read_results(results)
    finally:
        compiled.transformer_beam_search_end(search)


def _check(status: int) -> None:
    if status == 1:
        raise IndexError("a token is out of range; use the tokenizer of the model")
    if status:
        raise MemoryError("not enough memory for a batch of this size; make it smaller")


def _read_results(results: SearchResults) -> list[SearchedSentence]:
    """Reads the sentences that are done; the kernel documents the format as `collect_results`."""
    integers, sentences, position, score = results.integers[: results.n_integers], list[SearchedSentence](), 0, 0
    for _ in range(results.n_done):
        index, *counts = integers[position : position + 3]
        position += 3
        groups = list[list[tuple[list[int], float]]]()
        for count in counts:
            group = list[tuple[list[int], float]]()
            for _ in range(count):
                end = position + 1 + integers[position]
                group.append((integers[position + 1 : end], results.scores[score]))
                position, score = end, score + 1
            groups.append(group)
        sentences.append(SearchedSentence(index, *groups))
    return sentences
