"""Shared parts of the peers of `benchmarks/serving/serving.py`: CTranslate2 with our weights and tokenizer."""

import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(1, str(Path(__file__).parents[2] / "decoding" / "engines"))
from decoder import CONTROL, EOS
from with_ctranslate2 import CTranslate2

PACKAGES = ("ctranslate2", "tokenizers", "waitress", "starlette", "uvicorn", "httptools")


def read_order() -> dict[str, Any]:
    """Returns the order named on the command line, and writes the versions of the packages to the file it names."""
    order: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
    Path(order["versions"]).write_text(json.dumps({name: version(name) for name in PACKAGES}))
    return order


class PeerTranslator:
    """Translates texts by greedy search, with the limit on the length that `transformer translate` has."""

    def __init__(self, order: dict[str, Any]) -> None:
        from tokenizers import Tokenizer

        self.engine = CTranslate2(order)
        self.pieces = Tokenizer.from_str(json.dumps(json.loads(Path(order["tokenizer"]).read_text())["merges"]))

    def translate(self, texts: list[str]) -> list[str]:
        """Translates texts in one call of CTranslate2."""
        encoded = self.pieces.encode_batch([f" {text}" for text in texts], add_special_tokens=False)
        sources = [[*(token + CONTROL for token in encoding.ids), EOS] for encoding in encoded]
        case = {"beam": 1, "batch": 0, "by_tokens": False, "limit": max(map(len, sources)) + 50, "fixed": False}
        outputs = self.engine.tokens_of(self.engine.translate(self.engine.prepare(sources), case))
        texts = self.pieces.decode_batch([[i - CONTROL for i in ids if i >= CONTROL] for ids in outputs])
        return [text.removeprefix(" ") for text in texts]


def answer(translations: list[str], *, is_list: bool) -> bytes:
    """Returns the body of an answer."""
    return json.dumps({"translatedText": translations if is_list else translations[0]}, ensure_ascii=False).encode()
