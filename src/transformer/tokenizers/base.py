"""What every tokenizer does: text to token ids and back."""

import hashlib
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from transformer.tokenizers.config import NormalizationConfig
from transformer.tokenizers.special_tokens import (
    DEFAULT_SPECIAL_TOKENS,
    N_SPECIAL_TOKENS,
    SPECIAL_TOKEN_NAMES,
    SpecialTokenIds,
)


class Tokenizer(ABC):
    """Encodes the text of one language, or of both. Text that was typed never becomes a control id.

    Attributes:
        normalization: what is changed in a text before.
        special_tokens: Ids of the special tokens.
        kind: in words.
    """

    special_tokens: SpecialTokenIds = DEFAULT_SPECIAL_TOKENS
    kind: str

    def __init__(self, normalization: NormalizationConfig) -> None:
        self.normalization = normalization

    @property
    def first_text_id(self) -> int:
        """The first id that stands for text."""
        return N_SPECIAL_TOKENS

    @property
    def boundary_tokens(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The ids that stand before and after a text that an encoder reads as a whole."""
        return tuple(each for each in (self.special_tokens.bos,) if each is not None), tuple(
            each for each in (self.special_tokens.eos,) if each is not None
        )

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Number of ids, control ids included."""

    @abstractmethod
    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The token ids of many texts, without control ids."""

    def language_prefix(self, text: str) -> str:
        """What must stand before every part of a text that is translated in parts; empty for most."""
        del text
        return ""

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids; control ids are left out."""

    @abstractmethod
    def fallback_bytes(self) -> list[int]:
        """For each id, the bytes it spends on a character that it holds only a part of."""

    @abstractmethod
    def to_json(self) -> str:
        """The file content from which the same tokenizer is made again."""

    @abstractmethod
    def _piece(self, token: int) -> str:
        """What is printed for an id that is no control id."""

    def normalize(self, text: str) -> str:
        """The text as the model sees it and as `decode` gives it back."""
        if self.normalization.unicode == "nfc":
            text = unicodedata.normalize("NFC", text)
        return text.lower() if self.normalization.lowercase else text

    def encode_running(self, texts: Sequence[str], around: Sequence[tuple[str, str]] | None = None) -> list[list[int]]:
        """The token ids of parts of a running text, line ends and all: `decode_running` puts them together again.

        Args:
            texts: the parts.
            around: what stands before and after each of them, for tokenizers that treat the begin of a text in their
                own way; nothing if not given.
        """
        del around
        return self.encode_batch(texts)

    def decode_running(self, ids: Sequence[int]) -> str:
        """The text of token ids of `encode_running`; control ids are left out."""
        return self.decode(ids)

    def encode(self, text: str) -> list[int]:
        """The token ids of a text, without control ids."""
        return self.encode_batch([text])[0]

    def encode_flat(self, texts: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The token ids of many texts one after another, and the number of tokens of each."""
        ids = self.encode_batch(texts)
        lengths = np.fromiter(map(len, ids), np.int64, len(texts))
        return np.fromiter(chain.from_iterable(ids), np.int32, lengths.sum()), lengths

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """A printable piece for each id: `▁` for a space, `<F0>` for a byte of a split character, `[EOS]`."""
        printed = self._printed
        for i in ids:
            if i not in printed:
                printed[i] = SPECIAL_TOKEN_NAMES[i] if i < N_SPECIAL_TOKENS else self._piece(i)
        return [printed[i] for i in ids]

    @cached_property
    def _printed(self) -> dict[int, str]:
        return {}

    def fingerprint(self) -> str:
        """SHA-256 of the stored form: equal tokenizers encode equally."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()
