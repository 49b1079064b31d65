"""Tokenizers of published Marian models: a SentencePiece model and a separate vocabulary."""

import base64
import json
import re
from collections.abc import Sequence
from functools import cached_property

from transformer.config import describe_error
from transformer.errors import ConfigError, DataError
from transformer.text.languages import parse_language
from transformer.tokenizers.base import Tokenizer
from transformer.tokenizers.config import NormalizationConfig
from transformer.tokenizers.special_tokens import N_SPECIAL_TOKENS, UNK_ID

SPACE = "\u2581"
LANGUAGE_CODE = re.compile(r"\s*(>>[^<>]*<<)")
MAX_LISTED_CODES = 8


class SentencePieceTokenizer(Tokenizer):
    """Splits text with a SentencePiece model; pieces that the vocabulary lacks become [UNK].

    If a text begins with `>>code<<`, perhaps after white space, the code is one token; it selects the target language
    of multilingual models.

    Args:
        model: Content of a `.spm` file.
        vocabulary: Piece of each id from `N_SPECIAL_TOKENS` on.

    Raises:
        ConfigError: the package sentencepiece is missing.
        DataError: the content is not that of a SentencePiece model.

    Attributes:
        language_codes: Codes of the target languages of a multilingual model; none for most models.

    Source: Kudo and Richardson 2018, "SentencePiece"; the files are those of Marian and OPUS-MT.
    """

    kind = "SentencePiece"

    def __init__(self, model: bytes, vocabulary: Sequence[str]) -> None:
        super().__init__(NormalizationConfig())
        try:
            from sentencepiece import SentencePieceProcessor  # optional dependency
        except ImportError as error:
            raise ConfigError("the package sentencepiece is missing; pip install 'transformer[marian]'") from error
        self._model, self._vocabulary = model, list(vocabulary)
        self.language_codes = [piece for piece in self._vocabulary if LANGUAGE_CODE.fullmatch(piece)]
        self._id_of = {piece: token for token, piece in enumerate(self._vocabulary, start=N_SPECIAL_TOKENS)}
        try:
            self._processor = SentencePieceProcessor(model_proto=model)
        except (RuntimeError, TypeError) as error:
            raise DataError("not a SentencePiece model; copy the .spm file again") from error

    @property
    def vocab_size(self) -> int:
        """Number of ids, special tokens included."""
        return len(self._vocabulary) + N_SPECIAL_TOKENS

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Encodes several texts."""
        codes = [self._match_code(text) for text in texts]
        remainders = [text[code.end() :] if code else text for text, code in zip(texts, codes, strict=True)]
        ids = [
            [self._id_of.get(piece, UNK_ID) for piece in ([code[1]] if code and not self.leading else []) + pieces]
            for code, pieces in zip(codes, self._processor.encode(remainders, out_type=str), strict=True)
        ]
        return self._with_leading(ids)

    @cached_property
    def _codes(self) -> dict[str, str]:
        """The code of each target language, by its BCP 47 tag; codes that are none, e.g. of families, are left out."""
        languages = {code: parse_language(code[2:-2]) for code in self.language_codes}
        return {language: code for code, language in reversed(languages.items()) if language}

    @property
    def target_languages(self) -> tuple[str, ...]:
        """Implements `Tokenizer.target_languages`: those of the codes in the vocabulary."""
        return tuple(reversed(self._codes))

    def tag_name(self, language: str) -> str:
        """Implements `Tokenizer.tag_name`: the model's own code, e.g. `>>fra<<` for `fr`."""
        return self._codes[language]

    def _tag_id(self, language: str) -> int:
        return self._id_of[self._codes[language]]

    def language_prefix(self, text: str) -> str:
        """Returns the code of the target language at the start of a text, e.g. `>>fra<<`, or an empty string.

        White space before the code belongs to it.
        """
        code = self._match_code(text)
        return code.group() if code else ""

    def _match_code(self, text: str) -> re.Match[str] | None:
        """Returns the language code at the start of a text; after a leading code, only the same one is a code."""
        code = LANGUAGE_CODE.match(text)
        return code if code and self.leading in ((), (self._id_of.get(code[1]),)) else None

    def language_warning(self, text: str) -> str:
        """Implements `Tokenizer.language_warning`: the code is unknown, or is missing where there are several."""
        if self.leading:
            return ""
        code, codes = LANGUAGE_CODE.match(text), self.language_codes
        listed = ", ".join(codes[:MAX_LISTED_CODES])
        if len(codes) > MAX_LISTED_CODES:
            listed += f" and {len(codes) - MAX_LISTED_CODES} more"
        if code and code[1] not in codes:
            return f"{code[1]!r} is not a language code of the model, which has {listed or 'none'}"
        if not code and len(codes) > 1 and text.strip():
            return (
                f"no language code at the start, which chooses the language of the translation; the model has {listed}"
            )
        return ""

    def normalize(self, text: str) -> str:
        """Normalizes a text as the model's rules do, usually to NFKC; a language code at its start stays."""
        code = self.language_prefix(text)
        return code + str(self._processor.normalize(text[len(code) :])).replace(SPACE, " ").strip()

    def decode(self, ids: Sequence[int]) -> str:
        """Decodes token ids to text; special tokens are omitted."""
        pieces = [self._vocabulary[i - N_SPECIAL_TOKENS] for i in ids if i >= N_SPECIAL_TOKENS]
        return str(self._processor.decode_pieces(pieces)).replace(SPACE, " ").strip()

    def fallback_bytes(self) -> list[int]:
        """Returns zeros: characters outside the pieces become [UNK], not bytes."""
        return [0] * self.vocab_size

    def to_json(self) -> str:
        """Returns the file content from which `from_json` recreates the tokenizer."""
        model = base64.b64encode(self._model).decode("ascii")
        return json.dumps({"sentencepiece": model, "vocabulary": self._vocabulary}, ensure_ascii=False, sort_keys=True)

    @classmethod
    def from_json(cls, content: str) -> "SentencePieceTokenizer":
        """Creates a tokenizer from the content that `to_json` wrote.

        Raises:
            DataError: the content is not that of such a tokenizer.
        """
        try:
            fields = json.loads(content)
            "".join(fields["vocabulary"]).encode()
            return cls(base64.b64decode(fields["sentencepiece"], validate=True), fields["vocabulary"])
        except (KeyError, TypeError, ValueError, RecursionError, DataError) as error:
            raise DataError(
                f"not a tokenizer of this package: {describe_error(error)}; import the model again"
            ) from error

    @property
    def model(self) -> bytes:
        """Content of the `.spm` file."""
        return self._model

    @property
    def vocabulary(self) -> list[str]:
        """Piece of each id from `N_SPECIAL_TOKENS` on."""
        return self._vocabulary

    def _printable_piece(self, token: int) -> str:
        """Implements `Tokenizer._printable_piece`."""
        return self._vocabulary[token - N_SPECIAL_TOKENS] if token < self.vocab_size else "[UNK]"
