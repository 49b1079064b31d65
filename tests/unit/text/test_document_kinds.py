"""Files that are not plain text are recognized by their first bytes, and plain text is not."""

import io
import json
import os
import tarfile
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from transformer.text.document_kinds import HEAD_BYTES, document_kind

ROOT = Path(__file__).parents[3]
DATA = Path(os.environ.get("TRANSFORMER_DATA", ROOT.parent / "shared" / "data"))


def zipped(*names: str) -> bytes:
    """Returns a ZIP archive with empty files of these names."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name in names:
            archive.writestr(name, "application/vnd.oasis.opendocument.text" if name == "mimetype" else "")
    return stream.getvalue()


def tarred() -> bytes:
    """Returns a tar archive."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a.txt"))
    return stream.getvalue()


def parquet() -> bytes:
    """Returns a Parquet file."""
    stream = io.BytesIO()
    pq.write_table(pa.table({"text": ["a"]}), stream)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (zipped("[Content_Types].xml", "word/document.xml"), "a DOCX document"),
        (zipped("ppt/presentation.xml"), "a PPTX presentation"),
        (zipped("mimetype", "content.xml"), "an ODT document"),
        (zipped("a.txt"), "a ZIP archive"),
        (tarred(), "a tar archive"),
        (parquet(), "a Parquet file"),
        (b"%PDF-1.7\n", "a PDF file"),
        (b'# Translators\nmsgid ""\nmsgstr ""\n"Language: de\\n"\n\nmsgid "Open"\nmsgstr ""\n', "a PO file"),
        (b'#: a.c:1\nmsgid "%d file"\nmsgid_plural "%d files"\nmsgstr[0] ""\n', "a PO file"),
        (b'<?xml version="1.0"?>\n<xliff version="1.2">', "an XLIFF file"),
        (b'<?xml version="1.0"?>\n<tmx version="1.4">', "a TMX file"),
        (b'<?xml version="1.0"?>\n<resources>', "an XML file"),
        (b"\xef\xbb\xbf<!DOCTYPE HTML>\n<html>", "an HTML page"),
        (b"<!-- note -->\n<html lang='en'>", "an HTML page"),
        (b"WEBVTT\r\n\r\n00:01.000 --> 00:02.000\r\nHello\r\n", "a WebVTT file"),
        (b"1\n00:00:01,000 --> 00:00:02,000\n- Hello!\n", "an SRT file"),
        (json.dumps({"menu": {"open": "Open"}}).encode(), "a JSON file"),
        (json.dumps([{"a": "x"}], indent=2).encode(), "a JSON file"),
        (json.dumps(["One", "Two"]).encode(), "a JSON file"),
        (b"# Title\n\nRun this:\n\n```python\nprint(1)\n```\n\nDone.\n", "a Markdown file with code"),
        (b"{\\rtf1 Hello}", "an RTF document"),
    ],
)  # fmt: skip
def test_documents(head: bytes, kind: str) -> None:
    """Catches a document that is translated line by line, with its markup."""
    assert document_kind(head) == kind


@pytest.mark.parametrize(
    "text",
    [
        "", "A man sleeps.\n", "[applause] Thank you.\n", "{name}, hello\n", '"Open", he said: "now".\n',
        "[1] See below.\n", "<b>Bold</b> text\n", "msgid is a keyword of PO files.\n", "1\n2\n3\n",
        "# A heading\n\nText without code.\n", "At 10:00:00,000 --> then\n", "The ``` is three backticks.\n",
        '["quoted"] text\n', "BZ\n", "PK is a kick.\n",
    ],
)  # fmt: skip
def test_plain_text(text: str) -> None:
    """Catches plain text that is refused."""
    assert document_kind(text.encode()) is None


@pytest.mark.skipif(not DATA.is_dir(), reason="no corpora at TRANSFORMER_DATA")
def test_texts_of_corpora() -> None:
    """Catches a corpus that is taken for a document."""
    files = [*DATA.glob("multi30k/*.??"), *DATA.glob("tatoeba-en-de/*.??"), *DATA.glob("wmt/*.??")]
    assert len(files) > 10
    for file in files:
        with file.open("rb") as stream:
            assert document_kind(stream.read(HEAD_BYTES)) is None, file


@pytest.mark.parametrize("part", [b"<!--", b'msgid "\n', b'{"a', b"```\n", b"<", b"[", b'"\\', b"1\n", b"\n"])
def test_hostile_beginnings_take_linear_time(part: bytes) -> None:
    """Catches an expression that takes quadratic time, by the time limit of tests."""
    document_kind((part * HEAD_BYTES)[:HEAD_BYTES])
