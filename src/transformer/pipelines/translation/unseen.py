"""Unseen (out-of-vocabulary) characters."""

from transformer.tokenizers.base import Tokenizer
from transformer.tokenizers.sentencepiece import SPACE


class UnseenCharacters:
    """Finds characters that did not occur in the training text, or that the tokenizer does not know.

    Args:
        tokenizer: Tokenizer of the sources.
        seen: Characters of the training sources; None if they are not known.
    """

    def __init__(self, tokenizer: Tokenizer, seen: set[str] | None) -> None:
        self._tokenizer, self._is_recorded = tokenizer, seen is not None
        self._seen = {" ", *(seen or ())}
        self._unseen: set[str] = set()

    def find(self, text: str) -> tuple[str, ...]:
        """Returns the unseen characters of a text, as the tokenizer normalizes it, sorted; none is white space."""
        if text.isascii() and self._seen.issuperset(text):
            return ()
        read = self._tokenizer.without_special_tokens(text)
        characters = set(self._tokenizer.normalize(read).replace(SPACE, " "))
        new = characters - self._seen - self._unseen
        for character in new:
            is_known = character.isspace() or (not self._is_recorded and not self._is_unknown(character))
            (self._seen if is_known else self._unseen).add(character)
        return tuple(sorted(self._unseen & characters))

    def _is_unknown(self, character: str) -> bool:
        return self._tokenizer.special_tokens.unk in self._tokenizer.encode(character)
