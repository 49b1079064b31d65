"""Tokenizes terminology constraints."""

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property

from transformer.decoding import Constraint, Tokens
from transformer.pipelines.translation.terminology import Terminology
from transformer.tokenizers.base import Tokenizer
from transformer.tokenizers.sentencepiece import SPACE

_CONTINUATION_BYTE = re.compile(r"<(?:0x)?[89A-F][0-9A-F]>$")
"""Printed byte of a multi-byte character; such a character is treated as a letter."""


class PhraseTokenizer:
    """Tokenizes the phrases of terminologies.

    Args:
        tokenizer: Target tokenizer.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._tokens_after: dict[frozenset[str], frozenset[int]] = {}

    def banned(self, terminology: Terminology) -> list[Tokens]:
        """Returns the token sequences that must not be generated."""
        return [tokens for phrase in terminology.banned for tokens in self._spellings(phrase)]

    def constraints(self, line: str, terminology: Terminology) -> tuple[Constraint, ...]:
        """Returns what the translation of a line must contain, except phrases with characters outside the vocabulary.

        A phrase is not followed by a letter or digit. Where no space precedes it, the phrase only counts if the text
        around it does not turn it into another span.
        """
        if not terminology.is_active:
            return ()
        joined = terminology.joined_spans(line)
        required = terminology.required_phrases(line).items()
        constraints = (self._constraint(terminology, phrase, n, phrase in joined) for phrase, n in required)
        return tuple(constraint for constraint in constraints if constraint.variants)

    def _constraint(self, terminology: Terminology, phrase: str, times: int, is_joined: bool) -> Constraint:
        """Returns the constraint of a phrase; it has no variants if the vocabulary lacks one of its characters.

        Args:
            terminology: Terminology that requires the phrase.
            phrase: Phrase that is required.
            times: How often the phrase is required.
            is_joined: Whether the phrase may also follow a character other than a space.
        """
        first, *others = self._spellings(phrase)
        joined = {spelling for spelling in others if is_joined or spelling == first}
        unknown = self._tokenizer.special_tokens.unk
        spellings = tuple(spelling for spelling in dict.fromkeys((first, *joined)) if unknown not in spelling)
        return Constraint(
            spellings,
            times,
            self._word_continuations if re.search(r"\w$", phrase) else frozenset(),
            frozenset(joined.intersection(spellings)),
            self._not_after(terminology, phrase) if joined else frozenset(),
        )

    def _spellings(self, phrase: str) -> Iterator[Tokens]:
        """Yields the tokens of a phrase after a space or at the start, then its tokens after another character."""
        mark = "("
        first, joined, alone = (self._tokenizer.encode(text) for text in (phrase, mark + phrase, mark))
        yield tuple(first)
        if joined[: len(alone)] == alone and len(joined) > len(alone):
            yield tuple(joined[len(alone) :])

    def _not_after(self, terminology: Terminology, phrase: str) -> frozenset[int]:
        """Returns the tokens whose last character turns the phrase into another span, or into a part of a word."""
        spans = terminology.protected_spans
        is_span = phrase in spans(phrase)
        wrong = frozenset(
            last
            for last in self._tokens_by_last_character
            if (phrase not in spans(last + phrase) if is_span else re.match(r"\w\w", last + phrase))
        )
        if wrong not in self._tokens_after:  # there are few: all numbers share one set, all addresses another
            self._tokens_after[wrong] = frozenset(
                token for last in wrong for token in self._tokens_by_last_character[last]
            )
        return self._tokens_after[wrong]

    @cached_property
    def _word_continuations(self) -> frozenset[int]:
        """The tokens that continue a word or a number."""
        return frozenset(token for token, piece in enumerate(self._pieces) if re.match(r"\w", piece))

    @cached_property
    def _tokens_by_last_character(self) -> dict[str, list[int]]:
        """The tokens by their last character; non-ASCII characters are grouped as letters ("ß") and others ("·")."""
        tokens = defaultdict[str, list[int]](list)
        for token, piece in enumerate(self._pieces):
            last = "ß" if _CONTINUATION_BYTE.search(piece) else piece[-1:].replace(SPACE, " ")
            tokens[last if last.isascii() else "ß" if last.isalnum() else "·"].append(token)
        return tokens

    @cached_property
    def _pieces(self) -> list[str]:
        return self._tokenizer.pieces(range(self._tokenizer.vocab_size))
