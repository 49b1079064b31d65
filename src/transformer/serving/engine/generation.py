"""Continuations of prompts, in a worker."""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from transformer.decoding import Search
from transformer.errors import ConfigError
from transformer.options.search import MIN_TEMPERATURE, Sampling
from transformer.pipelines.text_generation import Continuation, Generator
from transformer.serving.engine.options import GenerateTaskOptions, SearchTaskOptions
from transformer.serving.engine.stop_sequences import StopSequences, cut_at_stop
from transformer.serving.errors import ServiceError


@dataclass(frozen=True)
class GenerationOptions:
    """Options of continuations.

    Attributes:
        search: Search options.
        max_tokens: Maximum number of tokens; None is as many as the model has positions for.
        stops: Texts that end a continuation.
        special_tokens: Whether names of special tokens in prompts are these tokens.
        is_seeded: Whether the client chose the seed, so that the result must not depend on other prompts of a batch.
    """

    search: Search
    max_tokens: int | None
    stops: tuple[str, ...]
    special_tokens: bool
    is_seeded: bool

    def generator(self, loaded: Generator) -> Generator:
        """Returns a generator with these options and the model of another one."""
        search = self.search.with_defaults(loaded.search.repetition_penalty, loaded.search.no_repeat_ngram)
        return Generator(loaded.model, loaded.tokenizer, search=search, special_tokens=self.special_tokens)


def generation_options(options: GenerateTaskOptions) -> GenerationOptions:
    """Reads the options of continuations.

    Raises:
        ServiceError: An option is invalid.
    """
    try:
        sampling = sampling_of(options, top_k=options.top_k, top_p=options.top_p)
        search = Search(beam=options.n_best, n_best=options.n_best, sampling=sampling)
    except ConfigError as error:
        raise options.refusal(error) from error
    return GenerationOptions(search, options.max_tokens, options.stop, options.special_tokens, options.seed is not None)


def sampling_of(options: SearchTaskOptions, **filters: Any) -> Sampling | None:
    """Returns the options for drawing tokens; None for a temperature of 0 (below `MIN_TEMPERATURE`), or without one.

    Without a seed, each call chooses another one.

    Raises:
        ConfigError: A value is out of its range.
    """
    if options.temperature < MIN_TEMPERATURE:
        return None
    seed = secrets.randbits(32) if options.seed is None else options.seed
    return Sampling(temperature=options.temperature, seed=seed, **filters)


def generate(generator: Generator, prompts: Sequence[str], options: GenerateTaskOptions) -> list[dict[str, Any]]:
    """Returns the continuations of each prompt.

    Raises:
        ServiceError: An option is invalid.
        ConfigError: A prompt exceeds the model's positions, or has no tokens.
    """
    chosen = generation_options(options)
    generator = chosen.generator(generator)
    lengths = [prompt_length(generator, prompt) for prompt in prompts]
    if chosen.stops and chosen.search.n_best == 1:
        return [_until_stop(generator, prompt, chosen) for prompt in prompts]
    results: list[dict[str, Any]] = []
    for limit, group in groupby(range(len(prompts)), lambda index: _limit(generator, lengths[index], chosen)):
        indices = list(group)
        for batch in [[index] for index in indices] if chosen.is_seeded else [indices]:
            continued = generator.generate([prompts[index] for index in batch], max_tokens=limit)
            results += [
                {"alternatives": [_alternative(text, chosen.stops) for text in texts], "prompt_tokens": lengths[index]}
                for index, texts in zip(batch, continued, strict=True)
            ]
    return results


def stream(generator: Generator, prompt: str, options: GenerateTaskOptions) -> Iterator[dict[str, Any]]:
    """Yields the continuation of a prompt while it is generated, and last an empty text with the numbers of tokens.

    Raises:
        ServiceError: An option is invalid, or several continuations are asked for.
        ConfigError: The prompt exceeds the model's positions, or has no tokens.
    """
    chosen = generation_options(options)
    if chosen.search.n_best > 1:
        raise ServiceError("invalid_request", "a stream has one continuation; ask for one", param="n_best")
    return _stream(chosen.generator(generator), prompt, chosen)


def prompt_length(generator: Generator, prompt: str) -> int:
    """Returns the number of tokens of a prompt.

    Raises:
        ConfigError: The prompt exceeds the model's positions, or has no tokens.
    """
    n_tokens, seq_len = len(generator.encode_prompt(prompt)), generator.model.seq_len
    if n_tokens > seq_len:
        raise ConfigError(f"a prompt of {n_tokens} tokens exceeds the model's {seq_len} positions; shorten it")
    return n_tokens


def _limit(generator: Generator, n_prompt: int, chosen: GenerationOptions) -> int:
    """Returns the maximum number of tokens with which prompt and continuation fit into the model's positions."""
    free = generator.model.seq_len - n_prompt + 1
    return free if chosen.max_tokens is None else min(free, chosen.max_tokens)


def _stream(generator: Generator, prompt: str, chosen: GenerationOptions) -> Iterator[dict[str, Any]]:
    n_prompt = prompt_length(generator, prompt)
    limit, cutter, n_tokens, n_shown = _limit(generator, n_prompt, chosen), StopSequences(chosen.stops), 0, 0
    for piece, more in generator.stream_counted(prompt, max_tokens=limit):
        n_tokens += more
        if text := cutter.add(piece):
            yield {"text": text, "tokens": n_tokens - n_shown}
            n_shown = n_tokens
        if cutter.found:
            break
    if text := cutter.rest():
        yield {"text": text, "tokens": n_tokens - n_shown}
    finished = cutter.found or n_tokens < limit
    yield {"text": "", "finished": finished, "prompt_tokens": n_prompt, "tokens": n_tokens}


def _until_stop(generator: Generator, prompt: str, chosen: GenerationOptions) -> dict[str, Any]:
    """Returns the continuation of a prompt, whose generation ends at a stop sequence. Its score is not known."""
    *parts, last = _stream(generator, prompt, chosen)
    text = "".join(part["text"] for part in parts)
    alternative = {"text": text, "score": None, "finished": last["finished"], "tokens": last["tokens"]}
    return {"alternatives": [alternative], "prompt_tokens": last["prompt_tokens"]}


def _alternative(continuation: Continuation, stops: Sequence[str]) -> Mapping[str, Any]:
    text, is_stopped = cut_at_stop(continuation.text, stops)
    return {
        "text": text,
        "score": continuation.score,
        "finished": continuation.finished or is_stopped,
        "tokens": len(continuation.tokens),
    }
