"""A tokenizer with one token per character."""

import json
from collections.abc import Iterable, Sequence

from transformer.config import describe_error
from transformer.errors import DataError
from transformer.tokenizers.base import Tokenizer
from transformer.tokenizers.config import NormalizationConfig, TokenizerConfig
from transformer.tokenizers.special_tokens import N_SPECIAL_TOKENS, UNK_ID


class CharacterTokenizer(Tokenizer):
    """Encodes each character (Unicode code point) as a token; characters absent from the training text become [UNK].

    Args:
        characters: Characters in the order of their ids.
        normalization: Normalization of a text before it is encoded.
    """

    kind = "characters"

    def __init__(self, characters: Sequence[str], normalization: NormalizationConfig) -> None:
        super().__init__(normalization)
        self.characters = list(characters)
        self._ids = {character: token for token, character in enumerate(self.characters, start=N_SPECIAL_TOKENS)}

    @classmethod
    def train(cls, texts: Iterable[str], settings: TokenizerConfig, *, is_target: bool = False) -> "CharacterTokenizer":
        """Builds the vocabulary from the sorted characters of texts.

        Args:
            texts: Lines of text.
            settings: The recipe's `tokenizer` section.
            is_target: Whether the texts are targets.

        Raises:
            DataError: the texts are empty.
        """
        tokenizer = cls([], settings.normalization)
        tokenizer.is_target = is_target
        characters: set[str] = set()
        for text in texts:
            characters.update(tokenizer.normalize(text))
        if not characters:
            raise DataError("the training text is empty; a tokenizer needs text to learn from")
        trained = cls(sorted(characters), settings.normalization)
        trained.is_target = is_target
        return trained

    @property
    def vocab_size(self) -> int:
        """Number of ids, special tokens included."""
        return len(self.characters) + N_SPECIAL_TOKENS + len(self.tags)

    @property
    def has_tags_last(self) -> bool:
        """Implements `Tokenizer.has_tags_last`."""
        return True

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Encodes several texts."""
        ids = [[self._ids.get(character, UNK_ID) for character in self.normalize(text)] for text in texts]
        return self._with_leading(ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Decodes token ids to text; special tokens are omitted."""
        last = self.vocab_size - len(self.tags)
        return "".join(self.characters[i - N_SPECIAL_TOKENS] for i in ids if N_SPECIAL_TOKENS <= i < last)

    def fallback_bytes(self) -> list[int]:
        """Returns zeros: no character is split into bytes."""
        return [0] * self.vocab_size

    def to_json(self) -> str:
        """Returns the file content from which `from_json` recreates the tokenizer."""
        content = {"characters": self.characters, "normalization": self.normalization.to_fields()}
        content |= self._tag_fields()
        return json.dumps(content, ensure_ascii=False)

    @classmethod
    def from_json(cls, content: str) -> "CharacterTokenizer":
        """Creates a tokenizer from the content that `to_json` wrote.

        Raises:
            DataError: the content is not that of such a tokenizer.
        """
        try:
            fields = json.loads(content)
            characters = fields["characters"]
            if not isinstance(characters, list) or any(len(character) != 1 for character in characters):
                raise DataError("its characters are not a list of single characters")
            "".join(characters).encode()
            tokenizer = cls(characters, NormalizationConfig.model_validate(fields["normalization"]))
            return tokenizer._with_stored_tags(fields)
        except (KeyError, TypeError, ValueError, RecursionError, DataError) as error:
            raise DataError(
                f"not a tokenizer of this package: {describe_error(error)}; train or export it again"
            ) from error

    def _printable_piece(self, token: int) -> str:
        """Implements `Tokenizer._printable_piece`."""
        index = token - N_SPECIAL_TOKENS
        return self.characters[index].replace(" ", "▁") if index < len(self.characters) else f"[{token}]"
