"""Vectors, labels and masked words of texts, in a worker."""

from collections.abc import Sequence
from typing import Any

from transformer.pipelines.classification import Guess, Label, TextEncoder, encode_masked
from transformer.serving.engine.options import EmbedTaskOptions, TopTaskOptions
from transformer.serving.errors import ServiceError


def embed(encoder: TextEncoder, texts: Sequence[str], options: EmbedTaskOptions) -> list[dict[str, Any]]:
    """Returns the vector of each text, of length 1.

    Raises:
        ServiceError: Vectors of other lengths are asked for.
    """
    if not options.normalize:
        raise ServiceError("invalid_request", "vectors always have length 1; leave normalize out", param="normalize")
    lengths = encoder.count_tokens(texts)
    vectors: list[list[float]] = encoder.embed(texts).tolist()
    return [{"vector": vector, "tokens": n} for vector, n in zip(vectors, lengths, strict=True)]


def classify(encoder: TextEncoder, texts: Sequence[str], options: TopTaskOptions) -> list[dict[str, Any]]:
    """Returns the most probable labels of each text.

    Raises:
        ServiceError: An option is invalid.
        ConfigError: The model has no labels.
    """
    labels = encoder.classify(texts)
    return [
        {"labels": _most_probable(label, options.top), "tokens": n}
        for label, n in zip(labels, encoder.count_tokens(texts), strict=True)
    ]


def fill(encoder: TextEncoder, text: str, options: TopTaskOptions) -> dict[str, Any]:
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
