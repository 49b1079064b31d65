"""Text that goes on: a language model with its tokenizer."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from io import StringIO

import numpy as np
import torch

from transformer.decoding import GREEDY, Hypothesis, Request, Search, search_all, stream_tokens
from transformer.errors import ConfigError, DataError
from transformer.models.language_model import LanguageModel
from transformer.tokenizers.base import Tokenizer
from transformer.tokenizers.running_text import encode_lines

PIECES_A_PROMPT = 4096
"""Numbers for the parts of a continuation, which draw with random numbers of their own."""
MOST_PROMPTS = 64
BATCH_NUMBERS = 2**27
"""Numbers of the keys and values of all hypotheses that are continued side by side: 512 MiB in float32."""
MOST_WINDOWS = 8
MOST_LOGITS = 2**26
"""Windows whose text is predicted at a time, and their logits: 256 MiB, and as much again for their softmax."""
BROKEN = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True)
class Continuation:
    """How a text goes on.

    Attributes:
        text: without the prompt.
        tokens: its ids.
        score: log-probability of the tokens, the one that ends it included.
        finished: it ended by itself; False means cut at the limit.
    """

    text: str
    tokens: tuple[int, ...]
    score: float
    finished: bool


@dataclass(frozen=True)
class Perplexity:
    """How well a model predicts a text.

    Attributes:
        loss: mean of -log p of a token, in nats.
        tokens: that were predicted.
        left_out: tokens at the end that fill no window.
    """

    loss: float
    tokens: int
    left_out: int

    @property
    def perplexity(self) -> float:
        """exp(loss)."""
        return math.exp(self.loss)


class Generator:
    """A language model with its tokenizer: a beginning in, how it goes on out.

    Args:
        model: put into evaluation mode.
        tokenizer: of its text.
        search: greedy, a beam, or sampling.

    Raises:
        ConfigError: the search looks at coverage.
    """

    def __init__(self, model: LanguageModel, tokenizer: Tokenizer, *, search: Search = GREEDY) -> None:
        if search.coverage:
            raise ConfigError("coverage is of what a translation attends to in its source; leave it out")
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.search = replace(search, limit_ends=True)
        self.description = ""

    @property
    def device(self) -> torch.device:
        """Where the model is; packed models, which have no parameters, are on the CPU."""
        return next((parameter.device for parameter in self.model.parameters()), torch.device("cpu"))

    def generate(self, prompts: Sequence[str], *, max_tokens: int = 200) -> list[list[Continuation]]:
        """How each prompt goes on: up to `Search.n_best` continuations, best first.

        Prompts are continued side by side. A text that grows beyond the model's positions goes on from its latter half;
        a beam stays within them.

        Args:
            prompts: beginnings; an empty one begins anew.
            max_tokens: most tokens of a continuation.

        Raises:
            ConfigError: a prompt, or a beam and its limit, exceed the model's positions.
            DataError: a single text in place of a list.
        """
        if isinstance(prompts, str):
            raise DataError("prompts is one text; give a list, e.g. [text]")
        return list(self.each(prompts, max_tokens=max_tokens))

    def each(self, prompts: Sequence[str], *, max_tokens: int = 200) -> Iterator[list[Continuation]]:
        """As `generate`, one prompt after another as they are done; what is refused is refused before any work."""
        begun = self._begin_all(prompts, max_tokens)
        most, kept = self.model.seq_len, self.model.cache_size_per_token * self.search.beam
        start = 0
        while start < len(begun):
            end, longest = start, 0
            last = min(len(begun), start + MOST_PROMPTS) if max_tokens > 0 else start
            while end < last and (positions := len(begun[end]) - 1 + max_tokens) <= most:
                longest = max(longest, positions)
                if end > start and longest * (end + 1 - start) * kept > BATCH_NUMBERS:
                    break
                end += 1
            if end == start:
                yield [self._at_length(begun[start], max_tokens, start)]
                start += 1
                continue
            requests = [self._request(begun[at], max_tokens, at * PIECES_A_PROMPT) for at in range(start, end)]
            found = search_all(self.model, requests, self.search, special_tokens=self.tokenizer.special_tokens)
            for tokens, hypotheses in zip(begun[start:end], found, strict=True):
                yield [self._continuation(tokens, each) for each in hypotheses]
            start = end

    def _begin_all(self, prompts: Sequence[str], max_tokens: int) -> list[list[int]]:
        """The tokens of the prompts, none of which is too long."""
        begun = [self._begin(prompt) for prompt in prompts]
        most = self.model.seq_len
        for number, tokens in enumerate(begun, start=1):
            of = f"prompt {number}: " if len(begun) > 1 else ""
            if len(tokens) > most:
                raise ConfigError(f"{of}a prompt of {len(tokens)} tokens exceeds the model's {most}; shorten it")
            if self.search.beam > 1 and len(tokens) - 1 + max_tokens > most:
                raise ConfigError(
                    f"{of}a beam keeps to the model's {most} positions, prompt and continuation have "
                    f"{len(tokens) - 1 + max_tokens}; ask for fewer tokens, or leave the beam out"
                )
        return begun

    def stream(self, prompt: str, *, max_tokens: int = 200) -> Iterator[str]:
        """Yields the continuation as it is written, as soon as characters are whole.

        Raises:
            ConfigError: the prompt exceeds the model's positions; the search has a beam, which the first text tells.
        """
        (begun,) = self._begin_all([prompt], 0)
        return self._written(begun, max_tokens)

    def _written(self, begun: list[int], max_tokens: int) -> Iterator[str]:
        shown, waiting = list(begun), list[int]()
        for token in self._tokens(begun, max_tokens, 0):
            waiting.append(token)
            text = self._after(shown, waiting)
            if text and not text.endswith(BROKEN):
                yield text
                shown, waiting = waiting, []
        if rest := self._after(shown, waiting):
            yield rest

    def _after(self, begun: Sequence[int], tokens: Sequence[int]) -> str:
        """The text of what was written, decoded with what stands before it: a first space may depend on that."""
        decode = self.tokenizer.decode_running
        return decode([*begun, *tokens])[len(decode(begun)) :]

    def perplexity(
        self, text: str, *, window: int | None = None, done: Callable[[int], None] = lambda more: None
    ) -> Perplexity:
        """How well the model predicts a text, in windows that do not overlap; each begins without a past.

        Args:
            text: any text.
            window: tokens that are predicted at a time; as many as the model has positions if not given.
            done: called with the number of further tokens that were predicted, for a progress bar.

        Raises:
            ConfigError: the window exceeds the positions.
            DataError: the text has fewer tokens than a window.
        """
        window = window or self.model.seq_len
        if not 1 <= window <= self.model.seq_len:
            raise ConfigError(f"window={window} is not between 1 and the model's {self.model.seq_len} positions")
        parts = [np.array(ids, np.int64) for _, ids in encode_lines(self.tokenizer, StringIO(text))]
        tokens = np.concatenate([np.zeros(0, np.int64), *parts])
        count = (len(tokens) - 1) // window
        if count < 1:
            raise DataError(
                f"the text has {len(tokens)} tokens, fewer than a window of {window} and one; "
                "give more text, or a smaller window"
            )
        rows = torch.from_numpy(tokens[: count * window].reshape(count, window))
        labels = torch.from_numpy(tokens[1 : count * window + 1].reshape(count, window))
        nll, batch = 0.0, max(1, min(MOST_WINDOWS, MOST_LOGITS // (window * self.tokenizer.vocab_size)))
        for start in range(0, count, batch):
            nll += self._nll(rows[start : start + batch].to(self.device), labels[start : start + batch].to(self.device))
            done(window * min(batch, count - start))
        return Perplexity(nll / (count * window), count * window, len(tokens) - count * window - 1)

    @torch.inference_mode()
    def _nll(self, rows: torch.Tensor, labels: torch.Tensor) -> float:
        log_p = self.model(rows).float().log_softmax(dim=-1)
        return -log_p.gather(2, labels[:, :, None]).double().sum().item()

    def _begin(self, prompt: str) -> list[int]:
        """The tokens of a prompt; of an empty one, what a text begins with."""
        before, _ = self.tokenizer.boundary_tokens
        special_tokens = self.tokenizer.special_tokens
        tokens = self.tokenizer.encode_running([prompt])[0] if prompt else []
        is_published = self.tokenizer.kind == "published"
        tokens = [*(before if is_published else ()), *tokens]
        if tokens:
            return tokens
        first = special_tokens.bos if special_tokens.bos is not None else special_tokens.eos
        return [first] if is_published and first is not None else self.tokenizer.encode_running(["\n"])[0]

    def _request(self, tokens: list[int], limit: int, number: int) -> Request:
        return Request(tokens[:-1], limit, number=number, decoder_start_token_id=tokens[-1])

    def _parts(self, tokens: list[int], max_tokens: int, number: int) -> Iterator[Request]:
        """Requests one after another, each from the latter half of all that stands when the positions are used up.

        `tokens` grows meanwhile.
        """
        begun, part = len(tokens), 0
        while (left := max_tokens - (len(tokens) - begun)) > 0:
            room = self.model.seq_len - (len(tokens) - 1)
            seen = tokens if room > 0 and (part == 0 or room >= left) else tokens[-max(1, self.model.seq_len // 2) :]
            limit = min(left, self.model.seq_len - (len(seen) - 1))
            yield self._request(list(seen), limit, number * PIECES_A_PROMPT + part)
            part += 1

    def _tokens(self, tokens: list[int], max_tokens: int, number: int) -> Iterator[int]:
        """The continuation, token by token; appended to `tokens` too."""
        for request in self._parts(tokens, max_tokens, number):
            wrote = 0
            for token in stream_tokens(self.model, request, self.search, self.tokenizer.special_tokens, self.device):
                tokens.append(token)
                wrote += 1
                yield token
            if wrote < request.limit:
                return

    def _at_length(self, tokens: list[int], max_tokens: int, number: int) -> Continuation:
        """The one continuation of a search without a beam, however long."""
        first, begun, score = list(tokens), len(tokens), 0.0
        for request in self._parts(tokens, max_tokens, number):
            search = replace(self.search, n_best=1)
            ((found,),) = search_all(self.model, [request], search, special_tokens=self.tokenizer.special_tokens)
            tokens += found.tokens
            score += found.score
            if found.finished:
                return self._continuation(first, Hypothesis(tokens[begun:], score, finished=True, ranking_score=score))
        return self._continuation(first, Hypothesis(tokens[begun:], score, finished=False, ranking_score=score))

    def _continuation(self, begun: Sequence[int], found: Hypothesis) -> Continuation:
        return Continuation(self._after(begun, found.tokens), tuple(found.tokens), found.score, found.finished)
