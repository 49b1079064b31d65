"""Vectors, labels and masked words of texts, in a worker."""

from collections.abc import Callable, Sequence
from typing import Any

from transformer.pipelines.classification import Guess, Label, TextEncoder, encode_masked
from transformer.serving.engine.options import ClassifyTaskOptions, EmbedTaskOptions, EncodeTaskOptions, FillTaskOptions
from transformer.serving.errors import ServiceError


def embed(encoder: TextEncoder, texts: Sequence[str], options: EmbedTaskOptions) -> list[dict[str, Any]]:
    """Returns the vector of each text, of length 1; a text that is too long has an error instead.

    Raises:
        ServiceError: Vectors of other lengths, or with another number of numbers, are asked for.
    """
    n_numbers = encoder.config.d_model
    if options.dimensions not in (None, n_numbers):
        message = f"vectors of this model have {n_numbers} numbers; leave dimensions out"
        raise ServiceError("invalid_request", message, param="dimensions")
    if not options.normalize:
        raise ServiceError("invalid_request", "vectors always have length 1; leave normalize out", param="normalize")
    return _encode(encoder, texts, options, lambda chosen: [{"vector": row} for row in encoder.embed(chosen).tolist()])


def classify(encoder: TextEncoder, texts: Sequence[str], options: ClassifyTaskOptions) -> list[dict[str, Any]]:
    """Returns the most probable labels of each text; a text that is too long has an error instead.

    Raises:
        ConfigError: The model has no labels.
    """
    return _encode(
        encoder,
        texts,
        options,
        lambda chosen: [{"labels": _most_probable(label, options.top)} for label in encoder.classify(chosen)],
    )


def _encode(
    encoder: TextEncoder,
    texts: Sequence[str],
    options: EncodeTaskOptions,
    run: Callable[[Sequence[str]], list[dict[str, Any]]],
) -> list[dict[str, Any]]:
    """Returns the results of the texts that the model reads, with their numbers of tokens, and the errors of others."""
    n_special, limit = sum(map(len, encoder.tokenizer.boundary_tokens)), encoder.config.max_text_tokens
    lengths = [len(tokens) + n_special for tokens in encoder.tokenizer.encode_batch(texts)]
    is_read = [options.truncate or n <= limit for n in lengths]
    results = iter(run([text for text, is_chosen in zip(texts, is_read, strict=True) if is_chosen]))
    return [
        {**next(results), "tokens": min(n, limit)} if is_chosen else {"error": _too_long(n, limit).to_json()}
        for n, is_chosen in zip(lengths, is_read, strict=True)
    ]


def _too_long(n_tokens: int, limit: int) -> ServiceError:
    message = (
        f"This model's maximum context length is {limit} tokens, and the text has {n_tokens}; "
        "shorten it, or cut it by truncate=true"
    )
    return ServiceError("invalid_request", message, param="input")


def fill(encoder: TextEncoder, text: str, options: FillTaskOptions) -> dict[str, Any]:
    """Returns the most probable tokens of each mask of a text.

    Raises:
        ServiceError: An option is invalid.
        ConfigError: The model does not predict masked words.
        DataError: The text has no mask, or is too long.
    """
    masks = encoder.fill(text, options.top)
    tokens, _ = encode_masked(encoder.tokenizer, text, encoder.config.seq_len)
    return {"masks": [[_guess(guess) for guess in guesses] for guesses in masks], "tokens": len(tokens)}


def _most_probable(label: Label, top: int) -> list[dict[str, Any]]:
    ordered = sorted(label.probabilities.items(), key=lambda entry: -entry[1])
    return [{"label": name, "probability": probability} for name, probability in ordered[:top]]


def _guess(guess: Guess) -> dict[str, Any]:
    return {"token": guess.piece, "text": guess.text, "probability": guess.probability}
