"""Tokenizers of published models, read by the tokenizers library of Hugging Face."""

import copy
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from itertools import count, takewhile
from typing import Final

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors

from transformer.config import describe_error
from transformer.errors import BundleError, DataError, note
from transformer.text.normalization import INVISIBLE, SPACES
from transformer.tokenizers.base import Tokenizer
from transformer.tokenizers.byte_pair import BytePairTokenizer, is_byte_alphabet, partial_bytes
from transformer.tokenizers.character import CharacterTokenizer
from transformer.tokenizers.config import NormalizationConfig
from transformer.tokenizers.huggingface_files import (
    CONFIG_FILE,
    TOKENIZER_FILE,
    read_tokenizer_json,
    special_token_names,
)
from transformer.tokenizers.library_checks import library_errors, read_library_tokenizer
from transformer.tokenizers.special_tokens import N_SPECIAL_TOKENS, SPECIAL_TOKEN_NAMES, UNK_ID, SpecialTokenIds

INPUTS: Final = ("input_ids", "attention_mask")
BYTE_PIECE: Final = re.compile(r"<0x([0-9A-F]{2})>")
"""Piece of a single byte in vocabularies that fall back to bytes."""
STORED_KEY: Final = "published"
"""First key of the serialized tokenizer, by which its kind is recognized."""


class HuggingFaceTokenizer(Tokenizer):
    """The tokenizer of a published model: WordPiece, byte-level BPE or Unigram.

    Special tokens are not recognized in text, unless the caller asks for it (`reading_special_tokens`, `reading_task`):
    `[MASK]` is encoded as ordinary characters, and the first text with such a name is noted. Decoding restores the text
    as far as the vocabulary and the normalization preserve it; WordPiece loses spaces and perhaps case.

    Args:
        content: Content of a tokenizer.json.
        special_tokens: Ids of the special tokens.

    Raises:
        DataError: the content is not that of a tokenizer.json.
    """

    kind = "published"

    def __init__(self, content: str, special_tokens: SpecialTokenIds) -> None:
        super().__init__(NormalizationConfig())
        self._library = _load_library(content)
        self.content = content
        self.special_tokens = special_tokens
        if special_tokens.unk is None:
            self.special_tokens = replace(special_tokens, unk=unknown_token_id(self._library, content))
        with library_errors("a tokenizer that cannot read 'a'; copy its files again"):
            template = self._library.encode("a", add_special_tokens=True)
        inner = [index for index, special in enumerate(template.special_tokens_mask) if not special]
        first, last = (inner[0], inner[-1] + 1) if inner else (0, 0)
        self._boundary_tokens = tuple(template.ids[:first]), tuple(template.ids[last:])
        added = self._library.get_added_tokens_decoder()
        self._special = {token for token, properties in added.items() if properties.special}
        self._special -= {self.special_tokens.unk}
        names = [added[token].content for token in self._special]
        self._names = re.compile("|".join(map(re.escape, sorted(names, key=len, reverse=True))) or r"(?!)")
        self._lead = ""  # start of texts, in which special tokens are read
        self._notes_names = True

    @property
    def boundary_tokens(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Ids of the special tokens that the published tokenizer adds before and after a text."""
        return self._boundary_tokens

    @property
    def first_text_id(self) -> int:
        """Always 0: in published vocabularies, special tokens and text are not separated."""
        return 0

    @property
    def sentinels(self) -> tuple[int, ...]:
        """Ids of `<extra_id_0>`, `<extra_id_1>`, ..., which mark the spans removed in span corruption."""
        token_ids = (self._library.token_to_id(f"<extra_id_{number}>") for number in count())
        return tuple(token for token in takewhile(lambda token: token is not None, token_ids) if token is not None)

    @property
    def vocab_size(self) -> int:
        """Largest id plus one."""
        return max(self._library.get_vocab(with_added_tokens=True).values()) + 1

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Encodes several texts, without boundary tokens."""
        if self._lead:
            return [self._encode_after_lead(text) for text in texts]
        self._note_names(texts)
        return [self._as_text(encoding.ids) for encoding in self._encode(texts, fast=True)]

    def encode_running(
        self, texts: Sequence[str], contexts: Sequence[tuple[str, str]] | None = None
    ) -> list[list[int]]:
        """Implements `Tokenizer.encode_running`: encodes parts with context and keeps tokens that end in the part."""
        if contexts is None:
            return self.encode_batch(texts)
        self._note_names(texts)
        whole = [before + text + after for text, (before, after) in zip(texts, contexts, strict=True)]
        token_ids: list[list[int]] = []
        for text, (before, _), encoding in zip(texts, contexts, self._encode(whole), strict=True):
            first, last = (len(before) or -1), len(before) + len(text)
            ends = [end for _, end in encoding.offsets]
            token_ids.append(
                self._as_text([i for i, end in zip(encoding.ids, ends, strict=True) if first < end <= last])
            )
        return token_ids

    def reading_special_tokens(self) -> "HuggingFaceTokenizer":
        """Implements `Tokenizer.reading_special_tokens`."""
        return self if self.reads_special_tokens else self._reader

    def reading_task(self, task: str) -> "HuggingFaceTokenizer":
        """Implements `Tokenizer.reading_task`; names in the rest of a text are flagged there, and not noted."""
        names = [] if self.reads_special_tokens else [*self._names.finditer(task)]
        lead = task[: names[-1].end()] if names and self._reader else ""  # so that all copies share one reader
        reading = copy.copy(self)
        reading._lead, reading._notes_names = lead, False
        return reading

    @cached_property
    def _reader(self) -> "HuggingFaceTokenizer":
        """A copy with a library of its own, in which special tokens are read."""
        reader = copy.copy(self)
        reader.reads_special_tokens, reader._lead, reader._notes_names = True, "", False
        reader._library = _load_library(self.content)
        return reader

    def without_special_tokens(self, text: str) -> str:
        """Implements `Tokenizer.without_special_tokens`."""
        return self._names.sub(" ", text) if self.reads_special_tokens else text

    def special_token_warning(self, text: str) -> str:
        """Implements `Tokenizer.special_token_warning`."""
        name = None if self.reads_special_tokens else self._names.search(text)
        advice = "--special-tokens or data.special_tokens reads it"
        return f"{name[0]!r} is read as characters, not as the special token; {advice}" if name else ""

    def _note_names(self, texts: Sequence[str]) -> None:
        """Notes the first text in which the name of a special token is read as characters."""
        if self._notes_names and (warning := next(filter(None, map(self.special_token_warning, texts)), "")):
            self._notes_names = False
            note(f"in a text, {warning}")

    def _encode_after_lead(self, text: str) -> list[int]:
        """Encodes a text in whose lead alone special tokens are read.

        The lead and the rest are encoded at once, which decides about the space between them, unless the rest has
        special tokens too, if only after its normalization.
        """
        lead, rest = (self._lead, text[len(self._lead) :]) if text.startswith(self._lead) else ("", text)
        start, whole = self._reader.encode_batch([lead, text])
        if sum(token in self._special for token in whole) == sum(token in self._special for token in start):
            return whole
        (encoding,) = self._encode([rest], fast=True)
        return [*start, *self._as_text(encoding.ids)]

    def _encode(self, texts: Sequence[str], *, fast: bool = False) -> list[tokenizers.Encoding]:
        """Encodes texts with the library, without boundary tokens; `fast` omits character offsets."""
        encode = self._library.encode_batch_fast if fast else self._library.encode_batch
        if self._library.encode_special_tokens == self.reads_special_tokens:  # pickled libraries lose the setting
            self._library.encode_special_tokens = not self.reads_special_tokens
        with library_errors("the tokenizer lacks a token for this text, or cannot split it; repair its files"):
            return encode(list(texts), add_special_tokens=False)

    def _as_text(self, ids: list[int]) -> list[int]:
        """Replaces ids of special tokens by that of unknown text; Unigram also recognizes special tokens in text.

        Raises:
            DataError: the tokenizer has no id for unknown text.
        """
        if self.reads_special_tokens or self._special.isdisjoint(ids):
            return ids
        unk = self.special_tokens.unk
        if unk is None:
            typed = self.pieces([token for token in ids if token in self._special])
            raise DataError(f"{typed[0]} in a text is a special token of this tokenizer; remove it from the text")
        return [unk if token in self._special else token for token in ids]

    def decode(self, ids: Sequence[int]) -> str:
        """Decodes token ids to text; special tokens are omitted."""
        return self._library.decode(list(ids), skip_special_tokens=True)

    def normalize(self, text: str) -> str:
        """Normalizes a text as the published tokenizer does."""
        normalizer = self._library.normalizer
        return text if normalizer is None else normalizer.normalize_str(text)

    def fallback_bytes(self) -> list[int]:
        """Returns the number of bytes of each id that encode only a part of a character."""
        sizes = [0] * self.vocab_size
        is_byte_level = '"ByteLevel"' in self.content
        for piece, token in self._library.get_vocab(with_added_tokens=False).items():
            if byte := BYTE_PIECE.fullmatch(piece):
                sizes[token] = int(int(byte.group(1), 16) >= 0x80)
            elif is_byte_level and is_byte_alphabet(piece):
                sizes[token] = partial_bytes(piece)
        return sizes

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Returns a printable piece for each id; special tokens have their published names."""
        return [self._printable_piece(token) for token in ids]

    def _printable_piece(self, token: int) -> str:
        """Implements `Tokenizer._printable_piece`."""
        piece = self._library.id_to_token(token)
        return f"[{token}]" if piece is None else piece.replace("Ġ", "▁")

    def fingerprint(self) -> str:
        """Implements `Tokenizer.fingerprint`; reading special tokens changes it, although it is not stored."""
        return super().fingerprint() + "+special" * self.reads_special_tokens

    def to_json(self) -> str:
        """Returns the file content from which `from_json` recreates the tokenizer."""
        control = asdict(self.special_tokens)
        if not self.special_tokens.further_eos:
            del control["further_eos"]  # as in files that older versions wrote
        del control["tags"]  # published tokenizers have codes of languages in their vocabulary instead
        return json.dumps({STORED_KEY: self.content, "control": control}, ensure_ascii=False)

    @classmethod
    def from_json(cls, content: str) -> "HuggingFaceTokenizer":
        """Creates a tokenizer from the content that `to_json` wrote.

        Raises:
            DataError: the content is not that of such a tokenizer.
        """
        try:
            fields = json.loads(content)
            control = fields["control"]
            further_eos = tuple(control.pop("further_eos", ()))
            return cls(fields[STORED_KEY], SpecialTokenIds(**control, further_eos=further_eos))
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise DataError(
                f"not a tokenizer of this package: {describe_error(error)}; import the model again"
            ) from error


def _load_library(content: str) -> tokenizers.Tokenizer:
    """Returns the tokenizer of the library, for texts of any length."""
    library = read_library_tokenizer(content)
    library.no_truncation()
    library.no_padding()
    return library


def read_tokenizer(
    files: Mapping[str, bytes], special_tokens: SpecialTokenIds, n_tokens: int | None = None
) -> HuggingFaceTokenizer:
    """Reads the tokenizer of a published folder: tokenizer.json, or vocab.txt, or vocab.json with merges.txt.

    Args:
        files: Small files of the folder by name.
        special_tokens: Ids of the special tokens, see `read_special_token_ids`.
        n_tokens: Number of tokens of the model, if known.

    Raises:
        BundleError: the folder has none of these files, or a token that the model lacks.
    """
    return HuggingFaceTokenizer(read_tokenizer_json(files, n_tokens), special_tokens)


def read_special_token_ids(
    files: Mapping[str, bytes], names: Mapping[str, str | None], n_tokens: int | None = None
) -> dict[str, int | None]:
    """Reads the ids of special tokens.

    Args:
        files: Small files of the folder by name.
        names: Role -> default token, for roles that the folder does not define, e.g. {"mask_token": "[MASK]"}.
        n_tokens: Number of tokens of the model, if known.

    Raises:
        BundleError: the folder has no tokenizer.
    """
    content = read_tokenizer_json(files, n_tokens)
    library = read_library_tokenizer(content)
    named = {role: token for role, token in names.items() if token is not None} | special_token_names(files)
    token_ids = {role: library.token_to_id(named[role]) if role in named else None for role in names}
    if "unk_token" in names and (unknown := unknown_token_id(library, content)) is not None:
        token_ids["unk_token"] = unknown
    return token_ids


def unknown_token_id(library: tokenizers.Tokenizer, content: str) -> int | None:
    """Returns the id that a tokenizer gives to unknown text; None if it has no such id.

    Args:
        library: The tokenizer.
        content: Its tokenizer.json.
    """
    model = library.model
    if isinstance(model, models.Unigram):
        return json.loads(content)["model"].get("unk_id")
    return None if model.unk_token is None else library.token_to_id(model.unk_token)


def write_tokenizer(
    tokenizer: Tokenizer, template: str = "", inputs: Sequence[str] = INPUTS, longest: int | None = None
) -> dict[str, bytes]:
    """Returns the tokenizer files of a published folder: tokenizer.json, and a config that names the special tokens.

    The config names the class of transformers that reads tokenizer.json unchanged, unlike the classes of single models.

    Args:
        tokenizer: A published tokenizer, or a byte-pair or character tokenizer that was trained here.
        template: Template with the boundary tokens, for tokenizers trained here, e.g. "$A [EOS]"; "" if the model was
            trained on running text, to which no space is added.
        inputs: Names of the inputs of the model.
        longest: Maximum tokens of a text, if the model has a maximum.

    Raises:
        BundleError: another kind of tokenizer.
    """
    if isinstance(tokenizer, HuggingFaceTokenizer):
        content = tokenizer.content
    elif isinstance(tokenizer, BytePairTokenizer):
        content = _to_tokenizer_json(_export_byte_pairs(tokenizer), tokenizer.normalization, template, spaced=True)
    elif isinstance(tokenizer, CharacterTokenizer):
        content = _to_tokenizer_json(_export_characters(tokenizer), tokenizer.normalization, template, spaced=False)
    else:
        raise BundleError(f"a {type(tokenizer).__name__} has no published form here; keep the bundle")
    names = {role: getattr(tokenizer.special_tokens, role) for role in ("pad", "bos", "eos", "unk", "mask")}
    config: dict[str, object] = {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": list(inputs)}
    config |= {} if longest is None else {"model_max_length": longest}
    config |= {f"{role}_token": tokenizer.pieces([token])[0] for role, token in names.items() if token is not None}
    return {TOKENIZER_FILE: content.encode(), CONFIG_FILE: json.dumps(config, indent=2, ensure_ascii=False).encode()}


def _export_byte_pairs(tokenizer: BytePairTokenizer) -> tokenizers.Tokenizer:
    """Converts a byte-pair tokenizer, with the special tokens at the start of its vocabulary."""
    content = json.loads(tokenizer.to_json())["merges"]
    content["model"]["vocab"] = _with_special_tokens(content["model"]["vocab"])
    return tokenizers.Tokenizer.from_str(json.dumps(content))


def _export_characters(tokenizer: CharacterTokenizer) -> tokenizers.Tokenizer:
    """Converts a character tokenizer to a word-level tokenizer whose words are characters."""
    vocabulary = {character: token for token, character in enumerate(tokenizer.characters)}
    library = tokenizers.Tokenizer(
        models.WordLevel(_with_special_tokens(vocabulary), unk_token=SPECIAL_TOKEN_NAMES[UNK_ID])
    )
    library.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    library.decoder = decoders.Fuse()
    return library


def _with_special_tokens(vocabulary: Mapping[str, int]) -> dict[str, int]:
    """Inserts the special tokens before the ids of text, which start at 0 in the given vocabulary."""
    return {name: token for token, name in enumerate(SPECIAL_TOKEN_NAMES)} | {
        piece: token + N_SPECIAL_TOKENS for piece, token in vocabulary.items()
    }


def _to_tokenizer_json(
    library: tokenizers.Tokenizer, normalization: NormalizationConfig, template: str, *, spaced: bool
) -> str:
    """Adds normalization and boundary tokens to a converted tokenizer and returns its tokenizer.json.

    If the template is not empty and `spaced` is set, a space is added before each text.
    """
    steps: list[normalizers.Normalizer] = []
    if normalization.normalize:
        invisible, spaces = normalizers.Replace(Regex(INVISIBLE), ""), normalizers.Replace(Regex(SPACES), " ")
        steps += [normalizers.NFC(), invisible, normalizers.NFC(), spaces, normalizers.Strip()]
    steps += [normalizers.NFC()] * (normalization.unicode == "nfc")
    steps += [normalizers.Lowercase()] * normalization.lowercase
    spaced = spaced and bool(template)
    library.normalizer = normalizers.Sequence([*steps, *[normalizers.Prepend(" ")] * spaced])
    library.add_special_tokens(list(SPECIAL_TOKEN_NAMES))
    if spaced:
        library.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    if template:
        special = [(name, token) for token, name in enumerate(SPECIAL_TOKEN_NAMES)]
        library.post_processor = processors.TemplateProcessing(single=template, special_tokens=special)
    return library.to_str()
