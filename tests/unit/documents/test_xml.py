"""XML of any kind: texts of elements, CDATA sections and languages; everything else stays byte for byte."""

import pytest

from transformer.documents.xml_scanner import read_xml
from transformer.errors import DataError
from translated_documents import translated


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("<a><t>Hello <b>you</b>!</t><u>One\n two</u></a>", "<a><t>hELLO <b>YOU</b>!</t><u>oNE\n TWO</u></a>"),
        ("<a> <![CDATA[Hi <b>you</b> &amp;]]> </a>", "<a> <![CDATA[hI <b>YOU</b> &amp;]]> </a>"),
        ("<a><!-- No --><?Pi x > y?>Text</a><!-- No -->\n", "<a><!-- No --><?Pi x > y?>tEXT</a><!-- No -->\n"),
        ('<a><t translate="no">Stay</t><t Name="Stay">12</t></a>', None),
        ('<a xml:space="preserve">One  \n two</a>', '<a xml:space="preserve">oNE  \n TWO</a>'),
        ('<!DOCTYPE a SYSTEM "a.dtd">\n<a>Caf&eacute; &#65;&#x41; &lt;b&gt;</a>',
         '<!DOCTYPE a SYSTEM "a.dtd">\n<a>cAF&eacute; &#65;&#x41; &lt;b&gt;</a>'),
        ("<ä:b>Über <ß/>uns</ä:b>", "<ä:b>ÜBER <ß/>UNS</ä:b>"),
    ],
)  # fmt: skip
def test_only_text_changes(content: str, expected: str | None) -> None:
    assert translated(content.encode(), "xml", languages=("en", ""))[0].decode() == (expected or content)


def test_the_language_is_set_where_it_is_that_of_the_file() -> None:
    content = b'<a xml:lang="en"><b xml:lang="fr">Bon</b><c xml:lang="en-GB">Good</c></a>'
    expected = b'<a xml:lang="de"><b xml:lang="fr">bON</b><c xml:lang="de">gOOD</c></a>'
    assert translated(content, "xml")[0] == expected


def test_tokens_make_up_the_file() -> None:
    content = (
        '<?xml version="1.0"?>\n<!DOCTYPE x [<!ELEMENT x ANY><!-- > -->]>\n<x a="1>2">ü<y\n/>&lt;<![CDATA[<z>]]>]]></x>'
    )
    file, tokens = read_xml(content.replace("]]>]]></x>", "]]></x>").encode(), "name")
    assert "".join(token.source for token in tokens) == file.text
    assert [token.name for token in tokens if token.name] == ["x", "y", "x"]
    assert [token.source for token in tokens if token.kind == "text"] == ["ü", "&lt;"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "iso-8859-1", "cp1252"])
def test_encodings_stay(encoding: str) -> None:
    content = f'<?xml version="1.0" encoding="{encoding}"?><a>Größe</a>'
    expected = f'<?xml version="1.0" encoding="{encoding}"?><a>gRößE</a>'
    assert translated(content.encode(encoding), "xml")[0] == expected.encode(encoding)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<a>\xff</a>", "0xff is not UTF-8; convert the file to UTF-8"),
        (b"<?xml version='1.0' encoding='klingon'?><a/>", "'klingon' is unknown"),
        (b"<a>&b;</a>", "not XML: undefined entity; correct the file"),
        (b"<a><b></a>", "not XML: mismatched tag"),
        (b"\0\0\0", "not XML"),
    ],
)
def test_what_cannot_be_read_is_one_line(content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message) as error:
        translated(content, "xml")
    assert "\n" not in str(error.value)
