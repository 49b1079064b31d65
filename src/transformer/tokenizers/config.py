"""The recipe's `tokenizer` section."""

import unicodedata
from typing import Literal

from pydantic import Field, model_validator

from transformer.config import Config
from transformer.text.normalization import normalize_spaces, remove_invisible


class NormalizationConfig(Config):
    """Text normalization before tokenization.

    Attributes:
        normalize: Whether the text is composed (NFC) and its invisible characters are removed; in sources, runs of
            white space also become one space. The default is true for translation, and false for other tasks.
        unicode: "nfc" composes characters (e + accent -> é); "none" leaves them unchanged.
        lowercase: Whether the text is lowercased.
    """

    normalize: bool | None = Field(
        default=None,
        description="compose characters and remove invisible ones, and make white space in sources one space; "
        "default: true for translation, else false",
    )
    unicode: Literal["none", "nfc"] = Field(
        default="none", description="Unicode normalization: nfc composes characters, none leaves them unchanged"
    )
    lowercase: bool = Field(default=False, description="lowercase the text")

    def apply(self, text: str, *, is_target: bool = False) -> str:
        """Returns the normalized text.

        Args:
            text: Text of one line.
            is_target: Whether it is a target, whose white space is kept: a no-break space has a meaning in French.
        """
        if self.normalize:
            text = remove_invisible(text) if is_target else normalize_spaces(text)
        if self.unicode == "nfc":
            text = unicodedata.normalize("NFC", text)
        return text.lower() if self.lowercase else text

    def to_fields(self) -> dict[str, object]:
        """Returns the options as stored with a tokenizer; `normalize` only if it is set, as in earlier versions."""
        return self.model_dump(include={"unicode", "lowercase"} | ({"normalize"} if self.normalize else set()))


class TokenizerConfig(NormalizationConfig):
    """Options for training the tokenizer.

    Attributes:
        kind: Token unit: byte-pair merges, single bytes, or the characters of the training text.
        joint: Whether both languages share one tokenizer, which `share_embeddings="all"` requires.
        vocab_size: Vocabulary size of each tokenizer, special tokens and the 256 bytes included; if None, chosen by
            corpus size.
        min_frequency: Minimum number of occurrences of a merge in the training text.
        training_pairs: Maximum number of training pairs; from a larger corpus, every second, third, ... pair is used.
        dropout: Probability with which a merge is left out where training pairs are segmented (BPE dropout).
        added_pieces: Maximum number of subwords that the tokenizer of the model that the run starts from learns from
            the text of new languages.
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
        le=4_000_000,
        description="vocabulary size per tokenizer, with special tokens and 256 bytes; by corpus size if not set",
    )
    min_frequency: int = Field(
        default=2, ge=1, le=10**9, description="minimum number of occurrences of a merge in the training text"
    )

    training_pairs: int = Field(
        default=1_000_000,
        ge=1,
        description="maximum number of pairs to train the tokenizer on, evenly spaced in the corpus",
    )
    dropout: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="probability with which a merge is left out, so that training pairs are segmented anew in each "
        "epoch (BPE dropout)",
    )
    added_pieces: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="maximum number of subwords that the tokenizer of the model that the run starts from learns from "
        "the text of new languages; none if not set",
    )

    @model_validator(mode="after")
    def _dropout_has_merges(self) -> "TokenizerConfig":
        if self.dropout and self.kind != "bpe":
            raise ValueError(f"tokenizer.dropout leaves out merges, and tokenizer.kind={self.kind!r} has none; use bpe")
        return self

    @property
    def normalization(self) -> NormalizationConfig:
        """Normalization options, which are stored with the tokenizer."""
        return NormalizationConfig(normalize=bool(self.normalize), unicode=self.unicode, lowercase=self.lowercase)
