"""The recipe's `tokenizer` section."""

from typing import Literal

from pydantic import Field

from transformer.config import Config


class NormalizationConfig(Config):
    """Normalization of a text before it is tokenized; none by default.

    Attributes:
        unicode: "nfc" composes characters (e + accent -> é); "none" leaves them unchanged.
        lowercase: Whether the text is lower-cased.
    """

    unicode: Literal["none", "nfc"] = Field(default="none", description="compose characters to NFC, or leave them")
    lowercase: bool = Field(default=False, description="lower-case the text")


class TokenizerConfig(NormalizationConfig):
    """Options for training the tokenizer.

    Attributes:
        kind: Unit of a token: byte-pair merges, single bytes, or the characters of the training text.
        joint: Whether both languages share one tokenizer, which shared embeddings require.
        vocab_size: Tokens of each tokenizer, special tokens and the 256 bytes included; None chooses by corpus size.
        min_frequency: Minimum number of occurrences of a merge in the training text.
        training_pairs: Maximum number of training pairs; from a larger corpus, every second, third, ... pair is used.
    """

    kind: Literal["bpe", "bytes", "characters"] = Field(
        default="bpe", description="byte-pair merges, single bytes, or the characters of the training text"
    )
    joint: bool = Field(default=True, description="one tokenizer for both languages")
    vocab_size: int | None = Field(
        default=None, ge=260, description="number of tokens, chosen by corpus size if not set"
    )
    min_frequency: int = Field(default=2, ge=1, description="minimum occurrences of a merge in the training text")

    training_pairs: int = Field(
        default=1_000_000, ge=1, description="maximum number of training pairs, evenly spread over the corpus"
    )

    @property
    def normalization(self) -> NormalizationConfig:
        """Normalization options, which are stored with the tokenizer."""
        return NormalizationConfig(unicode=self.unicode, lowercase=self.lowercase)
