"""What a lexicon binds translations to, as tokens."""

import re
from collections.abc import Iterator
from functools import cached_property

from transformer.decoding import Phrase, Tokens
from transformer.text.lexicon import Lexicon
from transformer.text.tokenizer import Tokenizer


class Speller:
    """Writes the phrases of a lexicon as a tokenizer does."""

    def __init__(self, tokenizer: Tokenizer, lexicon: Lexicon) -> None:
        self._tokenizer, self._lexicon = tokenizer, lexicon

    def banned(self) -> list[Tokens]:
        """The tokens of what is never written."""
        return [tokens for phrase in self._lexicon.banned for tokens in self._spellings(phrase)]

    def phrases(self, line: str) -> tuple[Phrase, ...]:
        """What the translation of a line must hold, but for what the vocabulary lacks a character of.

        No letter or digit goes on with a phrase.
        """
        if not self._lexicon.binds:
            return ()
        joined = self._lexicon.joined(line)
        required = self._lexicon.required(line)
        written = {phrase: self._written(phrase, phrase in joined) for phrase in required}
        return tuple(
            Phrase(written[phrase], times, self._letters if re.search(r"\w$", phrase) else frozenset())
            for phrase, times in required.items()
            if written[phrase]
        )

    def _written(self, phrase: str, is_joined: bool) -> tuple[Tokens, ...]:
        """A phrase after a space, or also after another character; nothing where the vocabulary lacks a character."""
        found = list(self._spellings(phrase))
        return tuple(each for each in (found if is_joined else found[:1]) if self._tokenizer.control.unk not in each)

    def _spellings(self, phrase: str) -> Iterator[Tokens]:
        """The tokens of a phrase where it follows a space or begins the text, and where it follows a character."""
        mark = "("
        first, joined, alone = (self._tokenizer.encode(text) for text in (phrase, mark + phrase, mark))
        yield tuple(first)
        if joined[: len(alone)] == alone and len(joined) > len(alone):
            yield tuple(joined[len(alone) :])

    @cached_property
    def _letters(self) -> frozenset[int]:
        """The tokens that go on with a word or number."""
        pieces = self._tokenizer.pieces(range(self._tokenizer.vocab_size))
        return frozenset(token for token, piece in enumerate(pieces) if re.match(r"\w", piece))
