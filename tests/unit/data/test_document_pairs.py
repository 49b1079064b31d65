"""Translations in PO and XLIFF files as corpora: which of them are pairs, and how their codes are written."""

from pathlib import Path

import pytest

from samples import compressed, tmx, unit
from transformer.data.config import DataConfig
from transformer.data.inputs import read_files, training_files
from transformer.data.readers import PairCounts, read_side
from transformer.errors import DataError

PO = """msgid ""
msgstr "Language: sl\\nPlural-Forms: nplurals=3; plural=(n==1 ? 1 : n==2 ? 2 : 0);\\n"

#, c-format
msgid "%s has %d files"
msgstr "%2$d files has %1$s"

#, c-format
msgid "%d file"
msgid_plural "%d files"
msgstr[0] "%d many"
msgstr[1] "%d one"
msgstr[2] "%d two"

msgid "First.\\nSecond.\\n"
msgstr "Eins.\\nZwei.\\n"

msgid "One.\\nTwo."
msgstr "Eins und zwei."

msgid "Open"
msgstr ""

#, fuzzy
msgid "Close"
msgstr "Auf"

#, c-format
msgid "Read %s"
msgstr "Lies"

#~ msgid "Old"
#~ msgstr "Alt"
"""
XLIFF = (
    '<xliff version="1.2"><file source-language="en" target-language="de"><body>'
    '<trans-unit id="1"><source>A <g id="1">big</g> <g id="2">dog</g><ph id="3">{n}</ph></source>'
    '<target><ph id="3">{n}</ph>Ein <g id="2">Hund</g> <g id="1">gro\u00df</g></target></trans-unit>'
    '<trans-unit id="2"><source>Text</source><target state="needs-translation">Text</target></trans-unit>'
    '<trans-unit id="3"><source>Next <x id="1"/></source><target>Weiter</target></trans-unit>'
    '<trans-unit id="4"><source>Last</source></trans-unit></body></file></xliff>'
)


def read(path: Path, counts: PairCounts) -> list[tuple[str, str]]:
    return list(read_files(training_files(DataConfig(pairs=str(path))), counts))


def test_translations_of_po_are_pairs_as_models_see_them(tmp_path: Path) -> None:
    """Catches a fuzzy or obsolete translation that is learned, and forms of a plural that are paired wrongly."""
    path, counts = compressed(tmp_path / "app.po.gz", PO.encode()), PairCounts()
    assert read(path, counts) == [
        ("%1$s has %2$d files", "%2$d files has %1$s"),
        ("%1$d file", "%1$d one"),
        ("%2$d files", "%2$d two"),
        ("First.", "Eins."),
        ("Second.", "Zwei."),
        ("One. Two.", "Eins und zwei."),
    ]
    assert counts.unused == {"not translated": 1, "fuzzy": 1, "other placeholders or tags": 1, "obsolete": 1}
    assert counts.left_out == 4
    assert counts.describe_left_out().count("1 obsolete") == 1


def test_translations_of_xliff_are_pairs_as_models_see_them(tmp_path: Path) -> None:
    """Catches tags that are lost, or that have other names on the other side."""
    path, counts = tmp_path / "app.xlf", PairCounts()
    path.write_text(XLIFF, encoding="utf-8")
    assert read(path, counts) == [
        ("A <x0>big</x0> <x1>dog</x1><x2/>", "<x2/>Ein <x1>Hund</x1> <x0>gro\u00df</x0>"),
    ]
    assert counts.unused == {"not translated": 2, "other placeholders or tags": 1}


def test_a_test_set_is_one_side_of_a_document(tmp_path: Path) -> None:
    path = tmp_path / "app.xliff"
    path.write_text(XLIFF, encoding="utf-8")
    counts = PairCounts()
    assert read_side(path, 0, counts=counts) == ["A <x0>big</x0> <x1>dog</x1><x2/>"]
    assert read_side(path, 1) == ["<x2/>Ein <x1>Hund</x1> <x0>gro\u00df</x0>"]
    assert counts.left_out == 3


def test_a_test_set_is_two_languages_of_a_memory(tmp_path: Path) -> None:
    """Catches a side that has other lines than the other one."""
    path = tmp_path / "x.tmx"
    body = unit(("en", "a"), ("de", "b")) + unit(("en", "c")) + unit(("fr", "d"), ("en-GB", "e"), ("de", "f"))
    path.write_bytes(tmx(body))
    languages = ("en", "de")
    assert [read_side(path, side, languages=languages) for side in (0, 1)] == [["a", "e"], ["b", "f"]]
    with pytest.raises(DataError, match=r"x\.tmx may hold more than two languages; give --source-language and"):
        read_side(path, 0)


def test_a_document_without_translations_says_why(tmp_path: Path) -> None:
    path = tmp_path / "app.po"
    path.write_text('msgid "Open"\nmsgstr ""\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"app.po holds no pair that can be used: 1 not translated; repair the file"):
        read(path, PairCounts())
