"""Tokenizers of published models, read by the tokenizers library of Hugging Face."""

import json
from collections.abc import Mapping, Sequence
from itertools import count, takewhile
from typing import Any, Final

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors

from transformer.config import describe_error
from transformer.errors import BundleError, DataError
from transformer.tokenizers.base import Tokenizer
from transformer.tokenizers.byte_pair import BytePairTokenizer
from transformer.tokenizers.character import CharacterTokenizer
from transformer.tokenizers.config import NormalizationConfig
from transformer.tokenizers.library_checks import library_errors, read_library_tokenizer
from transformer.tokenizers.special_tokens import N_SPECIAL_TOKENS, SPECIAL_TOKEN_NAMES, UNK_ID, SpecialTokenIds

TOKENIZER_FILE, VOCAB_TXT, VOCAB_JSON, MERGES_TXT, CONFIG_FILE = (
    "tokenizer.json", "vocab.txt", "vocab.json", "merges.txt", "tokenizer_config.json"
)  # fmt: skip
ADDED_TOKENS_FILE: Final = "added_tokens.json"
INPUTS: Final = ("input_ids", "attention_mask")
TOKENIZER_FILE_ONLY: Final = f"read from {TOKENIZER_FILE} alone, which AutoTokenizer of transformers writes; add it"
BERT_CONFIG: Final[dict[str, tuple[Any, ...]]] = {
    "tokenizer_class": (
        None, "PreTrainedTokenizerFast",
        *(f"{name}Tokenizer{kind}" for name in ("Bert", "DistilBert", "Electra") for kind in ("", "Fast")),
    ),
    "word_tokenizer_type": (None, "basic"), "subword_tokenizer_type": (None, "wordpiece"),
    "do_basic_tokenize": (None, True), "never_split": (None, []),
}  # fmt: skip
"""Options of tokenizer_config.json, and the values for which words are split as BERT splits them."""
NORMALIZER_OPTIONS: Final = {
    "do_lower_case": "lowercase", "strip_accents": "strip_accents", "tokenize_chinese_chars": "handle_chinese_chars",
}  # fmt: skip
"""Options of tokenizer_config.json -> the same options of a BertNormalizer."""
STORED_KEY: Final = "published"
"""First key of the serialized tokenizer, by which its kind is recognized."""


class HuggingFaceTokenizer(Tokenizer):
    """The tokenizer of a published model: WordPiece, byte-level BPE or Unigram.

    Special tokens are not recognized in text: `[MASK]` is encoded as ordinary characters. Decoding restores the text as
    far as the vocabulary and the normalization preserve it; WordPiece loses spaces and perhaps case.

    Args:
        content: Content of a tokenizer.json.
        special_tokens: Ids of the special tokens.

    Raises:
        DataError: the content is not that of a tokenizer.json.
    """

    kind = "published"

    def __init__(self, content: str, special_tokens: SpecialTokenIds) -> None:
        super().__init__(NormalizationConfig())
        self._library = read_library_tokenizer(content)
        self.content = content
        self.special_tokens = special_tokens
        self._library.no_truncation()
        self._library.no_padding()
        with library_errors("a tokenizer that cannot read 'a'; copy its files again"):
            template = self._library.encode("a", add_special_tokens=True)
        inner = [index for index, special in enumerate(template.special_tokens_mask) if not special]
        first, last = (inner[0], inner[-1] + 1) if inner else (0, 0)
        self._boundary_tokens = tuple(template.ids[:first]), tuple(template.ids[last:])
        self._library.encode_special_tokens = True
        added = self._library.get_added_tokens_decoder()
        self._special = {
            token for token, properties in added.items() if properties.special and token != special_tokens.unk
        }

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
        return [self._as_text(encoding.ids) for encoding in self._encode(texts, fast=True)]

    def encode_running(
        self, texts: Sequence[str], contexts: Sequence[tuple[str, str]] | None = None
    ) -> list[list[int]]:
        """Implements `Tokenizer.encode_running`: encodes parts with context and keeps tokens that end in the part."""
        if contexts is None:
            return self.encode_batch(texts)
        whole = [before + text + after for text, (before, after) in zip(texts, contexts, strict=True)]
        token_ids: list[list[int]] = []
        for text, (before, _), encoding in zip(texts, contexts, self._encode(whole), strict=True):
            first, last = (len(before) or -1), len(before) + len(text)
            ends = [end for _, end in encoding.offsets]
            token_ids.append(
                self._as_text([i for i, end in zip(encoding.ids, ends, strict=True) if first < end <= last])
            )
        return token_ids

    def _encode(self, texts: Sequence[str], *, fast: bool = False) -> list[tokenizers.Encoding]:
        """Encodes texts with the library, without boundary tokens; `fast` omits character offsets."""
        encode = self._library.encode_batch_fast if fast else self._library.encode_batch
        with library_errors("the tokenizer lacks a token for this text, or cannot split it; repair its files"):
            return encode(list(texts), add_special_tokens=False)

    def _as_text(self, ids: list[int]) -> list[int]:
        """Replaces ids of special tokens by that of unknown text; Unigram also recognizes special tokens in text."""
        if self._special.isdisjoint(ids):
            return ids
        unk = self.special_tokens.unk
        token_ids = (unk if token in self._special else token for token in ids)
        return [token for token in token_ids if token is not None]

    def decode(self, ids: Sequence[int]) -> str:
        """Decodes token ids to text; special tokens are omitted."""
        return self._library.decode(list(ids), skip_special_tokens=True)

    def normalize(self, text: str) -> str:
        """Normalizes a text as the published tokenizer does."""
        normalizer: Any = self._library.normalizer
        return text if normalizer is None else normalizer.normalize_str(text)

    def fallback_bytes(self) -> list[int]:
        """Returns zeros: no character is split into bytes."""
        return [0] * self.vocab_size

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Returns a printable piece for each id; special tokens have their published names."""
        return [self._printable_piece(token) for token in ids]

    def _printable_piece(self, token: int) -> str:
        """Implements `Tokenizer._printable_piece`."""
        piece = self._library.id_to_token(token)
        return f"[{token}]" if piece is None else piece.replace("Ġ", "▁")

    def to_json(self) -> str:
        """Returns the file content from which `from_json` recreates the tokenizer."""
        special_tokens = {name: getattr(self.special_tokens, name) for name in ("pad", "bos", "eos", "unk", "mask")}
        return json.dumps({STORED_KEY: self.content, "control": special_tokens}, ensure_ascii=False)

    @classmethod
    def from_json(cls, content: str) -> "HuggingFaceTokenizer":
        """Creates a tokenizer from the content that `to_json` wrote.

        Raises:
            DataError: the content is not that of such a tokenizer.
        """
        try:
            fields = json.loads(content)
            return cls(fields[STORED_KEY], SpecialTokenIds(**fields["control"]))
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise DataError(
                f"not a tokenizer of this package: {describe_error(error)}; import the model again"
            ) from error


def read_tokenizer(files: Mapping[str, bytes], special_tokens: SpecialTokenIds) -> HuggingFaceTokenizer:
    """Reads the tokenizer of a published folder: tokenizer.json, or vocab.txt, or vocab.json with merges.txt.

    Args:
        files: Small files of the folder by name.
        special_tokens: Ids of the special tokens, see `read_special_token_ids`.

    Raises:
        BundleError: the folder has none of these files.
    """
    return HuggingFaceTokenizer(_content(files), special_tokens)


def read_special_token_ids(files: Mapping[str, bytes], names: Mapping[str, str]) -> dict[str, int | None]:
    """Reads the ids of special tokens.

    Args:
        files: Small files of the folder by name.
        names: Role -> default token, for roles that the folder does not define, e.g. {"mask_token": "[MASK]"}.

    Raises:
        BundleError: the folder has no tokenizer.
    """
    config: dict[str, Any] = {}
    for name in (CONFIG_FILE, "special_tokens_map.json"):
        config |= json.loads(files[name]) if name in files else {}
    content = _content(files)
    library = read_library_tokenizer(content)
    token_ids: dict[str, int | None] = {}
    for role, default in names.items():
        token = config.get(role) or default
        token_ids[role] = library.token_to_id(token["content"] if isinstance(token, dict) else str(token))
    return token_ids


def _content(files: Mapping[str, bytes]) -> str:
    if TOKENIZER_FILE in files:
        _check_normalization(json.loads(files[TOKENIZER_FILE]), json.loads(files.get(CONFIG_FILE, b"{}")))
        return files[TOKENIZER_FILE].decode("utf-8")
    try:
        if VOCAB_TXT in files:
            return _word_pieces(files).to_str()
        if VOCAB_JSON in files and MERGES_TXT in files:
            return _byte_pairs(files).to_str()
    except BundleError:
        raise
    except Exception as error:  # the library raises plain Exception
        raise BundleError(f"{VOCAB_TXT}, {VOCAB_JSON} or {MERGES_TXT} is damaged; copy it again") from error
    raise BundleError(
        f"there is no {TOKENIZER_FILE}, nor {VOCAB_TXT}, nor {VOCAB_JSON} with {MERGES_TXT}; copy the whole folder "
        "(AutoTokenizer of transformers writes tokenizer.json)"
    )


def _word_pieces(files: Mapping[str, bytes]) -> tokenizers.Tokenizer:
    """Creates the tokenizer of BERT from its vocabulary (Devlin et al. 2019, Sec. 3).

    Raises:
        BundleError: the config names another tokenizer, or there are tokens that the vocabulary lacks.
    """
    config: dict[str, Any] = json.loads(files.get(CONFIG_FILE, b"{}"))
    other = {name: config.get(name) for name, known in BERT_CONFIG.items() if config.get(name) not in known}
    if other:
        name, value = other.popitem()
        raise BundleError(
            f"{name}={value!r} in {CONFIG_FILE} does not read {VOCAB_TXT} as BERT does; add a {TOKENIZER_FILE}"
        )
    vocabulary = {word: token for token, word in enumerate(_lines(files[VOCAB_TXT]))}
    _check_added_tokens(files, vocabulary, VOCAB_TXT)
    if not {"[UNK]", "[CLS]", "[SEP]"} <= vocabulary.keys():
        raise BundleError(f"{VOCAB_TXT} lacks [UNK], [CLS] or [SEP]; copy it again")
    library = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100))
    library.normalizer = normalizers.BertNormalizer(
        lowercase=bool(config.get("do_lower_case", True)),
        strip_accents=config.get("strip_accents"),
        handle_chinese_chars=bool(config.get("tokenize_chinese_chars", True)),
    )
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.WordPiece()
    library.add_special_tokens([word for word in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]") if word in vocabulary])
    library.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[(word, vocabulary[word]) for word in ("[CLS]", "[SEP]")],
    )
    return library


def _lines(content: bytes) -> list[str]:
    """Returns the lines of a text file with Unix or Windows line ends."""
    return content.decode("utf-8").replace("\r\n", "\n").rstrip("\n").split("\n")


def _check_normalization(tokenizer: dict[str, Any], config: Mapping[str, Any]) -> None:
    """Checks that tokenizer.json and the config agree on case, accents and Chinese characters.

    Raises:
        BundleError: the two differ.
    """
    normalizer = tokenizer.get("normalizer") or {}
    if normalizer.get("type") != "BertNormalizer":
        return
    for config_name, name in NORMALIZER_OPTIONS.items():
        if config.get(config_name) not in (None, normalizer.get(name)):
            raise BundleError(
                f"{config_name}={config[config_name]} in {CONFIG_FILE} is not what {TOKENIZER_FILE} does; "
                "make the two agree"
            )


def _check_added_tokens(files: Mapping[str, bytes], vocabulary: Mapping[str, int], name: str) -> None:
    """Checks that the folder has no added tokens that the vocabulary lacks.

    Raises:
        BundleError: there are such tokens.
    """
    config, added = (json.loads(files.get(file, b"{}")) for file in (CONFIG_FILE, ADDED_TOKENS_FILE))
    tokens = {*added, *(token["content"] for token in config.get("added_tokens_decoder", {}).values())}
    if missing := tokens - vocabulary.keys():
        raise BundleError(f"tokens beside {name} ({', '.join(sorted(missing))}): {TOKENIZER_FILE_ONLY}")


def _byte_pairs(files: Mapping[str, bytes]) -> tokenizers.Tokenizer:
    """Creates the tokenizer of GPT-2 from its vocabulary and merges (Radford et al. 2019, Sec. 2.2).

    Raises:
        BundleError: texts have boundary tokens, or there are tokens that the vocabulary lacks.
    """
    lines = [line for line in _lines(files[MERGES_TXT]) if line and not line.startswith("#version")]
    pairs = [(first, second) for first, _, second in (line.partition(" ") for line in lines)]
    vocabulary: dict[str, int] = json.loads(files[VOCAB_JSON])
    config: dict[str, Any] = json.loads(files.get(CONFIG_FILE, b"{}"))
    _check_added_tokens(files, vocabulary, VOCAB_JSON)
    if config.get("add_bos_token"):
        raise BundleError(f"add_bos_token in {CONFIG_FILE}: {TOKENIZER_FILE_ONLY}")
    library = tokenizers.Tokenizer(models.BPE(vocabulary, pairs))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=bool(config.get("add_prefix_space")))
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens([token for token in ("<|endoftext|>",) if token in vocabulary])
    return library


def write_tokenizer(
    tokenizer: Tokenizer, frame: str = "", inputs: Sequence[str] = INPUTS, longest: int | None = None
) -> dict[str, bytes]:
    """Returns the tokenizer files of a published folder: tokenizer.json, and a config that names the special tokens.

    The config names the class of transformers that reads tokenizer.json unchanged, unlike the classes of single models.

    Args:
        tokenizer: A published tokenizer, or a byte-pair or character tokenizer that was trained here.
        frame: Template with the boundary tokens, for tokenizers trained here, e.g. "$A [EOS]"; "" if the model was
            trained on running text, to which no space is added.
        inputs: Names of the inputs of the model.
        longest: Maximum tokens of a text, if the model has a maximum.

    Raises:
        BundleError: another kind of tokenizer.
    """
    if isinstance(tokenizer, HuggingFaceTokenizer):
        content = tokenizer.content
    elif isinstance(tokenizer, BytePairTokenizer):
        content = _to_tokenizer_json(_export_byte_pairs(tokenizer), tokenizer.normalization, frame, spaced=True)
    elif isinstance(tokenizer, CharacterTokenizer):
        content = _to_tokenizer_json(_export_characters(tokenizer), tokenizer.normalization, frame, spaced=False)
    else:
        raise BundleError(f"a {type(tokenizer).__name__} has no published form here; keep the bundle")
    names = {role: getattr(tokenizer.special_tokens, role) for role in ("pad", "bos", "eos", "unk", "mask")}
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": list(inputs)}
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
    library: tokenizers.Tokenizer, normalization: NormalizationConfig, frame: str, *, spaced: bool
) -> str:
    """Adds normalization and boundary tokens to a converted tokenizer and returns its tokenizer.json.

    If the template is not empty and `spaced` is set, a space is added before each text.
    """
    steps: list[Any] = [normalizers.NFC()] * (normalization.unicode == "nfc")
    steps += [normalizers.Lowercase()] * normalization.lowercase
    spaced = spaced and bool(frame)
    library.normalizer = normalizers.Sequence([*steps, *[normalizers.Prepend(" ")] * spaced])
    library.add_special_tokens(list(SPECIAL_TOKEN_NAMES))
    if spaced:
        library.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    if frame:
        special = [(name, token) for token, name in enumerate(SPECIAL_TOKEN_NAMES)]
        library.post_processor = processors.TemplateProcessing(single=frame, special_tokens=special)
    return library.to_str()
