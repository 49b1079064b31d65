"""The base class of tokenizers, which convert text to token ids and back."""

import copy
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from transformer.errors import ConfigError, DataError
from transformer.text.languages import matching_tag, parse_language
from transformer.tokenizers.config import NormalizationConfig
from transformer.tokenizers.special_tokens import (
    DEFAULT_SPECIAL_TOKENS,
    N_SPECIAL_TOKENS,
    SPECIAL_TOKEN_NAMES,
    SpecialTokenIds,
)

AnyTokenizer = TypeVar("AnyTokenizer", bound="Tokenizer")


class Tokenizer(ABC):
    """A tokenizer of one language, or of both. Text becomes the id of a special token only if the caller asks for it.

    Attributes:
        normalization: Normalization of a text before it is encoded.
        special_tokens: Ids of the special tokens.
        kind: Name of the kind of tokenizer, for display.
        is_target: Whether it normalizes texts as targets, see `NormalizationConfig.apply`.
        twin: Tokenizer of the other side that shares its vocabulary, if the sides are normalized differently.
        reads_special_tokens: Whether the names of special tokens in a text are these tokens.
        tags: Languages whose tags are the last tokens of the vocabulary, as BCP 47 tags.
        leading: Tokens before every text: the tag of a target language, see `to_language`.
    """

    special_tokens: SpecialTokenIds = DEFAULT_SPECIAL_TOKENS
    kind: str
    is_target: bool = False
    twin: "Tokenizer | None" = None
    reads_special_tokens: bool = False
    tags: tuple[str, ...] = ()
    leading: tuple[int, ...] = ()

    def __init__(self, normalization: NormalizationConfig) -> None:
        self.normalization = normalization

    @property
    def first_text_id(self) -> int:
        """First id that represents text."""
        return N_SPECIAL_TOKENS

    @property
    def boundary_tokens(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Ids of the special tokens before and after a text that an encoder reads as a whole."""
        bos, eos = self.special_tokens.bos, self.special_tokens.eos
        return () if bos is None else (bos,), () if eos is None else (eos,)

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Number of ids, special tokens included."""

    @abstractmethod
    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Encodes several texts, without special tokens."""

    def language_prefix(self, text: str) -> str:
        """Returns the language code of a text, which every part of the text must repeat; empty for most tokenizers."""
        del text
        return ""

    def language_warning(self, text: str) -> str:
        """Returns what is wrong with the language code of a text; empty if nothing is, as for most tokenizers."""
        del text
        return ""

    def with_tags(self: AnyTokenizer, languages: Sequence[str]) -> AnyTokenizer:
        """Returns a tokenizer with a tag for each language that has none yet; the ids of other tokens stay.

        A tag is a token of its own at the end of the vocabulary, which no text is encoded to.

        Raises:
            ConfigError: The tokenizer cannot have tags.

        Source: Johnson et al. 2017, "Google's Multilingual Neural Machine Translation System", Sec. 3.
        """
        new = [language for language in dict.fromkeys(languages) if language not in self.target_languages]
        if not new:
            return self
        if not self.has_tags_last:
            raise ConfigError(
                f"a tokenizer of the kind {self.kind!r} takes no tags of languages; train a new model without --from"
            )
        tagged = copy.copy(self)
        tagged.tags = (*self.tags, *new)
        vars(tagged).pop("_printable_pieces", None)
        first = tagged.vocab_size - len(tagged.tags)
        ids = tuple(range(first, tagged.vocab_size))
        tagged.special_tokens = replace(self.special_tokens, tags=ids)
        return tagged

    @property
    def has_tags_last(self) -> bool:
        """Whether `tags` can be added to the vocabulary."""
        return False

    @property
    def target_languages(self) -> tuple[str, ...]:
        """The languages that a tag before the source selects, as BCP 47 tags; none for most models."""
        return self.tags

    def tag_name(self, language: str) -> str:
        """Returns the printable name of the tag of a language, as in OPUS-MT models."""
        return f">>{language}<<"

    def to_language(self: AnyTokenizer, language: str) -> AnyTokenizer:
        """Returns a tokenizer of sources that begin with the tag of a target language; itself without such a tag.

        Args:
            language: Target language as a BCP 47 tag; empty for none.
        """
        tag = matching_tag(language, self.target_languages) if language else None
        if tag is None:
            return self
        tagged = copy.copy(self)
        tagged.leading = (self._tag_id(tag),)
        return tagged

    def _tag_id(self, language: str) -> int:
        return self.vocab_size - len(self.tags) + self.tags.index(language)

    def _tag_fields(self) -> dict[str, list[str]]:
        """Returns the entry of `to_json` for the tags; empty without any, as in earlier versions."""
        return {"tags": list(self.tags)} if self.tags else {}

    def _with_stored_tags(self: AnyTokenizer, fields: Mapping[str, object]) -> AnyTokenizer:
        """Returns a tokenizer with the tags of a serialized one.

        Raises:
            DataError: They are not a list of distinct languages.
        """
        tags = fields.get("tags", [])
        if not isinstance(tags, list) or not all(isinstance(tag, str) and parse_language(tag) == tag for tag in tags):
            raise DataError("its tags are not a list of languages (BCP 47)")
        if len(set(tags)) != len(tags):
            raise DataError("its tags repeat a language")
        return self.with_tags(tags) if tags else self

    def _with_leading(self, encoded: list[list[int]]) -> list[list[int]]:
        """Puts the leading tokens before each text."""
        return [[*self.leading, *tokens] for tokens in encoded] if self.leading else encoded

    def reading_special_tokens(self) -> "Tokenizer":
        """Returns a tokenizer for which the names of special tokens in a text, e.g. `<extra_id_0>`, are these tokens.

        Texts of strangers must not be given to it.

        Raises:
            ConfigError: The tokenizer has no such names.
        """
        raise ConfigError(
            f"special_tokens: a tokenizer of the kind {self.kind!r} has no names of special tokens; leave it out"
        )

    def reading_task(self, task: str) -> "Tokenizer":
        """Returns a tokenizer for which special tokens named in the task, with which texts begin, are these tokens."""
        del task
        return self

    def without_special_tokens(self, text: str) -> str:
        """Returns a text without the names that are read as special tokens."""
        return text

    def special_token_warning(self, text: str) -> str:
        """Returns a warning that a text has the name of a special token, which is not read as such; mostly empty."""
        del text
        return ""

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Decodes token ids to text; special tokens are omitted."""

    @abstractmethod
    def fallback_bytes(self) -> list[int]:
        """Returns the number of bytes of each id that encode only a part of a character."""

    def is_fallback(self) -> NDArray[np.bool_]:
        """Returns True for each id that stands for a part of a character or for unknown text."""
        fallback = np.array(self.fallback_bytes()) > 0
        if self.special_tokens.unk is not None:
            fallback[self.special_tokens.unk] = True
        return fallback

    @abstractmethod
    def to_json(self) -> str:
        """Returns the file content from which the tokenizer can be recreated."""

    @abstractmethod
    def _printable_piece(self, token: int) -> str:
        """Returns the printable piece of an id that does not belong to a special token."""

    def normalize(self, text: str) -> str:
        """Returns the text as the model sees it and as `decode` returns it."""
        return self.normalization.apply(text, is_target=self.is_target)

    def for_target(self) -> "Tokenizer":
        """Returns a tokenizer with the same vocabulary for targets; itself if both sides are normalized alike."""
        if not self.normalization.normalize or self.is_target:
            return self
        target = copy.copy(self)
        target.is_target, target.twin = True, self
        return target

    def encode_running(
        self, texts: Sequence[str], contexts: Sequence[tuple[str, str]] | None = None
    ) -> list[list[int]]:
        """Encodes parts of a running text, line ends included; `decode_running` reverses it.

        Args:
            texts: Parts of the text.
            contexts: Text before and after each part, for tokenizers that treat the start of a text differently; none
                if not given.
        """
        del contexts
        return self.encode_batch(texts)

    def decode_running(self, ids: Sequence[int]) -> str:
        """Decodes token ids of `encode_running` to text; special tokens are omitted."""
        return self.decode(ids)

    def encode(self, text: str) -> list[int]:
        """Encodes a text, without special tokens."""
        return self.encode_batch([text])[0]

    def encode_flat(self, texts: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Returns the concatenated token ids of several texts, and the number of tokens of each."""
        ids = self.encode_batch(texts)
        lengths = np.fromiter(map(len, ids), np.int64, len(texts))
        return np.fromiter(chain.from_iterable(ids), np.int32, lengths.sum()), lengths

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Returns a printable piece for each id: `▁` for a space, `<F0>` for a byte of a split character, `[EOS]`."""
        printed = self._printable_pieces
        for i in ids:
            if i not in printed:
                printed[i] = self._special_name(i) or self._printable_piece(i)
        return [printed[i] for i in ids]

    def _special_name(self, token: int) -> str:
        """Returns the printable name of a special token; empty for other tokens."""
        tag = token - self.vocab_size + len(self.tags)
        if 0 <= tag < len(self.tags):
            return self.tag_name(self.tags[tag])
        return SPECIAL_TOKEN_NAMES[token] if token < N_SPECIAL_TOKENS else ""

    @cached_property
    def _printable_pieces(self) -> dict[int, str]:
        return {}

    def fingerprint(self) -> str:
        """Returns the SHA-256 of the serialized tokenizer; tokenizers with equal fingerprints encode equally."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()
