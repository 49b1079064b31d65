"""Tokenizes terminology constraints."""

import re
from collections.abc import Iterator
from functools import cached_property

from transformer.decoding import Constraint, Tokens
from transformer.pipelines.translation.terminology import Terminology
from transformer.tokenizers.base import Tokenizer

_CONTINUATION_BYTE = re.compile(r"<(?:0x)?[89A-F][0-9A-F]>$")
"""Printed byte of a multi-byte character; such a character is treated as a letter."""


class PhraseTokenizer:
    """Tokenizes the phrases of terminologies.

    Args:
        tokenizer: Target tokenizer.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def banned(self, terminology: Terminology) -> list[Tokens]:
        """Returns the token sequences that must not be generated."""
        return [tokens for phrase in terminology.banned for tokens in self._spellings(phrase)]

    def constraints(self, line: str, terminology: Terminology) -> tuple[Constraint, ...]:
        """Returns what the translation of a line must contain, except phrases with characters outside the vocabulary.

        A phrase is a word of its own: no letter or digit is beside it.
        """
        constraints = map(self._constraint, terminology.required_phrases(line))
        return tuple(constraint for constraint in constraints if constraint.variants)

    def _constraint(self, phrase: str) -> Constraint:
        """Returns the constraint of a phrase; it has no variants if the vocabulary lacks one of its characters."""
        first, *others = self._spellings(phrase)
        joined = first in others
        known = self._tokenizer.special_tokens.unk not in first
        return Constraint(
            (first,) * known,
            1,
            self._word_continuations if re.search(r"\w$", phrase) else frozenset(),
            frozenset([first] * (joined and known)),
            self._letters if joined and re.match(r"\w", phrase) else frozenset(),
        )

    def _spellings(self, phrase: str) -> Iterator[Tokens]:
        """Yields the tokens of a phrase after a space or at the start, then its tokens after another character."""
        mark = "("
        first, joined, alone = (self._tokenizer.encode(text) for text in (phrase, mark + phrase, mark))
        yield tuple(first)
        if joined[: len(alone)] == alone and len(joined) > len(alone):
            yield tuple(joined[len(alone) :])

    @cached_property
    def _word_continuations(self) -> frozenset[int]:
        """The tokens that continue a word or a number."""
        return frozenset(token for token, piece in enumerate(self._pieces) if re.match(r"\w", piece))

    @cached_property
    def _letters(self) -> frozenset[int]:
        """The tokens that end in a letter or digit."""
        return frozenset(
            token
            for token, piece in enumerate(self._pieces)
            if _CONTINUATION_BYTE.search(piece) or re.search(r"\w$", piece)
        )

    @cached_property
    def _pieces(self) -> list[str]:
        return self._tokenizer.pieces(range(self._tokenizer.vocab_size))
