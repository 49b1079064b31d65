"""One token a character."""

import json
from collections.abc import Iterable, Sequence

from transformer.errors import DataError
from transformer.tokenizers.base import Tokenizer
from transformer.tokenizers.config import NormalizationConfig, TokenizerConfig
from transformer.tokenizers.special_tokens import N_SPECIAL_TOKENS, UNK_ID


class CharacterTokenizer(Tokenizer):
    """Encodes each character (Unicode code point) as a token; those that the training text lacks become [UNK].

    Args:
        characters: in the order of their ids.
        normalization: what is changed in a text before.
    """

    kind = "characters"

    def __init__(self, characters: Sequence[str], normalization: NormalizationConfig) -> None:
        super().__init__(normalization)
        self.characters = list(characters)
        self._ids = {character: token for token, character in enumerate(self.characters, start=N_SPECIAL_TOKENS)}

    @classmethod
    def train(cls, texts: Iterable[str], settings: TokenizerConfig) -> "CharacterTokenizer":
        """Takes the characters of a text, sorted.

        Raises:
            DataError: there is no text.
        """
        tokenizer = cls([], settings.normalization)
        found: set[str] = set()
        for text in texts:
            found.update(tokenizer.normalize(text))
        if not found:
            raise DataError("the training text is empty; a tokenizer needs text to learn from")
        return cls(sorted(found), settings.normalization)

    @property
    def vocab_size(self) -> int:
        """Number of ids, control ids included."""
        return len(self.characters) + N_SPECIAL_TOKENS

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The token ids of many texts."""
        return [[self._ids.get(character, UNK_ID) for character in self.normalize(text)] for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids; control ids are left out."""
        last = self.vocab_size
        return "".join(self.characters[i - N_SPECIAL_TOKENS] for i in ids if N_SPECIAL_TOKENS <= i < last)

    def fallback_bytes(self) -> list[int]:
        """No id spends bytes."""
        return [0] * self.vocab_size

    def to_json(self) -> str:
        """The file content from which `from_json` makes the same tokenizer."""
        content = {"characters": self.characters, "normalization": self.normalization.model_dump()}
        return json.dumps(content, ensure_ascii=False)

    @classmethod
    def from_json(cls, content: str) -> "CharacterTokenizer":
        """Reads what `to_json` wrote.

        Raises:
            DataError: the content is something else.
        """
        try:
            fields = json.loads(content)
            characters = [str(character) for character in fields["characters"]]
            return cls(characters, NormalizationConfig.model_validate(fields["normalization"]))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"not a tokenizer of this package ({error}); train or export it again") from error

    def _piece(self, token: int) -> str:
        """As `Tokenizer._piece`."""
        place = token - N_SPECIAL_TOKENS
        return self.characters[place].replace(" ", "▁") if place < len(self.characters) else f"[{token}]"
