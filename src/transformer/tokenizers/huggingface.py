"""Tokenizers of published models, as the tokenizers library reads them."""

import json
from collections.abc import Mapping, Sequence
from itertools import count, takewhile
from typing import Any, Final

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors

from transformer.errors import BundleError, DataError
from transformer.tokenizers.base import Tokenizer
from transformer.tokenizers.byte_pair import BytePairTokenizer
from transformer.tokenizers.character import CharacterTokenizer
from transformer.tokenizers.config import NormalizationConfig
from transformer.tokenizers.special_tokens import N_SPECIAL_TOKENS, SPECIAL_TOKEN_NAMES, UNK_ID, SpecialTokenIds

WHOLE, WORDS, PIECES, MERGES, FACTS = (
    "tokenizer.json", "vocab.txt", "vocab.json", "merges.txt", "tokenizer_config.json"
)  # fmt: skip
ADDED: Final = "added_tokens.json"
INPUTS: Final = ("input_ids", "attention_mask")
FROM_WHOLE: Final = f"read from {WHOLE} alone, which AutoTokenizer of transformers writes; add it"
BERT_FACTS: Final[dict[str, tuple[Any, ...]]] = {
    "tokenizer_class": (
        None, "PreTrainedTokenizerFast",
        *(f"{name}Tokenizer{kind}" for name in ("Bert", "DistilBert", "Electra") for kind in ("", "Fast")),
    ),
    "word_tokenizer_type": (None, "basic"), "subword_tokenizer_type": (None, "wordpiece"),
    "do_basic_tokenize": (None, True), "never_split": (None, []),
}  # fmt: skip
"""Facts beside a list of words, and with which values words are split as BERT splits them."""
NORMALIZED: Final = {
    "do_lower_case": "lowercase", "strip_accents": "strip_accents", "tokenize_chinese_chars": "handle_chinese_chars",
}  # fmt: skip
"""Facts that a BertNormalizer has too, and what they are called there."""
KIND: Final = "published"
"""The key that a stored form begins with."""


class HuggingFaceTokenizer(Tokenizer):
    """Encodes text as a published model was trained to read it: WordPiece, byte-level BPE, Unigram.

    Tokens that steer the model are not found in typed text: `[MASK]` is read as what it looks like. What is decoded is
    the text as far as the vocabulary and its normalization keep it: WordPiece forgets spaces and perhaps case.

    Args:
        content: of a tokenizer.json.
        special_tokens: Ids of the special tokens.

    Raises:
        DataError: the content is something else.
    """

    kind = "published"

    def __init__(self, content: str, special_tokens: SpecialTokenIds) -> None:
        super().__init__(NormalizationConfig())
        try:
            self._library = tokenizers.Tokenizer.from_str(content)
        except Exception as error:  # the library raises plain Exception
            raise DataError(
                f"not a tokenizer.json that the tokenizers library reads ({error}); copy it again"
            ) from error
        self.content = content
        self.special_tokens = special_tokens
        self._library.no_truncation()
        self._library.no_padding()
        try:
            with_frame = self._library.encode("a", add_special_tokens=True)
        except Exception as error:
            raise DataError(f"a tokenizer that cannot read 'a' ({error}); copy its files again") from error
        inner = [place for place, special in enumerate(with_frame.special_tokens_mask) if not special]
        first, last = (inner[0], inner[-1] + 1) if inner else (0, 0)
        self._frame = tuple(with_frame.ids[:first]), tuple(with_frame.ids[last:])
        self._library.encode_special_tokens = True
        added = self._library.get_added_tokens_decoder()
        self._special = {token for token, facts in added.items() if facts.special and token != special_tokens.unk}

    @property
    def boundary_tokens(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """As of `Tokenizer`: what the published tokenizer puts around a text."""
        return self._frame

    @property
    def first_text_id(self) -> int:
        """As of `Tokenizer`: published vocabularies mix them with others, so that it is 0."""
        return 0

    @property
    def sentinels(self) -> tuple[int, ...]:
        """The ids of `<extra_id_0>`, `<extra_id_1>`, ..., which stand for spans that were taken out."""
        found = (self._library.token_to_id(f"<extra_id_{number}>") for number in count())
        return tuple(token for token in takewhile(lambda token: token is not None, found) if token is not None)

    @property
    def vocab_size(self) -> int:
        """One more than the largest id."""
        return max(self._library.get_vocab(with_added_tokens=True).values()) + 1

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The token ids of many texts, without those of the frame."""
        return [self._as_text(encoding.ids) for encoding in self._encode(texts, fast=True)]

    def encode_running(self, texts: Sequence[str], around: Sequence[tuple[str, str]] | None = None) -> list[list[int]]:
        """As of `Tokenizer`: of what stands around a part, each token that ends within the part is its."""
        if around is None:
            return self.encode_batch(texts)
        whole = [before + text + after for text, (before, after) in zip(texts, around, strict=True)]
        found: list[list[int]] = []
        for text, (before, _), encoding in zip(texts, around, self._encode(whole), strict=True):
            first, last = (len(before) or -1), len(before) + len(text)
            ends = [end for _, end in encoding.offsets]
            found.append(self._as_text([i for i, end in zip(encoding.ids, ends, strict=True) if first < end <= last]))
        return found

    def _encode(self, texts: Sequence[str], *, fast: bool = False) -> list[tokenizers.Encoding]:
        """As the library does, without the frame; where it is to be fast, without places in the text."""
        encode = self._library.encode_batch_fast if fast else self._library.encode_batch
        try:
            return encode(list(texts), add_special_tokens=False)
        except Exception as error:  # the library raises plain Exception
            raise DataError(f"the tokenizer lacks what it needs for this text ({error}); mend its files") from error

    def _as_text(self, ids: list[int]) -> list[int]:
        """The ids without those that steer the model, which some vocabularies (Unigram) also find in typed text."""
        if self._special.isdisjoint(ids):
            return ids
        unk = self.special_tokens.unk
        found = (unk if token in self._special else token for token in ids)
        return [token for token in found if token is not None]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids; control ids are left out."""
        return self._library.decode(list(ids), skip_special_tokens=True)

    def normalize(self, text: str) -> str:
        """The text as the published tokenizer normalizes it."""
        normalizer: Any = self._library.normalizer
        return text if normalizer is None else normalizer.normalize_str(text)

    def fallback_bytes(self) -> list[int]:
        """Unknown text is one token here; no id spends bytes."""
        return [0] * self.vocab_size

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """A printable piece for each id, control ids by their published names."""
        return [self._piece(token) for token in ids]

    def _piece(self, token: int) -> str:
        """As `Tokenizer._piece`."""
        piece = self._library.id_to_token(token)
        return f"[{token}]" if piece is None else piece.replace("Ġ", "▁")

    def to_json(self) -> str:
        """The file content from which `from_json` makes the same tokenizer."""
        special_tokens = {name: getattr(self.special_tokens, name) for name in ("pad", "bos", "eos", "unk", "mask")}
        return json.dumps({KIND: self.content, "control": special_tokens}, ensure_ascii=False)

    @classmethod
    def from_json(cls, content: str) -> "HuggingFaceTokenizer":
        """Reads what `to_json` wrote.

        Raises:
            DataError: the content is something else.
        """
        try:
            fields = json.loads(content)
            return cls(fields[KIND], SpecialTokenIds(**fields["control"]))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DataError(f"not a tokenizer of this package ({error}); import the model again") from error


def read_tokenizer(files: Mapping[str, bytes], special_tokens: SpecialTokenIds) -> HuggingFaceTokenizer:
    """The tokenizer of a published folder: tokenizer.json, or vocab.txt, or vocab.json with merges.txt.

    Args:
        files: the small files of the folder by name.
        special_tokens: Ids of the special tokens, see `read_special_token_ids`.

    Raises:
        BundleError: none of them is there.
    """
    return HuggingFaceTokenizer(_content(files), special_tokens)


def read_special_token_ids(files: Mapping[str, bytes], names: Mapping[str, str]) -> dict[str, int | None]:
    """The ids of control tokens.

    Args:
        files: the small files of the folder by name.
        names: of the token of each role where the folder does not tell, e.g. {"mask_token": "[MASK]"}.

    Raises:
        BundleError: there is no tokenizer.
    """
    facts: dict[str, Any] = {}
    for name in (FACTS, "special_tokens_map.json"):
        facts |= json.loads(files[name]) if name in files else {}
    content = _content(files)
    try:
        library = tokenizers.Tokenizer.from_str(content)
    except Exception as error:  # the library raises plain Exception
        raise BundleError(f"not a tokenizer that the tokenizers library reads ({error}); copy it again") from error
    found: dict[str, int | None] = {}
    for role, usual in names.items():
        token = facts.get(role) or usual
        found[role] = library.token_to_id(token["content"] if isinstance(token, dict) else str(token))
    return found


def _content(files: Mapping[str, bytes]) -> str:
    if WHOLE in files:
        _refuse_other_normalization(json.loads(files[WHOLE]), json.loads(files.get(FACTS, b"{}")))
        return files[WHOLE].decode("utf-8")
    try:
        if WORDS in files:
            return _word_pieces(files).to_str()
        if PIECES in files and MERGES in files:
            return _byte_pairs(files).to_str()
    except BundleError:
        raise
    except Exception as error:  # the library raises plain Exception
        raise BundleError(f"{WORDS}, {PIECES} or {MERGES} is damaged ({error}); copy it again") from error
    raise BundleError(
        f"there is no {WHOLE}, nor {WORDS}, nor {PIECES} with {MERGES}; copy the whole folder (AutoTokenizer of "
        "transformers writes tokenizer.json)"
    )


def _word_pieces(files: Mapping[str, bytes]) -> tokenizers.Tokenizer:
    """BERT's tokenizer from the list of its words (Devlin et al. 2019, Sec. 3).

    Raises:
        BundleError: words are split by another tokenizer, or there are tokens beside the list.
    """
    facts: dict[str, Any] = json.loads(files.get(FACTS, b"{}"))
    other = {name: facts.get(name) for name, known in BERT_FACTS.items() if facts.get(name) not in known}
    if other:
        name, value = other.popitem()
        raise BundleError(f"{name}={value!r} in {FACTS} does not read {WORDS} as BERT does; add a {WHOLE}")
    vocabulary = {word: token for token, word in enumerate(_lines(files[WORDS]))}
    _refuse_more(files, vocabulary, WORDS)
    if not {"[UNK]", "[CLS]", "[SEP]"} <= vocabulary.keys():
        raise BundleError(f"{WORDS} lacks [UNK], [CLS] or [SEP]; copy it again")
    library = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100))
    library.normalizer = normalizers.BertNormalizer(
        lowercase=bool(facts.get("do_lower_case", True)),
        strip_accents=facts.get("strip_accents"),
        handle_chinese_chars=bool(facts.get("tokenize_chinese_chars", True)),
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
    """Those of a file of text, which may have passed through Windows."""
    return content.decode("utf-8").replace("\r\n", "\n").rstrip("\n").split("\n")


def _refuse_other_normalization(whole: dict[str, Any], facts: Mapping[str, Any]) -> None:
    """Refuses a folder that says two things of case, accents or Chinese characters.

    Raises:
        BundleError: tokenizer.json and its facts differ.
    """
    normalizer = whole.get("normalizer") or {}
    if normalizer.get("type") != "BertNormalizer":
        return
    for asked, made in NORMALIZED.items():
        if facts.get(asked) not in (None, normalizer.get(made)):
            raise BundleError(f"{asked}={facts[asked]} in {FACTS} is not what {WHOLE} does; make the two agree")


def _refuse_more(files: Mapping[str, bytes], vocabulary: Mapping[str, int], name: str) -> None:
    """Refuses tokens that stand beside a vocabulary.

    Raises:
        BundleError: there are some.
    """
    facts, added = (json.loads(files.get(each, b"{}")) for each in (FACTS, ADDED))
    known = {*added, *(each["content"] for each in facts.get("added_tokens_decoder", {}).values())}
    if more := known - vocabulary.keys():
        raise BundleError(f"tokens beside {name} ({', '.join(sorted(more))}): {FROM_WHOLE}")


def _byte_pairs(files: Mapping[str, bytes]) -> tokenizers.Tokenizer:
    """GPT-2's tokenizer from its vocabulary and merges (Radford et al. 2019, Sec. 2.2).

    Raises:
        BundleError: texts are framed, or there are tokens beside the vocabulary.
    """
    lines = [line for line in _lines(files[MERGES]) if line and not line.startswith("#version")]
    pairs = [(first, second) for first, _, second in (line.partition(" ") for line in lines)]
    vocabulary: dict[str, int] = json.loads(files[PIECES])
    facts: dict[str, Any] = json.loads(files.get(FACTS, b"{}"))
    _refuse_more(files, vocabulary, PIECES)
    if facts.get("add_bos_token"):
        raise BundleError(f"add_bos_token in {FACTS}: {FROM_WHOLE}")
    library = tokenizers.Tokenizer(models.BPE(vocabulary, pairs))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=bool(facts.get("add_prefix_space")))
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens([token for token in ("<|endoftext|>",) if token in vocabulary])
    return library


def write_tokenizer(
    tokenizer: Tokenizer, frame: str = "", inputs: Sequence[str] = INPUTS, longest: int | None = None
) -> dict[str, bytes]:
    """The files of a published folder: tokenizer.json and what says which tokens steer the model.

    The class of transformers that is named reads tokenizer.json as it stands; those of single models change it.

    Args:
        tokenizer: published, or byte pairs or characters that were trained here.
        frame: of a tokenizer trained here: the template that texts are put in, e.g. "$A [EOS]"; "" where the model was
            trained on running text, to which no space is added.
        inputs: what the model takes.
        longest: most tokens of a text that it takes, where there is such a number.

    Raises:
        BundleError: another one.
    """
    if isinstance(tokenizer, HuggingFaceTokenizer):
        content = tokenizer.content
    elif isinstance(tokenizer, BytePairTokenizer):
        content = _framed(_merges_of_ours(tokenizer), tokenizer.normalization, frame, spaced=True)
    elif isinstance(tokenizer, CharacterTokenizer):
        content = _framed(_characters_of_ours(tokenizer), tokenizer.normalization, frame, spaced=False)
    else:
        raise BundleError(f"a {type(tokenizer).__name__} has no published form here; keep the bundle")
    names = {role: getattr(tokenizer.special_tokens, role) for role in ("pad", "bos", "eos", "unk", "mask")}
    facts: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": list(inputs)}
    facts |= {} if longest is None else {"model_max_length": longest}
    facts |= {f"{role}_token": tokenizer.pieces([token])[0] for role, token in names.items() if token is not None}
    return {WHOLE: content.encode(), FACTS: json.dumps(facts, indent=2, ensure_ascii=False).encode()}


def _merges_of_ours(tokenizer: BytePairTokenizer) -> tokenizers.Tokenizer:
    """Our byte pairs with the control ids before them."""
    content = json.loads(tokenizer.to_json())["merges"]
    content["model"]["vocab"] = _after_control(content["model"]["vocab"])
    return tokenizers.Tokenizer.from_str(json.dumps(content))


def _characters_of_ours(tokenizer: CharacterTokenizer) -> tokenizers.Tokenizer:
    """Our characters, of which each is a word."""
    vocabulary = {character: token for token, character in enumerate(tokenizer.characters)}
    library = tokenizers.Tokenizer(models.WordLevel(_after_control(vocabulary), unk_token=SPECIAL_TOKEN_NAMES[UNK_ID]))
    library.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    library.decoder = decoders.Fuse()
    return library


def _after_control(vocabulary: Mapping[str, int]) -> dict[str, int]:
    """The control ids, and after them those of text, counted from 0 here."""
    return {name: token for token, name in enumerate(SPECIAL_TOKEN_NAMES)} | {
        piece: token + N_SPECIAL_TOKENS for piece, token in vocabulary.items()
    }


def _framed(library: tokenizers.Tokenizer, normalization: NormalizationConfig, frame: str, *, spaced: bool) -> str:
    """The tokenizer.json of one of ours: what normalizes a text, the space before a framed one, and its frame."""
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
