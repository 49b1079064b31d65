"""What a lexicon binds translations to, as tokens."""

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property

from transformer.decoding import Constraint, Tokens
from transformer.pipelines.translation.terminology import Terminology
from transformer.tokenizers.base import Tokenizer
from transformer.tokenizers.sentencepiece import SPACE

_PART_OF_A_CHARACTER = re.compile(r"<(?:0x)?[89A-F][0-9A-F]>$")
"""A byte, as it is printed, of a character of several, which is taken for a letter."""


class ConstraintTokenizer:
    """Writes the phrases of a lexicon as a tokenizer does."""

    def __init__(self, tokenizer: Tokenizer, lexicon: Terminology) -> None:
        self._tokenizer, self._lexicon = tokenizer, lexicon
        self._known: dict[frozenset[str], frozenset[int]] = {}

    def banned(self) -> list[Tokens]:
        """The tokens of what is never written."""
        return [tokens for phrase in self._lexicon.banned for tokens in self._spellings(phrase)]

    def phrases(self, line: str) -> tuple[Constraint, ...]:
        """What the translation of a line must hold, but for what the vocabulary lacks a character of.

        No letter or digit goes on with a phrase, and what follows no space stands where it is still the span it was.
        """
        if not self._lexicon.binds:
            return ()
        joined = self._lexicon.joined(line)
        asked = self._lexicon.required(line).items()
        phrases = (self._phrase(phrase, times, phrase in joined) for phrase, times in asked)
        return tuple(phrase for phrase in phrases if phrase.variants)

    def _phrase(self, text: str, times: int, is_joined: bool) -> Constraint:
        """A phrase after a space, or also after another character; without spellings if the vocabulary lacks one."""
        first, *others = self._spellings(text)
        joined = {each for each in others if is_joined or each == first}
        spellings = tuple(
            each for each in dict.fromkeys((first, *joined)) if self._tokenizer.special_tokens.unk not in each
        )
        return Constraint(
            spellings,
            times,
            self._letters if re.search(r"\w$", text) else frozenset(),
            frozenset(joined.intersection(spellings)),
            self._not_after(text) if joined else frozenset(),
        )

    def _spellings(self, phrase: str) -> Iterator[Tokens]:
        """The tokens of a phrase where it follows a space or begins the text, and where it follows a character."""
        mark = "("
        first, joined, alone = (self._tokenizer.encode(text) for text in (phrase, mark + phrase, mark))
        yield tuple(first)
        if joined[: len(alone)] == alone and len(joined) > len(alone):
            yield tuple(joined[len(alone) :])

    def _not_after(self, text: str) -> frozenset[int]:
        """The tokens after whose last character a span is another one, or none, and a term a part of a word."""
        is_span = text in self._lexicon.spans(text)
        wrong = frozenset(
            last
            for last in self._ending
            if (text not in self._lexicon.spans(last + text) if is_span else re.match(r"\w\w", last + text))
        )
        if wrong not in self._known:  # few: numbers share one, addresses another
            self._known[wrong] = frozenset(token for last in wrong for token in self._ending[last])
        return self._known[wrong]

    @cached_property
    def _letters(self) -> frozenset[int]:
        """The tokens that go on with a word or number."""
        return frozenset(token for token, piece in enumerate(self._pieces) if re.match(r"\w", piece))

    @cached_property
    def _ending(self) -> dict[str, list[int]]:
        """The tokens that end in a character, by that; what is not ASCII is a letter like others, or a sign."""
        found = defaultdict[str, list[int]](list)
        for token, piece in enumerate(self._pieces):
            last = "ß" if _PART_OF_A_CHARACTER.search(piece) else piece[-1:].replace(SPACE, " ")
            found[last if last.isascii() else "ß" if last.isalnum() else "·"].append(token)
        return found

    @cached_property
    def _pieces(self) -> list[str]:
        return self._tokenizer.pieces(range(self._tokenizer.vocab_size))
