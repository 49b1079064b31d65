"""Tokenizers of published models: a SentencePiece model that splits, and a vocabulary that numbers."""

import base64
import json
import re
from collections.abc import Sequence
from typing import Any

from transformer.errors import ConfigError, DataError
from transformer.tokenizers.base import Tokenizer
from transformer.tokenizers.config import NormalizationConfig
from transformer.tokenizers.special_tokens import N_SPECIAL_TOKENS, UNK_ID

SPACE = "\u2581"
LANGUAGE_CODE = re.compile(r">>[^<>]*<<")


class SentencePieceTokenizer(Tokenizer):
    """Splits with a SentencePiece model; pieces that the vocabulary lacks are [UNK].

    A text that begins with `>>code<<` keeps the code as one token, by which models of several target languages are told
    which to write.

    Args:
        model: the content of a `.spm` file.
        vocabulary: the piece of each id from `N_SPECIAL_TOKENS` on.

    Raises:
        ConfigError: the package sentencepiece is missing.
        DataError: the content is no such model.

    Source: Kudo and Richardson 2018, "SentencePiece"; the files are those of Marian and OPUS-MT.
    """

    kind = "SentencePiece"

    def __init__(self, model: bytes, vocabulary: Sequence[str]) -> None:
        super().__init__(NormalizationConfig())
        try:
            from sentencepiece import SentencePieceProcessor  # needed by few
        except ImportError as error:
            raise ConfigError("the package sentencepiece is missing; pip install 'transformer[marian]'") from error
        self._model, self._vocabulary = model, list(vocabulary)
        self._id_of = {piece: token for token, piece in enumerate(self._vocabulary, start=N_SPECIAL_TOKENS)}
        try:
            self._processor: Any = SentencePieceProcessor(model_proto=model)
        except (RuntimeError, TypeError) as error:
            raise DataError("not a SentencePiece model; copy the .spm file again") from error

    @property
    def vocab_size(self) -> int:
        """Number of ids, control ids included."""
        return len(self._vocabulary) + N_SPECIAL_TOKENS

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The token ids of many texts."""
        codes = [LANGUAGE_CODE.match(text) for text in texts]
        rests = [text[code.end() :] if code else text for text, code in zip(texts, codes, strict=True)]
        return [
            [self._id_of.get(piece, UNK_ID) for piece in ([code.group()] if code else []) + pieces]
            for code, pieces in zip(codes, self._processor.encode(rests, out_type=str), strict=True)
        ]

    def language_prefix(self, text: str) -> str:
        """The code of the target language, e.g. `>>fra<<`, of a model that has several."""
        code = LANGUAGE_CODE.match(text)
        return code.group() if code else ""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids; control ids are left out."""
        pieces = [self._vocabulary[i - N_SPECIAL_TOKENS] for i in ids if i >= N_SPECIAL_TOKENS]
        return str(self._processor.decode_pieces(pieces)).replace(SPACE, " ").strip()

    def fallback_bytes(self) -> list[int]:
        """Zeros: characters that no piece has become [UNK], not bytes."""
        return [0] * self.vocab_size

    def to_json(self) -> str:
        """The file content from which `from_json` makes the same tokenizer."""
        model = base64.b64encode(self._model).decode("ascii")
        return json.dumps({"sentencepiece": model, "vocabulary": self._vocabulary}, ensure_ascii=False, sort_keys=True)

    @classmethod
    def from_json(cls, content: str) -> "SentencePieceTokenizer":
        """Reads what `to_json` wrote.

        Raises:
            DataError: the content is something else.
        """
        try:
            fields = json.loads(content)
            return cls(base64.b64decode(fields["sentencepiece"], validate=True), [*map(str, fields["vocabulary"])])
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"not a tokenizer of this package ({error}); import the model again") from error

    @property
    def model(self) -> bytes:
        """The content of the `.spm` file."""
        return self._model

    @property
    def vocabulary(self) -> list[str]:
        """The piece of each id from `N_SPECIAL_TOKENS` on."""
        return self._vocabulary

    def _piece(self, token: int) -> str:
        """As `Tokenizer._piece`."""
        return self._vocabulary[token - N_SPECIAL_TOKENS] if token < self.vocab_size else "[UNK]"
