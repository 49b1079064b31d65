"""XLIFF 1.2 and 2.x: targets are inserted or filled, inline elements and everything else stay."""

import pytest

from transformer.errors import DataError
from translated_documents import parsed, swap_case, translated

FIRST = (
    '<?xml version="1.0"?>\n<xliff version="1.2"><file source-language="en" target-language="de"><body>\n%s\n'
    "</body></file></xliff>\n"
)
SECOND = '<xliff version="2.0" srcLang="en" trgLang="de">\n<file id="f"><unit id="u">\n%s\n</unit></file></xliff>\n'


def swapped(template: str, body: str) -> str:
    """Returns the translation of a body, whose surroundings must stay."""
    out = translated((template % body).encode(), "xliff", mark="none")[0].decode()
    before, after = template.split("%s")
    assert out.startswith(before)
    assert out.endswith(after)
    return out[len(before) : -len(after)]


@pytest.mark.parametrize(
    ("content", "target"),
    [
        ("Hello &amp; you", "hELLO &amp; YOU"),
        ('A <g id="1">big <x id="2"/></g> dog', 'a <g id="1">BIG <x id="2"/></g> DOG'),
        ('<bpt id="1">B</bpt>Bold<ept id="1">B</ept>', '<bpt id="1">B</bpt>bOLD<ept id="1">B</ept>'),
        ('<bx id="1"/>Bold<ex id="2" rid="1"/>', '<bx id="1"/>bOLD<ex id="2" rid="1"/>'),
        ('Use <ph id="1">{Name}</ph><it id="2">X</it>', 'uSE <ph id="1">{Name}</ph><it id="2">X</it>'),
        ('The <mrk mtype="protected">Name</mrk>', 'tHE <mrk mtype="protected">Name</mrk>'),
        ("One\n   two", "oNE\n   TWO"),
    ],
)  # fmt: skip
def test_targets_are_inserted_behind_their_sources(content: str, target: str) -> None:
    unit = f'  <trans-unit id="1">\n    <source>{content}</source>\n    <note>Note</note>\n  </trans-unit>'
    expected = unit.replace("</source>\n", f"</source>\n    <target>{target}</target>\n")
    assert swapped(FIRST, unit) == expected


@pytest.mark.parametrize(
    ("content", "target"),
    [
        ('A <pc id="1">big</pc> <ph id="2"/>dog', 'a <pc id="1">BIG</pc> <ph id="2"/>DOG'),
        ('<sc id="1"/>Bold<ec startRef="1"/>', '<sc id="1"/>bOLD<ec startRef="1"/>'),
        ('<mrk id="1" translate="no">Name</mrk> here', '<mrk id="1" translate="no">Name</mrk> HERE'),
        ('<mrk id="1" type="term">Name</mrk> <cp hex="0001"/>', '<mrk id="1" type="term">nAME</mrk> <cp hex="0001"/>'),
    ],
)
def test_segments_of_the_second_version_get_targets(content: str, target: str) -> None:
    segment = f"<segment><source>{content}</source></segment>"
    assert swapped(SECOND, segment) == segment.replace("</segment>", f"<target>{target}</target></segment>")


def test_pairs_that_move_keep_their_partners() -> None:
    body = FIRST % '<trans-unit id="1"><source>The <g id="1">red</g> <g id="2">house</g></source></trans-unit>'
    out, _ = translated(body.encode(), "xliff", lambda line: "Das <x1>Haus</x1> ist <x0>rot</x0>")
    assert b'Das <g id="2">Haus</g> ist <g id="1">rot</g></target>' in out
    out, report = translated(body.encode(), "xliff", lambda line: "Das <x1>Haus <x0>ist</x1> rot</x0>", mark="none")
    assert (out, report.refused) == (body.encode(), 1)


@pytest.mark.parametrize(
    ("target", "state"),
    [
        ("", "untranslated"),
        ("<target/>", "untranslated"),
        ('<target state="new">Text</target>', "untranslated"),
        ('<target state="needs-translation">Text</target>', "untranslated"),
        ('<target state="needs-review-translation">Text</target>', "fuzzy"),
        ("<target>Text</target>", "translated"),
        ('<target state="final">Text</target>', "translated"),
    ],
)
def test_states_of_the_first_version(target: str, state: str) -> None:
    content = FIRST % f'<trans-unit id="1"><source>Text</source>{target}</trans-unit>'
    assert [segment.state for segment in parsed(content.encode(), "xliff").segments] == [state]


def test_existing_targets_keep_their_attributes() -> None:
    unit = '<trans-unit id="1"><source>Text</source><target xml:lang="de" state="new" />\n</trans-unit>'
    out, _ = translated((FIRST % unit).encode(), "xliff")
    assert b'<target xml:lang="de" state="needs-review-translation">tEXT</target>\n' in out
    assert b'state="translated">tEXT' in translated((FIRST % unit).encode(), "xliff", mark="none")[0]
    again, report = translated(out, "xliff")
    assert (again, report.kept) == (out, 1)


def test_units_that_are_not_to_be_translated_stay() -> None:
    units = (
        '<group translate="no"><trans-unit id="1"><source>A b</source></trans-unit></group>'
        '<trans-unit id="2" translate="no"><source>A b</source></trans-unit>'
        '<trans-unit id="3"><source>12</source><alt-trans><source>A b</source></alt-trans></trans-unit>'
        '<trans-unit id="4"><source><x id="1"/></source></trans-unit>'
    )
    assert parsed((FIRST % units).encode(), "xliff").segments == []


@pytest.mark.parametrize(
    ("template", "body"),
    [
        (FIRST, '<trans-unit id="1">\n  <source>Bad 1</source>\n</trans-unit>'),
        (SECOND, "<segment>\n<source>Bad 1</source></segment>\n<segment><source>Bad 2</source></segment>"),
        (SECOND, "<notes><note>Hi</note></notes>\n<segment><source>Bad 1</source></segment>"),
    ],
)
def test_notes_on_refused_units_are_replaced_by_the_next_run(template: str, body: str) -> None:
    content = (template % body).encode()
    noted, report = translated(content, "xliff", lambda line: "x")
    assert report.refused == body.count("Bad")
    assert noted.count(b"not translated: the translation lacks") == 1
    assert translated(noted, "xliff", lambda line: "x")[0] == noted
    once = translated(content, "xliff", swap_case)[0]
    assert translated(noted, "xliff", swap_case)[0] == once


def test_the_language_of_the_translations_is_set() -> None:
    content = FIRST.replace(' target-language="de"', "") % '<trans-unit id="1"><source>Text</source></trans-unit>'
    assert b'<file source-language="en" target-language="fr">' in translated(
        content.encode(), "xliff", languages=("en", "fr")
    )[0]  # fmt: skip


def test_the_encoding_stays() -> None:
    content = (FIRST % '<trans-unit id="1"><source>Text ü</source></trans-unit>').replace("?>", ' encoding="UTF-16"?>')
    out, _ = translated(content.encode("utf-16"), "xliff", mark="none")
    assert "<target>tEXT ü</target>" in out.decode("utf-16")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("<a/>", "its root is <a>; XLIFF begins with <xliff>"),
        ("<xliff><file></xliff>", "line 1: not XML: mismatched tag; correct the file"),
        ('<!DOCTYPE a [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]><xliff>&b;</xliff>', "it declares the entity 'a'"),
        ('<!DOCTYPE a [<!ENTITY % a SYSTEM "file:///etc/passwd">%a;]><xliff/>', "it declares the entity 'a'"),
        ("<xliff>" + "<g>" * 2000, "more than 1,000 elements within each other"),
        ("", "not XML: no element found"),
    ],
)
def test_hostile_files_are_refused(content: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parsed(content.encode(), "xliff")


def test_a_large_attribute_and_many_codes_take_linear_time() -> None:
    """Catches quadratic time, which would take minutes here."""
    codes = '<x id="1"/> ' * 5000
    unit = f'<trans-unit id="{"1" * 2_000_000}"><source>Text {codes}</source></trans-unit>'
    _, report = translated((FIRST % unit).encode(), "xliff")
    assert report.reasons == {"it has more than 1,000 tags and placeholders": 1}
