"""Reading translation memories (TMX) as tools write them."""

from pathlib import Path

import pytest

from samples import compressed, tmx, unit
from transformer.data import tmx as tmx_reader
from transformer.data.config import DataConfig
from transformer.data.inputs import read_files, training_files
from transformer.data.readers import PairCounts
from transformer.errors import DataError


def read(path: Path, counts: PairCounts | None = None, **settings: object) -> list[tuple[str, str]]:
    settings = {"languages": ("en", "de"), **settings}
    return list(read_files(training_files(DataConfig(pairs=str(path), **settings)), counts))


def test_tmx_takes_two_languages_and_leaves_codes_out(tmp_path: Path) -> None:
    """Catches codes read as text, a missed variant of a language, and a language with the prefix of another."""
    body = (
        unit(("en-GB", "a <bpt i='1'>&lt;b&gt;</bpt>dog<ept i='1'>&lt;/b&gt;</ept> &amp; <hi>cat</hi>"), ("de", "Hund"))
        + unit(("fr", "chien"), ("DE", "nur\ndeutsch"))
        + unit(("en", "one"), ("de", "eins"), ("de-AT", "ans"), ("end", "x"))
    )
    expected = [("a dog & cat", "Hund"), ("", "nur deutsch"), ("one", "eins"), ("one", "ans")]
    for ending in ("", ".gz"):
        path = compressed(tmp_path / f"x.tmx{ending}", tmx(body))
        assert read(path, languages=("en", "de")) == expected
    old = compressed(tmp_path / "old.tmx", tmx(unit(("en", "a"), ("de", "b"))).replace(b"xml:lang", b"lang"))
    assert read(old, languages=("en", "de")) == [("a", "b")]
    wide = tmp_path / "wide.tmx"
    wide.write_bytes(
        tmx(unit(("en", "a"), ("de", "ü"))).decode().replace('"1.0"', '"1.0" encoding="UTF-16"', 1).encode("utf-16")
    )
    assert read(wide, languages=("en", "de")) == [("a", "ü")]


BOMB = '<!DOCTYPE tmx [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;">]>'
FILE = '<!DOCTYPE tmx [<!ENTITY c SYSTEM "file:///etc/passwd">]>'


@pytest.mark.parametrize("doctype", [BOMB, FILE])
def test_entities_are_refused(tmp_path: Path, doctype: str) -> None:
    """Catches an entity bomb and the reading of other files."""
    path = compressed(tmp_path / "x.tmx", tmx(unit(("en", "&c;"), ("de", "b")), doctype))
    with pytest.raises(DataError, match=r"x.tmx, line 2: the document type declares .*; remove the DOCTYPE"):
        read(path, languages=("en", "de"))


def test_the_usual_document_type_of_tmx_is_read(tmp_path: Path) -> None:
    """Catches a refusal of the document type that translation tools write; it is harmless and never fetched."""
    path = compressed(tmp_path / "x.tmx", tmx(unit(("en", "a"), ("de", "b")), '<!DOCTYPE tmx SYSTEM "tmx14.dtd">'))
    assert read(path, languages=("en", "de")) == [("a", "b")]


def test_an_entity_that_is_declared_elsewhere_is_named(tmp_path: Path) -> None:
    """Catches letters that vanish: a parser may ignore entities of a document type that it does not read."""
    doctype = '<!DOCTYPE tmx SYSTEM "tmx14.dtd">'
    path = compressed(tmp_path / "x.tmx", tmx(unit(("en", "Caf&eacute; noir"), ("de", "b")), doctype))
    with pytest.raises(DataError, match=r"x.tmx, line 2: &eacute; is declared elsewhere, which is not read"):
        read(path, languages=("en", "de"))


def test_a_unit_of_very_many_segments_is_refused(tmp_path: Path) -> None:
    """Catches a small file whose pairs, all combinations of the segments, exhaust memory."""
    path = compressed(tmp_path / "x.tmx", tmx(unit(*[("en", "a"), ("de", "b")] * 101)))
    with pytest.raises(DataError, match="a unit of 101 and 101 segments"):
        read(path, languages=("en", "de"))


def test_xml_that_is_none_is_refused(tmp_path: Path) -> None:
    """Catches a truncated file that is read as a complete one."""
    content = tmx(unit(("en", "a"), ("de", "b")) * 7)
    path = compressed(tmp_path / "x.tmx", content[:-40])
    with pytest.raises(DataError, match=r"x.tmx: not XML, or cut short \(.*line 2.*\)"):
        read(path, languages=("en", "de"))


@pytest.mark.parametrize(
    "code",
    [
        "<ph type='lb'/>", "<ph type='x-LineBreak'>{1}</ph>", "<ph>&lt;br/></ph>", "<ph>&lt;BR class='x'></ph>",
        "<it pos='begin'>&lt;p></it>", "<ph>\\n</ph>", "<ut>{\\line }</ut>", "<ut>\\tab </ut>", "<ph>\t</ph>",
        "<ph>&amp;#10;</ph>", "<ph>&amp;#x9;</ph>", "<ph>&lt;mq:ch val='&#9;' /></ph>", "<ph type='tab'/>",
        "<bpt>&lt;li></bpt><ept>&lt;/li></ept>", "<ph>&lt;w:br/></ph>", "<ph>&lt;br1/></ph>",
    ],
)  # fmt: skip
def test_a_code_that_stands_for_white_space_becomes_a_space(tmp_path: Path, code: str) -> None:
    """Catches two words that grow together where a tool wrote a line break or a tab as a code."""
    texts = f"{code}valve{code}before {code} it{code}", f"a<ph type='bold'/>b{code}"
    path = compressed(tmp_path / "x.tmx", tmx(unit(("en", texts[0]), ("de", texts[1]))))
    ((source, target),) = read(path)
    assert (source.replace("  ", " "), target) == ("valve before it", "ab")


@pytest.mark.parametrize("code", ["<ph type='bold'/>", "<ph>&lt;b></ph>", "<ph>&lt;image1/></ph>", "<ph>{nlp}</ph>"])
def test_other_codes_leave_nothing(tmp_path: Path, code: str) -> None:
    """Catches a word that is divided by its formatting."""
    path = compressed(tmp_path / "x.tmx", tmx(unit(("en", f"val{code}ve"), ("de", "Ventil"))))
    assert read(path) == [("valve", "Ventil")]


BAD = ["&#x1F;", "&#31;", "&#0;", "&#xFFFF;", "&#xD800;", "&#x110000;", "&#99999999999999999999;", "\x1f", "\uffff"]


@pytest.mark.parametrize("bad", BAD)
def test_a_forbidden_character_costs_its_unit(tmp_path: Path, bad: str) -> None:
    """Catches a memory that is refused as a whole, a unit that is lost without a count, and one that need not be."""
    body = (
        unit(("en", f"one{bad}"), ("de", "eins")) + unit(("en", "two"), ("de", "zwei"), ("fr", f"deux{bad}"))
        + f"<tu><prop type='x'>{bad}</prop><note a='{bad}'/>" + unit(("en", "three"), ("de", "drei"))[4:]
        + unit(("en", f"four<ph>{bad}</ph>"), ("de", "&#x76;ier")) + unit(("en", "five"), ("de", "<![CDATA[&#x1F;]]>"))
    )  # fmt: skip
    counts = PairCounts()
    expected = [("two", "zwei"), ("three", "drei"), ("four", "vier"), ("five", "&#x1F;")]
    assert read(compressed(tmp_path / "x.tmx.gz", tmx(body)), counts) == expected
    assert counts.damaged == 1
    with pytest.raises(DataError, match=r"holds no pair that can be used: 1 with a character that XML does not allow"):
        read(compressed(tmp_path / "y.tmx", tmx(unit(("en", bad), ("de", "b")))))


def test_a_reference_between_two_parts_of_the_file(tmp_path: Path) -> None:
    """Catches a forbidden reference that is overlooked where two parts meet, and an allowed one that is lost."""
    for size in range(900, 1030):
        body = (
            unit(("en", "&#x41;"), ("de", "b")) + "<!--" + "x" * size + "-->" + unit(("en", "&#x1F;"), ("de", "&#98;"))
        )
        counts = PairCounts()
        assert read(compressed(tmp_path / "x.tmx", tmx(body)), counts) == [("A", "b")]
        assert counts.damaged == 1


def test_languages_are_found_in_any_spelling(tmp_path: Path) -> None:
    """Catches `en_US` that does not find `en-US`, and a region that finds another one."""
    path = compressed(tmp_path / "x.tmx", tmx(unit(("en-US", "a"), ("de_DE", "b"))))
    for languages in (("en_US", "de-de"), ("EN", "de"), ("en-us", "DE_de")):
        assert read(path, languages=languages) == [("a", "b")]
    message = (
        r"no unit has a segment in 'en-GB' and one in 'de'; it holds en-US \(1\), de_DE \(1\); "
        "choose two of its languages, e.g. --languages en,de"
    )
    with pytest.raises(DataError, match=message):
        read(path, languages=("en-GB", "de"))
    apart = compressed(tmp_path / "y.tmx", tmx(unit(("en", "a")) + unit(("de", "b"))))
    with pytest.raises(DataError, match="one in 'de'; which it holds in other units only"):
        read(apart)


@pytest.mark.parametrize(
    "encoding", ["UTF-7", "Shift_JIS", "GB18030", "windows-1252", "koi8-r", "UTF-16", "utf-16-le", "UTF-32"]
)
def test_any_encoding_is_read(tmp_path: Path, encoding: str) -> None:
    """Catches encodings that Python knows but the XML parser does not."""
    text = {"Shift_JIS": "猫", "GB18030": "猫𠀀", "koi8-r": "кот", "windows-1252": "ü"}.get(encoding, "猫 ü + кот")
    content = tmx(unit(("en", text), ("de", "b"))).decode().replace('"1.0"', f'"1.0" encoding="{encoding}"', 1)
    path = compressed(tmp_path / "x.tmx", content.encode(encoding))
    assert read(path) == [(text, "b")]


@pytest.mark.parametrize("encoding", ["no-such", "rot13", "hex", "undefined", "a\0b", ""])
def test_an_unknown_encoding_is_named(tmp_path: Path, encoding: str) -> None:
    """Catches a traceback of a codec."""
    content = tmx(unit(("en", "a"), ("de", "b"))).decode().replace('"1.0"', f'"1.0" encoding="{encoding}"', 1)
    with pytest.raises(DataError, match=r"x.tmx, line 1: the encoding .* is unknown; convert the file to UTF-8"):
        read(compressed(tmp_path / "x.tmx", content.encode()))


def test_bytes_of_another_encoding_are_refused_or_replaced(tmp_path: Path) -> None:
    """Catches letters that change silently; .NET declares UTF-16 in files that are UTF-8."""
    content = tmx(unit(("en", "ok"), ("de", "gut")) + "\n" + unit(("en", "a\xff"), ("de", "b")))
    path = compressed(tmp_path / "x.tmx", content.decode().encode("latin-1"))
    with pytest.raises(DataError, match=r"x.tmx, near line 3: bytes that are not utf-8; declare .* encoding"):
        read(path)
    counts = PairCounts()
    assert read(path, counts, invalid_utf8="replace") == [("ok", "gut"), ("a\ufffd", "b")]
    assert counts.source.replaced == 1
    wrong = compressed(tmp_path / "y.tmx", content.replace(b'"1.0"', b'"1.0" encoding="utf-16"', 1))
    assert read(wrong)[1] == ("a\xff", "b")


def test_a_tag_that_never_ends_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches memory that grows with a single tag or comment, in any script."""
    monkeypatch.setattr(tmx_reader, "MAX_TAG_BYTES", 1 << 17)
    body = unit(("en", "猫" * 99_999), ("de", "b")) + "<!--" + "x" * (1 << 18) + "-->"
    with pytest.raises(DataError, match="line 2: a tag or comment of more than 131,072 bytes"):
        read(compressed(tmp_path / "x.tmx", tmx(body)))
