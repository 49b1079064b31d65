"""Tokenizes banned phrases."""

from collections.abc import Iterator

from transformer.decoding import Tokens
from transformer.pipelines.translation.terminology import Terminology
from transformer.tokenizers.base import Tokenizer


def banned_sequences(tokenizer: Tokenizer, terminology: Terminology) -> list[Tokens]:
    """Returns the token sequences that must not be generated."""
    return [tokens for phrase in terminology.banned for tokens in _spellings(tokenizer, phrase)]


def _spellings(tokenizer: Tokenizer, phrase: str) -> Iterator[Tokens]:
    """Yields the tokens of a phrase after a space or at the start, then its tokens after another character."""
    mark = "("
    first, joined, alone = (tokenizer.encode(text) for text in (phrase, mark + phrase, mark))
    yield tuple(first)
    if joined[: len(alone)] == alone and len(joined) > len(alone):
        yield tuple(joined[len(alone) :])
