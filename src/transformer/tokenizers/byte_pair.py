"""Lossless subword tokenization by byte-level byte-pair encoding (BPE)."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby, islice
from typing import Final

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import Regex, decoders, models, pre_tokenizers, trainers

from transformer.config import JsonObject, describe_error
from transformer.errors import ConfigError, DataError
from transformer.tokenizers.base import Tokenizer
from transformer.tokenizers.config import NormalizationConfig, TokenizerConfig
from transformer.tokenizers.special_tokens import N_SPECIAL_TOKENS, SPECIAL_TOKEN_NAMES

N_BYTES = 256
# A word with the preceding space, one digit, a run of other characters, or white space; merges never cross these.
WORDS = r" ?[\p{L}\p{M}]+| ?\p{N}| ?[^\s\p{L}\p{M}\p{N}]+|\s+(?!\S)|\s+"

MAX_WORD_CHARACTERS: Final = 4096
COUNTED_LINES: Final = 10_000
MAX_CACHED_WORDS: Final = 1 << 15
"""Number of words whose tokens are remembered."""
MAX_CACHED_CHARACTERS: Final = 64
"""Length of the longest word whose tokens are remembered."""
LONG_WORD: Final = re.compile(rf"\S{{{MAX_WORD_CHARACTERS}}}|\s{{{MAX_WORD_CHARACTERS}}}")


class BytePairTokenizer(Tokenizer):
    """A byte-level BPE tokenizer of one language, or of both.

    Every byte is a token, so no text is unknown: decode(encode(x)) == normalize(x) for any Unicode text. The ids of the
    tokenizers library are shifted by the number of special tokens, so text such as `[EOS]` or `</s>` cannot become one.
    A space is added before the text and removed after decoding, so a word is the same token at the start of a line and
    within it.

    Source: Sennrich et al. 2016 (byte-pair encoding); Radford et al. 2019, Sec. 2.2 (on bytes).
    """

    kind = "byte-level BPE"

    def __init__(self, merges: tokenizers.Tokenizer, normalization: NormalizationConfig) -> None:
        super().__init__(normalization)
        self._merges = merges
        self._cached_words: dict[str, list[int]] = {}
        self._cached_bytes = _TokenBytes(merges)

    @classmethod
    def train(cls, lines: Iterable[str], settings: TokenizerConfig, *, is_target: bool = False) -> "BytePairTokenizer":
        """Trains the merges on lines of text.

        Args:
            lines: Lines of text.
            settings: The recipe's `tokenizer` section.
            is_target: Whether the lines are targets.

        Raises:
            ConfigError: `settings.vocab_size` is not set.
            DataError: the texts are empty.
        """
        vocab_size = N_SPECIAL_TOKENS + N_BYTES if settings.kind == "bytes" else settings.vocab_size
        if vocab_size is None:
            raise ConfigError("tokenizer.vocab_size is not set; give the number of tokens, e.g. 8000")
        tokenizer = cls(_new_library_tokenizer(), settings.normalization)
        tokenizer.is_target = is_target
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size - N_SPECIAL_TOKENS,
            min_frequency=settings.min_frequency,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        counted = _CountedText(part for line in lines for part in _training_parts(tokenizer.prepare(line)))
        tokenizer._merges.train_from_iterator(counted, trainer)
        if not counted.characters:
            raise DataError("the training text is empty; a tokenizer needs text to learn from")
        return tokenizer

    @property
    def vocab_size(self) -> int:
        """Number of ids, special tokens included."""
        return self._end_of_text_ids + len(self.tags)

    @property
    def _end_of_text_ids(self) -> int:
        return self._merges.get_vocab_size() + N_SPECIAL_TOKENS

    @property
    def has_tags_last(self) -> bool:
        """Implements `Tokenizer.has_tags_last`."""
        return True

    def prepare(self, text: str) -> str:
        """Returns the normalized text with a space before its first word; empty text stays empty."""
        return " " + self.normalize(text) if text else ""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Encodes several texts; words that were encoded before are looked up.

        No token crosses the space before a word, so the tokens of a text are those of its words, unless it has other
        white space than one space between words.
        """
        if len(self._cached_words) > MAX_CACHED_WORDS:
            self._cached_words = {}
        cached = self._cached_words  # other threads may replace it
        split = [_split_words(self.normalize(text)) for text in texts]
        if new := list(set(chain.from_iterable(split)).difference(cached)):
            cached.update(zip(new, _shifted_ids(self._encode(" " + word for word in new)), strict=True))
        encoded = [[*chain.from_iterable(map(cached.__getitem__, words))] for words in split]
        if others := [index for index, words in enumerate(split) if not words and texts[index]]:
            ids = _shifted_ids(self._encode(self.prepare(texts[index]) for index in others))
            for index, tokens in zip(others, ids, strict=True):
                encoded[index] = tokens
        return self._with_leading(encoded)

    def encode_flat(self, texts: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Implements `Tokenizer.encode_flat` without a list per text, unless tokens stand before each."""
        if self.leading:
            return super().encode_flat(texts)
        encodings = self._encode(map(self.prepare, texts))
        lengths = np.fromiter(map(len, encodings), np.int64, len(texts))
        ids = np.fromiter(chain.from_iterable(encoding.ids for encoding in encodings), np.int32, lengths.sum())
        return ids + np.int32(N_SPECIAL_TOKENS), lengths

    def encode_words(self, texts: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.bool_]]:
        """Returns what `encode_flat` returns, and True for each token that begins a word, which no merge crosses."""
        encodings = self._merges.encode_batch(list(map(self.prepare, texts)), add_special_tokens=False)
        lengths = np.fromiter(map(len, encodings), np.int64, len(texts))
        ids = np.fromiter(chain.from_iterable(encoding.ids for encoding in encodings), np.int32, lengths.sum())
        words = chain.from_iterable(encoding.word_ids for encoding in encodings)
        starts = np.diff(np.fromiter(words, np.int32, lengths.sum()), prepend=-1) != 0
        starts[(np.cumsum(lengths) - lengths)[lengths > 0]] = True
        ids += np.int32(N_SPECIAL_TOKENS)
        for token in self.leading:  # each is a word
            first = np.cumsum(lengths) - lengths
            ids, starts, lengths = np.insert(ids, first, token), np.insert(starts, first, True), lengths + 1
        return ids, lengths, starts

    def count_words(self, lines: Iterable[str]) -> Counter[tuple[str, ...]]:
        """Counts the words of lines of text, each as its pieces."""
        words = Counter[tuple[str, ...]]()
        parts = (part for line in lines for part in _training_parts(self.prepare(line)))
        while texts := list(islice(parts, COUNTED_LINES)):
            for encoding in self._merges.encode_batch(texts, add_special_tokens=False):
                pieces = zip(encoding.word_ids, encoding.tokens, strict=True)
                words.update(tuple(piece for _, piece in word) for _, word in groupby(pieces, lambda piece: piece[0]))
        return words

    def merges(self) -> list[tuple[int, int, int]]:
        """Returns the merges in order of priority, each as the ids of both parts and of the token they make."""
        vocabulary = self._merges.get_vocab()
        pairs = json.loads(self._merges.to_str())["model"]["merges"]
        parts = [tuple(pair.split(" ")) if isinstance(pair, str) else tuple(pair) for pair in pairs]
        ids = [[vocabulary[piece] + N_SPECIAL_TOKENS for piece in (*pair, "".join(pair))] for pair in parts]
        return [(left, right, merged) for left, right, merged in ids]

    def spell(self) -> list[list[int]]:
        """Returns the ids of the single bytes of each id; tags stand for themselves, other special tokens have none."""
        vocabulary = self._merges.get_vocab()
        spelled: list[list[int]] = [[] for _ in range(self.vocab_size)]
        for piece, token in vocabulary.items():
            spelled[token + N_SPECIAL_TOKENS] = [vocabulary[byte] + N_SPECIAL_TOKENS for byte in piece]
        for tag in self.special_tokens.tags:
            spelled[tag] = [tag]
        return spelled

    def _encode(self, prepared: Iterable[str]) -> list[tokenizers.Encoding]:
        return self._merges.encode_batch_fast(list(prepared), add_special_tokens=False)

    def decode(self, ids: Sequence[int]) -> str:
        """Decodes token ids to text; special tokens are omitted, and bytes that form no character become U+FFFD."""
        return self.decode_running(ids).removeprefix(" ")

    def encode_running(
        self, texts: Sequence[str], contexts: Sequence[tuple[str, str]] | None = None
    ) -> list[list[int]]:
        """Implements `Tokenizer.encode_running`: no space is added before a part."""
        del contexts
        return _shifted_ids(self._encode(map(self.normalize, texts)))

    def decode_running(self, ids: Sequence[int]) -> str:
        """Implements `Tokenizer.decode_running`."""
        return b"".join(map(self._cached_bytes.__getitem__, ids)).decode("utf-8", errors="replace")

    def fallback_bytes(self) -> list[int]:
        """Returns the number of bytes of each id that encode only a part of a character.

        Characters that were frequent enough to be merged have none; the sum over a corpus shows how much of it is
        encoded byte by byte.
        """
        sizes = [0] * self.vocab_size
        for piece, token in self._merges.get_vocab().items():
            sizes[token + N_SPECIAL_TOKENS] = partial_bytes(piece)
        return sizes

    def is_fallback(self) -> NDArray[np.bool_]:
        """Implements `Tokenizer.is_fallback`; a tokenizer of bytes alone knows all characters alike."""
        return super().is_fallback() & (self._end_of_text_ids > N_SPECIAL_TOKENS + N_BYTES)

    def to_json(self) -> str:
        """Returns the file content from which `from_json` recreates the tokenizer."""
        content = {"normalization": self.normalization.to_fields(), "merges": json.loads(self._merges.to_str())}
        content |= self._tag_fields()
        return json.dumps(content, ensure_ascii=False, sort_keys=True)

    @classmethod
    def from_json(cls, content: str) -> "BytePairTokenizer":
        """Creates a tokenizer from the content that `to_json` wrote.

        Raises:
            DataError: the content is not that of such a tokenizer.
        """
        try:
            fields = json.loads(content)
            _check_parts(fields["merges"])
            merges = tokenizers.Tokenizer.from_str(json.dumps(fields["merges"]))
            tokenizer = cls(merges, NormalizationConfig.model_validate(fields["normalization"]))
            return tokenizer._with_stored_tags(fields)
        except Exception as error:  # the library raises plain Exception
            raise DataError(
                f"not a tokenizer of this package: {describe_error(error)}; train or export it again"
            ) from error

    def _printable_piece(self, token: int) -> str:
        """Implements `Tokenizer._printable_piece`."""
        piece = self._merges.id_to_token(token - N_SPECIAL_TOKENS)
        if piece is None:
            return SPECIAL_TOKEN_NAMES[-1]
        raw = _piece_bytes(piece)
        text = raw.decode("utf-8") if _is_utf8(raw) else "".join(f"<{byte:02X}>" for byte in raw)
        return text.replace(" ", "▁")


class _TokenBytes(dict[int, bytes]):
    """The bytes of each token, found when they are first asked for; special tokens have none."""

    def __init__(self, library: tokenizers.Tokenizer) -> None:
        super().__init__()
        self._library = library

    def __missing__(self, token: int) -> bytes:
        """Finds the bytes of a token."""
        piece = self._library.id_to_token(token - N_SPECIAL_TOKENS) if token >= N_SPECIAL_TOKENS else None
        self[token] = _piece_bytes(piece or "")
        return self[token]


def _split_words(text: str) -> list[str]:
    """Splits a text at its spaces; returns nothing if it has other white space, two spaces, or a very long word."""
    words = text.split()
    is_short = len(text) <= MAX_CACHED_CHARACTERS or len(max(words, key=len, default="")) <= MAX_CACHED_CHARACTERS
    return words if is_short and words == text.split(" ") else []


def _shifted_ids(encodings: Iterable[tokenizers.Encoding]) -> list[list[int]]:
    return [[token + N_SPECIAL_TOKENS for token in encoding.ids] for encoding in encodings]


def _training_parts(text: str) -> Iterator[str]:
    """Cuts a text with a word of very many characters, since the trainer's time grows with the square of a word."""
    if len(text) <= MAX_WORD_CHARACTERS or not LONG_WORD.search(text):
        yield text
    else:
        yield from (text[start : start + MAX_WORD_CHARACTERS] for start in range(0, len(text), MAX_WORD_CHARACTERS))


class _CountedText:
    """Iterates over texts and counts their characters."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = texts
        self.characters = 0

    def __iter__(self) -> Iterator[str]:
        for text in self.texts:
            self.characters += len(text)
            yield text


def _new_library_tokenizer() -> tokenizers.Tokenizer:
    merges = tokenizers.Tokenizer(models.BPE())
    merges.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    merges.decoder = decoders.ByteLevel()
    return merges


def _check_parts(content: JsonObject) -> None:
    """Checks that a serialized tokenizer is as training makes it: its vocabulary and merges alone may differ.

    Other parts could make the library hang, or take all memory. Ids beyond the vocabulary would have no embedding.

    Raises:
        DataError: A part differs.
    """
    expected = json.loads(_new_library_tokenizer().to_str())
    fixed = {**content, **content["model"]}
    vocabulary, merges = fixed.pop("vocab"), fixed.pop("merges")
    for name, part in fixed.items():
        if name != "model" and part != {**expected, **expected["model"]}.get(name):
            raise DataError(f"its {name} is not that of byte-level byte-pair encoding")
    if sorted(vocabulary.values()) != list(range(len(vocabulary))):
        raise DataError(f"the ids of its {len(vocabulary):,} tokens are not 0 to {len(vocabulary) - 1:,}")
    if any(not piece or not _BYTES.keys() >= {*piece} for piece in vocabulary):
        raise DataError("its vocabulary holds characters that stand for no byte")
    if not _BYTES.keys() <= vocabulary.keys():
        raise DataError("its vocabulary lacks bytes, so that text would be lost")
    pairs = [pair.split(" ") if isinstance(pair, str) else pair for pair in merges]
    if any(len(pair) != 2 or not {*pair, "".join(pair)} <= vocabulary.keys() for pair in pairs):
        raise DataError("its merges make tokens that its vocabulary lacks")


def _is_utf8(raw: bytes) -> bool:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _byte_alphabet() -> dict[str, int]:
    """Returns the byte of each character in a piece: its own code if printable, else shifted past U+00FF."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    return alphabet | {chr(0x100 + index): byte for index, byte in enumerate(hidden)}


_BYTES = _byte_alphabet()


def partial_bytes(piece: str) -> int:
    """Returns the number of bytes of a piece in the byte alphabet that encode only a part of a character."""
    raw = _piece_bytes(piece)
    return 0 if _is_utf8(raw) else sum(byte >= 0x80 for byte in raw)


def is_byte_alphabet(piece: str) -> bool:
    """Whether a piece consists of characters of the byte alphabet."""
    return all(character in _BYTES for character in piece)


def _piece_bytes(piece: str) -> bytes:
    return bytes(_BYTES[character] for character in piece)
