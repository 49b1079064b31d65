"""Corpora of all formats with random damage: read, or refused in one line."""

import random
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from samples import tmx, unit
from transformer.data.config import DataConfig
from transformer.data.inputs import read_files, training_files
from transformer.errors import DataError

PIECES = [
    b'"', b"\t", b",", b"\n", b"\r", b"\0", b"\xff", b"\x1c", b"&#x1F;", b"<", b">", b"&", b"\xef\xbb\xbf", b"\xff\xfe",
    b'encoding="utf-16"', b'encoding="utf-7"', b"{", b"[", b"</seg>", b"<tu>", b"</tu>", b"<ph>", b"</ph>", b"\\ud800",
    b"]]>", b"<!--", b"1e999", b"\xe2\x80\xa8",
]  # fmt: skip
UNITS = unit(("en", "a<ph type='lb'/>b &#x1F;"), ("de", "<![CDATA[c]]>")) + unit(("en", "d"), ("de", "e"))
CORPORA = {
    "x.tmx": tmx(UNITS * 3),
    "x.csv": b'source,target\n"a, b",c\nd,"e""f\ng"\n',
    "x.tsv": b"a\tb\nc\td\n",
    "x.po": b'#, c-format\nmsgid "a %d"\nmsgid_plural "b %d"\nmsgstr[0] "c %d"\nmsgstr[1] "d %d"\n\n'
    b'#~ msgid "e"\n#~ msgstr "f"\n',
    "x.xlf": b'<xliff version="1.2"><file><trans-unit><source>a <x id="1"/></source><target><x id="1"/>b</target>'
    b"</trans-unit></file></xliff>",
    "x.jsonl": b'{"source": "a", "target": "b"}\n{"source": "c", "target": null}\n',
}


@pytest.mark.parametrize("name", [*CORPORA, "x.parquet"])
def test_a_damaged_corpus_is_read_or_refused(tmp_path: Path, name: str) -> None:
    """Catches tracebacks of parsers and codecs, texts that are none, and line breaks within a text."""
    path, generator = tmp_path / name, random.Random(name)
    parquet.write_table(pa.table({"source": ["a", "b"], "target": ["c", "d"]}), tmp_path / "whole")
    whole = CORPORA.get(name) or (tmp_path / "whole").read_bytes()
    for _ in range(200):
        content = bytearray(whole)
        for _ in range(generator.randint(1, 3)):
            at = generator.randrange(len(content) + 1)
            content[at : at + generator.choice((0, 0, 1, 9))] = generator.choice(PIECES)
        path.write_bytes(bytes(content))
        languages = ("en", "de") if name == "x.tmx" else None
        for invalid in ("error", "replace"):
            settings = DataConfig(pairs=str(path), languages=languages, invalid_utf8=invalid)
            pairs: list[tuple[str, str]] = []
            with suppress(DataError):
                pairs = list(read_files(training_files(settings)))
            texts = [text for pair in pairs for text in pair]
            assert not any("\n" in text for text in texts)
            assert "".join(texts).encode().decode() == "".join(texts)
