"""HTML pages: blocks, inline elements, attributes and the language; everything else stays byte for byte."""

from pathlib import Path

import pytest

from transformer.documents.html import parse
from transformer.errors import DataError
from translated_documents import parsed, translated

PLACES = ("/usr/share/doc", "/usr/lib/python3")


def swapped(page: str, languages: tuple[str, str] = ("en", "")) -> str:
    """Returns a page in UTF-8 with the case of its text swapped."""
    return translated(page.encode(), "html", languages=languages)[0].decode()


def reordered(line: str) -> str:
    """Moves the first pair of tags to the end of a line."""
    end = line.index("</x0>") + len("</x0>")
    start = line.index("<x0>")
    return f"{line[:start].strip()} {line[end:].strip()} {line[start:end]}".strip()


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("<p>Hello <b>World</b>!</p>", "<p>hELLO <b>wORLD</b>!</p>"),
        ("<P CLASS=x\n>\n  One\n  two&nbsp;three </P\n>", "<P CLASS=x\n>\n  oNE\n  TWO&nbsp;THREE </P\n>"),
        ("<p>R&D, AT&amp;T &lt;b> a < b &#65;&copy;2</p>", "<p>r&d, at&amp;t &lt;b> A < B &#65;&copy;2</p>"),
        ("<script>if (a<b) {}</script><style>p{x:y}</style><code>Code</code>", None),
        ("<div>See <code>ls -l</code> now</div>", "<div>sEE <code>ls -l</code> NOW</div>"),
        ('<p translate="no">Stay</p><p class="a notranslate">Stay</p>', None),
        ("<p>A <span translate=no>Name <i>x</i></span> b", "<p>a <span translate=no>Name <i>x</i></span> B"),
        ("<pre>One  x\n\n two</pre>", "<pre>oNE  X\n\n TWO</pre>"),
        ("<title>A &amp; B</title><textarea>x\ny</textarea>", "<title>a &amp; b</title><textarea>X\nY</textarea>"),
        ("<!-- Comment --><p>a<!-- Comment -->b<?php echo 'Hi'; ?></p>", "<p>"),
        ("<html{% if x %} lang='a'>Text {% if Name %}", "<html{% if x %} lang='a'>tEXT {% if Name %}"),
        ("<td>12</td><td>&nbsp;</td><p>", None),
    ],
)
def test_only_text_changes(page: str, expected: str | None) -> None:
    if expected == "<p>":
        expected = "<!-- Comment --><p>A<!-- Comment -->B<?php echo 'Hi'; ?></p>"
    assert swapped(page) == (page if expected is None else expected)


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ('<img alt="A cat" src="Cat.png" title=\'x "y"\'>', '<img alt="a CAT" src="Cat.png" title=\'X "Y"\'>'),
        ("<input placeholder=Name value=Keep>", "<input placeholder=nAME value=Keep>"),
        ('<input type="submit" value="Go">', '<input type="submit" value="gO">'),
        ('<meta name="Description" content="Text"><meta name="viewport" content="Width">',
         '<meta name="Description" content="tEXT"><meta name="viewport" content="Width">'),
        ('<p>See <a title="Tip" href="/X">it</a> now</p>', '<p>sEE <a title="tIP" href="/X">IT</a> NOW</p>'),
        ('<a aria-label="Close &amp; go" data-title="Stay">', '<a aria-label="cLOSE &amp; GO" data-title="Stay">'),
    ],
)  # fmt: skip
def test_attributes_that_people_read_are_translated(page: str, expected: str) -> None:
    assert swapped(page) == expected


def test_a_value_gets_quotation_marks_if_its_translation_needs_them() -> None:
    out, _ = translated(b"<img alt=Cat>", "html", lambda line: 'Die "Katze"')
    assert out == b'<img alt="Die &quot;Katze&quot;">'


def test_inline_elements_move_with_their_attributes() -> None:
    page = b'<p>The <a href="/r" title="Tip">red</a> house\n  stands</p>'
    out, _ = translated(page, "html", lambda line: reordered(line) if "<x0>" in line else "Rat")
    assert out == b'<p>The house stands\n  <a href="/r" title="Rat">red</a></p>'


def test_a_pair_whose_text_is_copied_is_one_code() -> None:
    """Catches a number of an issue or a note that a model spells anew, and a count that the model does not see."""
    page = (
        b"<p>Fixed <a href=x>#3216</a> <em>085b445</em>, see <sup>[1]</sup> <b>5</b> times</p><p><a href=x>#12</a></p>"
    )
    assert [segment.text for segment in parsed(page, "html").segments] == [
        "Fixed <x0/> <x1/>, see <x2/> <x3>5</x3> times"
    ]
    moved = translated(page, "html", lambda line: line.replace("<x0/> ", "").replace("see", "<x0/> see"))[0]
    assert moved == page.replace(b"<a href=x>#3216</a> <", b"<", 1).replace(b"see", b"<a href=x>#3216</a> see")


def test_a_pair_that_lost_its_words_is_not_written() -> None:
    """Catches a link whose only content is a picture, because it is not empty."""
    page = b"<p>see <a href=x>the page<img src=y></a> now</p>"
    lost = translated(page, "html", lambda line: line.replace("the page", "").replace("see", "see the page"))
    assert (lost[0], lost[1].refused) == (page, 1)
    assert translated(page, "html", lambda line: line.replace("the page", "x"))[0] == page.replace(b"the page", b"x")


def test_longer_translations_are_broken_at_the_width_of_the_source() -> None:
    page = "<p>" + "\n   ".join(["word " * 8 + "end"] * 3) + "</p>"
    out, _ = translated(page.encode(), "html", lambda line: f"{line} more words here")
    lines = out.decode().split("\n   ")
    assert len(lines) in (3, 4)
    assert max(map(len, lines)) < 65
    assert " ".join(" ".join(lines).split()) == " ".join(page[:-4].split()) + " more words here</p>"


def test_text_is_escaped() -> None:
    out, _ = translated(b"<p>Text</p>", "html", lambda line: "a < b & c > d")
    assert out == b"<p>a &lt; b &amp; c &gt; d</p>"


def test_the_language_of_the_page_is_set_and_others_stay() -> None:
    page = '<html lang="en-US" xml:lang=en><p lang="fr">Bon</p><meta http-equiv="Content-Language" content="en">'
    expected = '<html lang="de" xml:lang=de><p lang="fr">bON</p><meta http-equiv="Content-Language" content="de">'
    assert swapped(page, ("en", "de")) == expected


def test_encodings_stay_and_lacking_characters_are_references() -> None:
    page = '<meta charset="iso-8859-1"><p>Caf\xe9</p>'.encode("cp1252")
    out, _ = translated(page, "html", lambda line: "Café łódź")
    assert out == '<meta charset="iso-8859-1"><p>Café &#322;ód&#378;</p>'.encode("cp1252")
    assert translated(b"<p>Caf\xe9", "html")[0] == b"<p>cAF\xe9"
    with pytest.raises(DataError, match="convert the file to UTF-8"):
        translated(b"<meta charset=utf-8><p>Caf\xe9", "html")


@pytest.mark.parametrize(
    "part", ["<a ", '<a x="', "<!--", "<b>", "</b>", "&", "&#", "<p>a<b>", "{%", "<x alt=", "a=b "]
)
def test_hostile_pages_take_linear_time(part: str) -> None:
    """Catches quadratic time, which would take minutes here."""
    page = part * 5_000
    assert translated(page.encode(), "html", lambda line: line)[0] == page.encode()


@pytest.mark.slow
def test_real_pages_come_back_byte_for_byte() -> None:
    paths = [
        path for place in PLACES for path in sorted(Path(place).rglob("*.htm*")) if path.suffix in (".html", ".htm")
    ]
    pages = [path.read_bytes() for path in paths if path.is_file() and path.stat().st_size < 100_000][:40]
    n_segments = 0
    for page in pages:
        once, report = translated(page, "html", languages=("en", ""))
        assert translated(once, "html", languages=("en", ""))[0] == page
        n_segments += report.translated
        assert len(parse(once, "name").segments) == len(parse(page, "name").segments)
    if not n_segments:
        pytest.skip("no HTML pages on this machine")
