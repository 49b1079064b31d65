"""The recipe's `tokenizer` section."""

from typing import Literal

from pydantic import Field

from transformer.config import Config


class NormalizationConfig(Config):
    """Text normalization before tokenization; none by default.

    Attributes:
        unicode: "nfc" composes characters (e + accent -> é); "none" leaves them unchanged.
        lowercase: Whether the text is lowercased.
    """

    unicode: Literal["none", "nfc"] = Field(
        default="none", description="Unicode normalization: nfc composes characters, none leaves them unchanged"
    )
    lowercase: bool = Field(default=False, description="lowercase the text")


class TokenizerConfig(NormalizationConfig):
    """Options for training the tokenizer.

    Attributes:
        kind: Token unit: byte-pair merges, single bytes, or the characters of the training text.
        joint: Whether both languages share one tokenizer, which `share_embeddings="all"` requires.
        vocab_size: Vocabulary size of each tokenizer, special tokens and the 256 bytes included; if None, chosen by
            corpus size.
        min_frequency: Minimum number of occurrences of a merge in the training text.
        training_pairs: Maximum number of training pairs; from a larger corpus, every second, third, ... pair is used.
    """

    kind: Literal["bpe", "bytes", "characters"] = Field(
        default="bpe", description="token unit: byte-pair merges, single bytes, or the characters of the training text"
    )
    joint: bool = Field(
        default=True, description="share one tokenizer between both languages; required for share_embeddings=all"
    )
    vocab_size: int | None = Field(
        default=None,
        ge=260,
        description="vocabulary size per tokenizer, with special tokens and 256 bytes; by corpus size if not set",
    )
    min_frequency: int = Field(
        default=2, ge=1, description="minimum number of occurrences of a merge in the training text"
    )

    training_pairs: int = Field(
        default=1_000_000,
        ge=1,
        description="maximum number of pairs to train the tokenizer on, evenly spaced in the corpus",
    )

    @property
    def normalization(self) -> NormalizationConfig:
        """Normalization options, which are stored with the tokenizer."""
        return NormalizationConfig(unicode=self.unicode, lowercase=self.lowercase)
