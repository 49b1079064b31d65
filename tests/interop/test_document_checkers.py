"""Programs of other projects read the translated documents: gettext, translate-toolkit, xmllint, ffmpeg, node, pandoc.

A program that is not installed is skipped by name: `apt install gettext libxml2-utils ffmpeg nodejs pandoc`, and
`pip install translate-toolkit`.
"""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from translated_documents import translated

pytestmark = pytest.mark.interop

PO = (
    'msgid ""\nmsgstr ""\n"Language: de\\n"\n"MIME-Version: 1.0\\n"\n'
    '"Content-Type: text/plain; charset=UTF-8\\n"\n"Content-Transfer-Encoding: 8bit\\n"\n'
    '"Plural-Forms: nplurals=2; plural=(n != 1);\\n"\n\n'
    '#, c-format\nmsgid "Read %s of <b>%d</b> \\"files\\"\\n"\nmsgstr ""\n\n'
    '#, c-format\nmsgid "%d file"\nmsgid_plural "%d files"\nmsgstr[0] ""\nmsgstr[1] ""\n'
)
XLIFF = (
    '<?xml version="1.0" encoding="utf-8"?>\n<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">'
    '<file original="a" datatype="plaintext" source-language="en" target-language="de"><body>'
    '<trans-unit id="1"><source>A <g id="1">big</g> dog &amp; cat</source></trans-unit>'
    '<trans-unit id="2"><source>Text</source><target>Wort</target></trans-unit></body></file></xliff>'
)
TMX = (
    '<?xml version="1.0" encoding="utf-8"?>\n<tmx version="1.4"><header creationtool="x" creationtoolversion="1" '
    'segtype="sentence" o-tmf="x" adminlang="en" srclang="en" datatype="plaintext"/><body>'
    '<tu><tuv xml:lang="en"><seg>A <bpt i="1">b</bpt>big<ept i="1">b</ept> dog</seg></tuv></tu></body></tmx>'
)
ANDROID = (
    '<resources xmlns:xliff="urn:oasis:names:tc:xliff:document:1.2"><string name="a">Don\\\'t &amp; <b>do</b> '
    '<xliff:g id="n">%1$s</xliff:g></string><plurals name="n"><item quantity="other">%d files</item></plurals>'
    "</resources>"
)
SRT = (
    "1\n00:00:01,000 --> 00:00:02,500\n<i>Where is it?</i>\n\n"
    "2\n00:00:03,000 --> 00:00:05,000\nWe have been waiting here\n\n"
    "3\n00:00:05,100 --> 00:00:07,000\nfor three hours.\n"
)
MESSAGES = '{"a": "Say \\"hi\\" to {name}\\u2026", "b": ["One\\ntwo", "{n, plural, one {# file} other {# files}}"]}'
PAGE = '<!DOCTYPE html><html lang="en"><body><p>A <b>red</b> house</p><ul><li>An item</li></ul></body></html>'


def ran(*command: str | Path, text: str = "") -> str:
    """Runs a program and returns what it printed.

    The test is skipped if it is not installed, and fails if the program does.
    """
    if shutil.which(str(command[0])) is None:
        pytest.skip(f"{command[0]} is not installed")
    result = subprocess.run([*map(str, command)], input=text, capture_output=True, text=True, timeout=600, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def written(folder: Path, name: str, form: str, content: str, language: str = "de") -> Path:
    """Writes a translated document."""
    out, report = translated(content.encode(), form, languages=("en", language), mark="none")
    assert (report.refused, report.translated > 0) == (0, True)
    path = folder / name
    path.write_bytes(out)
    return path


def test_gettext_compiles_po(tmp_path: Path) -> None:
    ran("msgfmt", "--check", "-o", tmp_path / "app.mo", written(tmp_path, "app.po", "po", PO))


def test_pofilter_finds_no_fault_in_po(tmp_path: Path) -> None:
    """Catches placeholders, tags, escapes and line ends that a translation lost."""
    path = written(tmp_path, "app.po", "po", PO)
    tests = ("printf", "xmltags", "escapes", "newlines", "numbers", "untranslated", "nplurals", "doublequoting")
    ran("pofilter", "--progress=none", *(f"--test={name}" for name in tests), path, tmp_path / "faults.po")
    faults = tmp_path / "faults.po"
    assert not faults.exists() or "msgid" not in faults.read_text(encoding="utf-8").partition("\n\n")[2]


@pytest.mark.parametrize(("name", "form", "content"), [("a.xlf", "xliff", XLIFF), ("a.tmx", "tmx", TMX)])
def test_translate_toolkit_reads_each_translation(tmp_path: Path, name: str, form: str, content: str) -> None:
    """Catches a unit whose translation the toolkit does not find; those of XLIFF are fuzzy to it until approved."""
    rows = [line.split(",") for line in ran("pocount", "--csv", written(tmp_path, name, form, content)).splitlines()]
    counts = dict(zip(map(str.strip, rows[0]), map(str.strip, rows[-1]), strict=False))
    n_translated = int(counts["Translated Messages"]) + int(counts["Fuzzy Messages"])
    assert (counts["Untranslated Messages"], n_translated) == ("0", content.count("<source>") + content.count("<tu>"))


@pytest.mark.parametrize(
    ("name", "form", "content"),
    [("a.xlf", "xliff", XLIFF), ("a.tmx", "tmx", TMX), ("strings.xml", "android", ANDROID), ("a.xml", "xml", ANDROID)],
)
def test_xmllint_accepts_xml(tmp_path: Path, name: str, form: str, content: str) -> None:
    ran("xmllint", "--noout", written(tmp_path, name, form, content, "pl" if form == "android" else "de"))


def test_ffmpeg_reads_subtitles(tmp_path: Path) -> None:
    """Catches a cue that is lost, or whose time changes."""
    path = written(tmp_path, "a.srt", "srt", SRT)
    read = ran("ffmpeg", "-v", "error", "-i", path, "-f", "srt", "-")
    assert [line for line in read.splitlines() if "-->" in line] == [line for line in SRT.splitlines() if "-->" in line]
    assert "wHERE IS IT?" in read
    vtt = "WEBVTT\n\n" + SRT.replace(",", ".")
    assert "wHERE IS IT?" in ran(
        "ffmpeg", "-v", "error", "-i", written(tmp_path, "a.vtt", "vtt", vtt), "-f", "srt", "-"
    )


def test_node_parses_messages(tmp_path: Path) -> None:
    path = written(tmp_path, "a.json", "json", MESSAGES)
    script = "process.stdout.write(JSON.stringify(JSON.parse(require('fs').readFileSync(process.argv[1], 'utf8'))))"
    assert json.loads(ran("node", "-e", script, path)) == {
        "a": 'sAY "HI" TO {name}\u2026', "b": ["oNE\nTWO", "{n, plural, one {# FILE} other {# FILES}}"]
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "form", "content", "reader"),
    [
        ("a.html", "html", PAGE, "html"),
        ("a.md", "md", "# A title\n\nA **red** house\n\n- An item\n", "gfm"),
    ],
)
def test_pandoc_reads_texts(tmp_path: Path, name: str, form: str, content: str, reader: str) -> None:
    path = written(tmp_path, name, form, content)
    text = ran("pandoc", "-f", reader, "-t", "plain", path)
    assert "HOUSE" in text
