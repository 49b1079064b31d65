"""Resources of Android: values are translated; escapes, references, markup and layout stay."""

from pathlib import Path

import pytest

from transformer.documents.formats import find_format
from transformer.errors import DataError
from translated_documents import parsed, translated

RESOURCES = (
    '<?xml version="1.0" encoding="utf-8"?>\n<!-- License -->\n<resources xmlns:xliff="urn:oasis" '
    'xmlns:tools="t" tools:locale="en">\n%s\n</resources>\n'
)


def swapped(body: str, language: str = "de") -> str:
    """Returns the translation of a body, after a check that a second one brings back the file."""
    content = (RESOURCES % body).encode()
    out, report = translated(content, "android", languages=("en", language))
    assert report.refused == 0
    changed = out.replace(f'locale="{language}"'.encode(), b'locale="en"')
    assert (changed != out) == (report.translated > 0)
    assert language != "de" or translated(changed, "android", languages=("en", "en"))[0] == content
    before, after = RESOURCES.split("%s")
    assert changed.decode().startswith(before)
    return changed.decode()[len(before) : -len(after)]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("Don\\'t say \\\"no\\\" &amp; go", "dON\\'T SAY \\\"NO\\\" &amp; GO"),
        ("First line\\nSecond\\u00a0line\\tend", "fIRST LINE\\nsECOND\\u00a0LINE\\tEND"),
        ("\\@ home \\? back \\\\ slash", "\\@ HOME \\? BACK \\\\ SLASH"),
        ('"Keeps   spaces, doesn\'t escape"', '"kEEPS   SPACES, DOESN\'T ESCAPE"'),
        ("A <b>big</b> <i>dog</i>", "a <b>BIG</b> <i>DOG</i>"),
        ('By <xliff:g id="n" example="Ann">%1$s</xliff:g>, %2$d%%',
         'bY <xliff:g id="n" example="Ann">%1$s</xliff:g>, %2$d%%'),
        ("<![CDATA[<b>Bold</b> isn\\'t &amp; \"red\"]]>", "<![CDATA[<b>bOLD</b> ISN\\'T &amp; \"RED\"]]>"),
        ("One\n      two", "oNE\n      TWO"),
        ("caf\\u00e9", "CAF\\u00e9"),
        ("@string/other", "@string/other"), ("?attr/text", "?attr/text"), ("12", "12"), ("", ""),
    ],
)  # fmt: skip
def test_strings(content: str, expected: str) -> None:
    assert swapped(f'  <string name="a">{content}</string>') == f'  <string name="a">{expected}</string>'


def test_arrays_are_translated_and_what_is_not_translatable_stays() -> None:
    body = (
        '<string-array name="days"><item>Monday</item> <item>@string/b</item></string-array>\n'
        '<string name="id" translatable="false">Some id</string><color name="c">red</color>\n'
        '<string-array name="x" translatable="false"><item>Text</item></string-array>'
    )
    assert swapped(body) == body.replace("Monday", "mONDAY")


def test_plurals_get_the_forms_of_the_language() -> None:
    """Catches forms that Polish needs and English lacks."""
    items = '  <item quantity="one">%d file</item>\n  <item quantity="other">%d files</item>\n'
    expected = '  <item quantity="one">%d FILE</item>\n'
    forms = "".join(f'  <item quantity="{name}">%d FILES</item>\n' for name in ("few", "many", "other"))
    assert swapped(f'<plurals name="n">\n{items}</plurals>', "pl") == f'<plurals name="n">\n{expected}{forms}</plurals>'
    assert swapped(f'<plurals name="n">\n{items}</plurals>').count("<item") == 2


def test_new_quotation_marks_and_apostrophes_are_escaped() -> None:
    """Catches the apostrophe of French, at which Android's compiler stops."""
    content = (RESOURCES % '<string name="a">The text</string>').encode()
    out, _ = translated(content, "android", lambda line: "L'\"heure\" & 'a'")
    assert b">L\\'\\\"heure\\\" &amp; \\'a\\'<" in out


def test_resources_are_told_from_other_xml_by_their_content(tmp_path: Path) -> None:
    path = tmp_path / "strings.xml"
    kinds = {
        RESOURCES % '<string name="a">b</string>': "android", "<resources><dimen/></resources>": "xml",
        '<?xml version="1.0"?><xliff version="1.2"/>': "xliff", "<tmx version='1.4'>": "tmx", "<a>b</a>": "xml",
    }  # fmt: skip
    for content, name in kinds.items():
        form = find_format(path, content.encode())
        assert form is not None
        assert form.name == name


def test_other_files_are_refused() -> None:
    with pytest.raises(DataError, match="its root is <a>; resources of Android begin with <resources>"):
        parsed(b"<a/>", "android")


def test_a_comment_says_why_a_string_was_left() -> None:
    """Catches a string that stays in the source language without a trace, and a comment that XML does not allow."""
    body = (
        '  <string name="a">One</string>\n  <string name="b">%1$s--two</string>\n'
        '<plurals name="n">\n  <item quantity="other">%d files</item>\n</plurals>'
    )
    content = (RESOURCES % body).encode()
    out, report = translated(content, "android", lambda line: line if "%" not in line else "Wort")
    comments = (
        "  <!-- not translated: the translation lacks '%1$s' -->\n",
        "  <!-- not translated: the translation lacks '%d' -->\n",
    )
    expected = body.replace('  <string name="b"', f'{comments[0]}  <string name="b"').replace(
        "  <item", f"{comments[1]}  <item"
    )
    assert (out.decode(), report.refused) == ((RESOURCES % expected).replace('locale="en"', 'locale="de"'), 2)
    assert translated(out, "android", str, mark="none")[1].refused == 0
    tricky = (RESOURCES % '<string name="b">A <b>--&gt; x</b></string>').encode()
    assert parsed(translated(tricky, "android", lambda line: "Wort")[0], "android").segments
