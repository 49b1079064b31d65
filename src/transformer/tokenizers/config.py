"""The recipe's `tokenizer` section."""

from typing import Literal

from pydantic import Field

from transformer.config import Config


class NormalizationConfig(Config):
    """What is changed in a text before it is split into tokens; nothing by default.

    Attributes:
        unicode: "nfc" composes characters (e + accent -> é); "none" leaves them.
        lowercase: lower-case everything.
    """

    unicode: Literal["none", "nfc"] = Field(default="none", description="compose characters to NFC, or leave them")
    lowercase: bool = Field(default=False, description="lower-case the text")


class TokenizerConfig(NormalizationConfig):
    """How the tokenizer is trained.

    Attributes:
        kind: byte-pair merges, single bytes, or the characters that the training text holds.
        joint: one tokenizer for both languages, which sharing all embeddings needs; False trains one each.
        vocab_size: tokens of each tokenizer, control tokens and the 256 bytes included; None chooses by corpus size.
        min_frequency: a merge must occur so often in the training text.
        training_pairs: most pairs that it is learned from; of a larger corpus it takes every second, third, ... pair.
    """

    kind: Literal["bpe", "bytes", "characters"] = Field(
        default="bpe", description="byte-pair merges, single bytes, or the characters of the training text"
    )
    joint: bool = Field(default=True, description="one tokenizer for both languages")
    vocab_size: int | None = Field(default=None, ge=260, description="tokens, chosen by corpus size if not set")
    min_frequency: int = Field(default=2, ge=1, description="a merge occurs at least so often in the training text")

    training_pairs: int = Field(
        default=1_000_000, ge=1, description="most pairs it is learned from, evenly spread over the corpus"
    )

    @property
    def normalization(self) -> NormalizationConfig:
        """The part that a stored tokenizer keeps."""
        return NormalizationConfig(unicode=self.unicode, lowercase=self.lowercase)
