"""Searches that a kernel runs from the first step to the last, with the same results as `search.decode_step`."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import torch

from transformer.decoding.beam_state import SentenceState
from transformer.decoding.candidates import n_candidates
from transformer.decoding.hypothesis import Hypothesis
from transformer.decoding.request import Request
from transformer.decoding.search_model import SearchModel, SingleModel, token_mask
from transformer.kernels import MAX_TOP_K, BeamSearchInputs, BeamSearchOptions, CompiledModel, beam_search
from transformer.options.search import Search
from transformer.tokenizers.special_tokens import BOS_ID, SpecialTokenIds


class CompiledSearch:
    """Searches for whole batches in one call each.

    It knows greedy and beam search by the model's own log-probabilities, a minimum of tokens, and n-grams that are not
    repeated. Other processors of logits, constraints, prefixes, sampling and several models are computed step by step.

    Args:
        model: Model for the kernels.
        search: Options of the search.
        special_tokens: Special tokens of the model.
    """

    def __init__(self, model: CompiledModel, search: Search, special_tokens: SpecialTokenIds) -> None:
        self.model, self.search, self.ends = model, search, special_tokens.ends
        never, size = special_tokens.suppressed_ids(allow_unknown=search.allow_unknown), model.vocab_size
        cpu = torch.device("cpu")
        self._forbidden = token_mask(never, size, cpu)
        self._forbidden_early = token_mask((*never, *self.ends), size, cpu)

    @classmethod
    def of(cls, model: SearchModel, search: Search, special_tokens: SpecialTokenIds) -> "CompiledSearch | None":
        """Returns the search with a model; None if the kernel does not support the model or the options."""
        compiled = getattr(model.model, "compiled_model", None) if isinstance(model, SingleModel) else None
        is_supported = (
            replace(search, no_repeat_ngram=None).ranks_by_log_probability
            and n_candidates(search.beam, special_tokens.ends) <= MAX_TOP_K
        )
        return cls(compiled, search, special_tokens) if compiled is not None and is_supported else None

    def supports(self, requests: Iterable[Request]) -> bool:
        """Whether the kernel can answer the requests; it also leaves errors of length to the model."""
        return all(
            not request.prefix
            and not request.required
            and not (request.prompt and self.search.no_repeat_ngram)
            and request.limit >= 1
            and self.model.has_positions(len(request.source), request.limit)
            for request in requests
        )

    def run(self, numbered: Sequence[tuple[int, Request]]) -> Iterator[SentenceState]:
        """Yields the state of each sentence as soon as it is done."""
        requests = [request for _, request in numbered]
        limits = [request.limit for request in requests]
        penalties = [1.0, *map(self.search.length_penalty, range(1, max(limits) + 1))]
        inputs = BeamSearchInputs(
            [request.source for request in requests],
            limits,
            [
                BOS_ID if request.decoder_start_token_id is None else request.decoder_start_token_id
                for request in requests
            ],
            [request.reserve_eos for request in requests],
        )
        options = BeamSearchOptions(
            self.search.beam, self.ends, self._forbidden, self._forbidden_early, self.search.min_tokens,
            self.search.no_repeat_ngram or 0, penalties, self.search.stopping == "early",
        )  # fmt: skip
        for sentence in beam_search(self.model, inputs, options):
            index, request = numbered[sentence.index]
            finished, truncated = (
                [Hypothesis(tokens, score, finished=ended, ranking_score=score) for tokens, score in hypotheses]
                for ended, hypotheses in ((True, sentence.finished), (False, sentence.truncated))
            )
            yield SentenceState(index, request, [finished], truncated, done=True)
