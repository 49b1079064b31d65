"""Text generation: a language model with its tokenizer."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from typing import overload

import numpy as np
import torch
from numpy.typing import NDArray

from transformer.decoding import GREEDY, Hypothesis, Request, Search, search_all, stream_tokens
from transformer.errors import ConfigError, DataError
from transformer.models.language_model import LanguageModel
from transformer.pipelines.device import device_of
from transformer.pipelines.texts import texts_of
from transformer.runtime.threads import prepare_threads
from transformer.tokenizers.base import Tokenizer
from transformer.tokenizers.running_text import encode_lines

SEEDS_PER_PROMPT = 4096
"""Random streams reserved per prompt; each part of a continuation uses one."""
MAX_PROMPTS = 64
MAX_CACHE_ELEMENTS = 2**27
"""Maximum number of elements in the key-value caches of a batch: 512 MiB in float32."""
MAX_WINDOWS = 8
MAX_LOGITS = 2**26
"""Windows of text scored at a time, and the number of their logits: 256 MiB, and as much again for their softmax."""
REPLACEMENT_CHARACTER = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True)
class Continuation:
    """A generated continuation of a prompt.

    Attributes:
        text: Text without the prompt.
        tokens: Token ids of the text.
        score: Log-probability of the tokens, including the end token if one was generated.
        finished: Whether the model ended the text; False means that it was cut at the limit.
    """

    text: str
    tokens: tuple[int, ...]
    score: float
    finished: bool


@dataclass(frozen=True)
class Perplexity:
    """Perplexity of a text under a model.

    Attributes:
        loss: Mean negative log-probability of a token, in nats.
        tokens: Number of predicted tokens.
        left_out: Number of tokens at the end that do not fill a window.
    """

    loss: float
    tokens: int
    left_out: int

    @property
    def perplexity(self) -> float:
        """exp(loss)."""
        return math.exp(self.loss)


class Generator:
    """A language model with its tokenizer, which continues prompts.

    Args:
        model: Language model; it is put into evaluation mode.
        tokenizer: Tokenizer of the model.
        search: Search options: greedy, a beam, or sampling.
        special_tokens: Whether names of special tokens in prompts are these tokens, as in prompts of chat templates,
            which contain the token that begins a text too.

    Raises:
        ConfigError: The search uses coverage.
    """

    def __init__(
        self, model: LanguageModel, tokenizer: Tokenizer, *, search: Search = GREEDY, special_tokens: bool = False
    ) -> None:
        if search.mbr:
            raise ConfigError("mbr chooses among translations; leave it out")
        if search.coverage:
            raise ConfigError("coverage needs the cross-attention of a translation model; leave it out")
        prepare_threads()
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.search = replace(search, limit_ends=True)
        self.special_tokens = special_tokens
        is_named = special_tokens and tokenizer.kind == "published"
        self._template_tokenizer = tokenizer.reading_special_tokens() if is_named else tokenizer
        self.description = ""

    def __repr__(self) -> str:
        """Returns the size of the vocabulary and of the context, and where it runs."""
        facts = (f"{self.tokenizer.vocab_size:,} tokens", f"context of {self.model.seq_len:,}", self.description)
        return f"<Generator: {', '.join(filter(None, facts))}>"

    @overload
    def __call__(self, prompts: str, *, max_tokens: int = 200) -> str: ...  # pyright: ignore[reportOverlappingOverload]
    @overload
    def __call__(self, prompts: Iterable[str], *, max_tokens: int = 200) -> list[str]: ...
    def __call__(self, prompts: str | Iterable[str], *, max_tokens: int = 200) -> str | list[str]:
        """Returns the best continuation of a prompt, or of each prompt in a list; see `generate`."""
        results = self.generate(
            [prompts] if isinstance(prompts, str) else texts_of(prompts, "prompts"), max_tokens=max_tokens
        )
        texts = [continuations[0].text for continuations in results]
        return texts[0] if isinstance(prompts, str) else texts

    @property
    def device(self) -> torch.device:
        """Device of the model."""
        return device_of(self.model)

    def generate(self, prompts: Sequence[str], *, max_tokens: int = 200) -> list[list[Continuation]]:
        """Returns up to `Search.n_best` continuations of each prompt, best first.

        Prompts are processed in batches. A text that exceeds the model's positions is continued from its second half;
        a beam must stay within the positions.

        Args:
            prompts: Prompts; an empty one starts a new text.
            max_tokens: Maximum number of tokens of a continuation.

        Raises:
            ConfigError: A prompt, or with a beam a prompt and its limit, exceeds the model's positions.
            DataError: `prompts` is a single text instead of a list.
            TypeError: `prompts` is not a list of texts.
        """
        return list(self.each(texts_of(prompts, "prompts"), max_tokens=max_tokens))

    def each(self, prompts: Sequence[str], *, max_tokens: int = 200) -> Iterator[list[Continuation]]:
        """Same as `generate`, but yields the continuations of each prompt as soon as they are ready.

        All prompts are validated before the first one is continued.
        """
        encoded = self._encode_prompts(prompts, max_tokens)
        seq_len, elements_per_position = self.model.seq_len, self.model.cache_size_per_token * self.search.beam
        start = 0
        while start < len(encoded):
            end, longest = start, 0
            last = min(len(encoded), start + MAX_PROMPTS) if max_tokens > 0 else start
            while end < last and (positions := len(encoded[end]) - 1 + max_tokens) <= seq_len:
                longest = max(longest, positions)
                if end > start and longest * (end + 1 - start) * elements_per_position > MAX_CACHE_ELEMENTS:
                    break
                end += 1
            if end == start:
                yield [self._generate_long(encoded[start], max_tokens, start)]
                start += 1
                continue
            requests = [self._request(encoded[i], max_tokens, i * SEEDS_PER_PROMPT) for i in range(start, end)]
            results = self._search(requests, self.search)
            for tokens, hypotheses in zip(encoded[start:end], results, strict=True):
                yield [self._continuation(tokens, hypothesis) for hypothesis in hypotheses]
            start = end

    def _encode_prompts(self, prompts: Sequence[str], max_tokens: int) -> list[list[int]]:
        """Returns the tokens of the prompts after checking their lengths."""
        encoded = [self.encode_prompt(prompt) for prompt in prompts]
        seq_len = self.model.seq_len
        for number, tokens in enumerate(encoded, start=1):
            where = f"prompt {number}: " if len(encoded) > 1 else ""
            if len(tokens) > seq_len:
                raise ConfigError(
                    f"{where}a prompt of {len(tokens)} tokens exceeds the model's {seq_len} positions; shorten it"
                )
            if self.search.beam > 1 and len(tokens) - 1 + max_tokens > seq_len:
                raise ConfigError(
                    f"{where}prompt and continuation need {len(tokens) - 1 + max_tokens} positions, but a beam is "
                    f"limited to the model's {seq_len}; ask for fewer tokens, or leave the beam out"
                )
        return encoded

    def stream(self, prompt: str, *, max_tokens: int = 200) -> Iterator[str]:
        """Yields the continuation while it is generated, as soon as characters are complete.

        Raises:
            ConfigError: The prompt exceeds the model's positions; or, when the first text is requested, the search
                has a beam.
        """
        return (text for text, _ in self.stream_counted(prompt, max_tokens=max_tokens) if text)

    def stream_counted(self, prompt: str, *, max_tokens: int = 200) -> Iterator[tuple[str, int]]:
        """Same as `stream`, but yields each text with the number of its tokens; the last text may be empty."""
        (encoded,) = self._encode_prompts([prompt], 0)
        return self._stream_text(encoded, max_tokens)

    def _stream_text(self, prompt: list[int], max_tokens: int) -> Iterator[tuple[str, int]]:
        shown, pending = list(prompt), list[int]()
        for token in self._stream_tokens(prompt, max_tokens, 0):
            pending.append(token)
            text = self._decode_after(shown, pending)
            if text and not text.endswith(REPLACEMENT_CHARACTER):
                yield text, len(pending)
                shown, pending = pending, []
        if pending:
            yield self._decode_after(shown, pending), len(pending)

    def _decode_after(self, prefix: Sequence[int], tokens: Sequence[int]) -> str:
        """Decodes tokens together with the tokens before them, which may decide about a leading space."""
        decode = self.tokenizer.decode_running
        return decode([*prefix, *tokens])[len(decode(prefix)) :]

    def perplexity(
        self, text: str, *, window: int | None = None, done: Callable[[int], None] = lambda more: None
    ) -> Perplexity:
        """Computes the perplexity of a text in windows that do not overlap; each starts without context.

        Args:
            text: Text to score.
            window: Number of tokens predicted at a time. The default is the number of the model's positions.
            done: Callback for progress, called with the number of tokens that were predicted since the last call.

        Raises:
            ConfigError: The window exceeds the positions.
            DataError: The text has fewer tokens than a window.
        """
        window = window or self.model.seq_len
        parts = [np.array(ids, np.int64) for _, ids in encode_lines(self.tokenizer, StringIO(text))]
        tokens = np.concatenate([np.zeros(0, np.int64), *parts])
        count, losses = self.count_windows(tokens, window), list[float]()
        for batch in self.window_losses(tokens, window, range(count)):
            losses += batch
            done(window * len(batch))
        return Perplexity(math.fsum(losses) / (count * window), count * window, len(tokens) - count * window - 1)

    def count_windows(self, tokens: NDArray[np.integer], window: int) -> int:
        """Returns the number of whole windows of a text.

        Raises:
            ConfigError: The window exceeds the positions.
            DataError: The text has fewer tokens than a window.
        """
        if not 1 <= window <= self.model.seq_len:
            raise ConfigError(
                f"window={window} is not between 1 and the model's {self.model.seq_len} positions; choose a smaller one"
            )
        if (count := (len(tokens) - 1) // window) < 1:
            raise DataError(
                f"the text has {len(tokens)} tokens, but a window of {window} needs at least {window + 1}; "
                "give more text, or a smaller window"
            )
        return count

    def default_window(self, n_tokens: int) -> int:
        """Returns the context length, or the length of a shorter text."""
        return min(self.model.seq_len, max(1, n_tokens - 1))

    def windows_per_batch(self, window: int) -> int:
        """Returns the number of windows that are scored together."""
        return max(1, min(MAX_WINDOWS, MAX_LOGITS // (window * self.tokenizer.vocab_size)))

    def window_losses(self, tokens: NDArray[np.integer], window: int, windows: range) -> Iterator[list[float]]:
        """Yields the losses of windows in nats, batch by batch.

        Args:
            tokens: Tokens of the text.
            window: Number of tokens of a window.
            windows: Numbers of the windows, from a multiple of `windows_per_batch` on.
        """
        batch = self.windows_per_batch(window)
        for start in range(windows.start, windows.stop, batch):
            end = min(start + batch, windows.stop)
            part = torch.from_numpy(np.asarray(tokens[start * window : end * window + 1], np.int64)).to(self.device)
            yield self._losses(part[:-1].view(-1, window), part[1:].view(-1, window))

    def count_tokens(self, text: str) -> int:
        """Returns the number of tokens of a text, as `perplexity` counts them."""
        return sum(len(ids) for _, ids in encode_lines(self.tokenizer, StringIO(text)))

    @torch.inference_mode()
    def _losses(self, rows: torch.Tensor, labels: torch.Tensor) -> list[float]:
        log_p = self.model(rows).float().log_softmax(dim=-1)
        return (-log_p.gather(2, labels[:, :, None])).double().sum(dim=(1, 2)).tolist()

    def encode_prompt(self, prompt: str) -> list[int]:
        """Returns the tokens of a prompt; for an empty prompt, the token that begins a text.

        Args:
            prompt: Prompt of any length.

        Raises:
            ConfigError: The prompt has no tokens, and the model has none that begins a text.
        """
        if self.special_tokens and (tokens := self._template_tokenizer.encode_running([prompt])[0]):
            return tokens
        before, _ = self.tokenizer.boundary_tokens
        special_tokens = self.tokenizer.special_tokens
        tokens = self.tokenizer.encode_running([prompt])[0] if prompt else []
        is_published = self.tokenizer.kind == "published"
        if is_published and tuple(tokens[: len(before)]) != before:
            tokens = [*before, *tokens]
        if tokens:
            return tokens
        first = special_tokens.bos if special_tokens.bos is not None else special_tokens.eos
        tokens = [first] if is_published and first is not None else self.tokenizer.encode_running(["\n"])[0]
        if not tokens:
            raise ConfigError(
                f"the prompt {prompt!r} has no tokens, and the model none that begins a text; give a prompt"
            )
        return tokens

    def _request(self, tokens: list[int], limit: int, number: int, text: Sequence[int] = ()) -> Request:
        """Returns a request to continue tokens, which are the end of `text` if that is longer."""
        return Request(
            tokens[:-1], limit, number=number, decoder_start_token_id=tokens[-1], prompt=tuple(text or tokens)
        )

    def _chunk_requests(self, tokens: list[int], max_tokens: int, number: int) -> Iterator[Request]:
        """Yields one request after another. When the positions are used up, the next continues from the second half.

        The caller appends generated tokens to `tokens` between requests.
        """
        n_prompt, chunk = len(tokens), 0
        while (left := max_tokens - (len(tokens) - n_prompt)) > 0:
            free = self.model.seq_len - (len(tokens) - 1)
            fits = free > 0 and (chunk == 0 or free >= left)
            context = tokens if fits else tokens[-max(1, self.model.seq_len // 2) :]
            limit = min(left, self.model.seq_len - (len(context) - 1))
            yield self._request(list(context), limit, number * SEEDS_PER_PROMPT + chunk, tokens)
            chunk += 1

    def _stream_tokens(self, tokens: list[int], max_tokens: int, number: int) -> Iterator[int]:
        """Yields the continuation token by token, and appends it to `tokens`."""
        for request in self._chunk_requests(tokens, max_tokens, number):
            n_generated = 0
            for token in stream_tokens(self.model, request, self.search, self.tokenizer.special_tokens, self.device):
                tokens.append(token)
                n_generated += 1
                yield token
            if n_generated < request.limit:
                return

    def _generate_long(self, tokens: list[int], max_tokens: int, number: int) -> Continuation:
        """Returns the single continuation of a search without a beam; its length may exceed the positions."""
        prompt, n_prompt, score = list(tokens), len(tokens), 0.0
        for request in self._chunk_requests(tokens, max_tokens, number):
            search = replace(self.search, n_best=1)
            ((best,),) = self._search([request], search)
            tokens += best.tokens
            score += best.score
            if best.finished:
                return self._continuation(
                    prompt, Hypothesis(tokens[n_prompt:], score, finished=True, ranking_score=score)
                )
        return self._continuation(prompt, Hypothesis(tokens[n_prompt:], score, finished=False, ranking_score=score))

    def _search(self, requests: Sequence[Request], search: Search) -> list[list[Hypothesis]]:
        special_tokens = self.tokenizer.special_tokens
        return search_all(self.model, requests, search, device=self.device, special_tokens=special_tokens)

    def _continuation(self, prompt: Sequence[int], hypothesis: Hypothesis) -> Continuation:
        return Continuation(
            self._decode_after(prompt, hypothesis.tokens),
            tuple(hypothesis.tokens),
            hypothesis.score,
            hypothesis.finished,
        )
