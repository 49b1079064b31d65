"""HTML and XML as units and kept markup."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transformer.text.line_splitting import word_indices
from transformer.text.markup import TAG, markup_tokens
from transformer.text.markup_templates import Markup, markup_template
from transformer.text.templates import MAX_PIECE, plain_template

XML = Markup("xml")
SHORT_TAG_OR_WORD = re.compile(r"(</?x+\d+/?>)|\w+")
PAGE = """<!DOCTYPE html>
<html lang="en"><head><title>A page</title><style>p > a { color: red }</style>
<script>if (a < b) document.write("<p>Hello</p>");</script></head>
<body class='x'><!-- a <comment> -->
<h1>Big  news</h1><p>Use <code>run()</code> with <a href="https://a.b/?c=d&amp;e">this <i>nice</i> link</a>!<br/>Next
</p><ul><li>One<li>Two</ul><p translate="no">Keep</p><p>by <span class="a notranslate b">Acme</span> Inc.</p>
<table><tr><td>1</td><td>&copy; 2026</td></tr></table><img alt="a > b" src=x.png></body></html>
"""


def upper(text: str) -> str:
    """Returns a text whose words are in upper case, as if that were its translation."""
    template = markup_template(text, "en", Markup())
    changed = [SHORT_TAG_OR_WORD.sub(lambda match: match[1] or match[0].upper(), piece) for piece in template.pieces]
    return template.fill(changed)


def test_page() -> None:
    """Catches markup that changes, scripts and comments that are translated, and blocks that are joined."""
    expected = PAGE
    for old, new in (
        ("A page", "A PAGE"), ("Big  news", "BIG NEWS"), ("Use <", "USE <"), (" with <", " WITH <"),
        (">this <i>nice</i> link<", ">THIS <i>NICE</i> LINK<"), ("Next\n", "NEXT\n"), (">One<", ">ONE<"),
        (">Two<", ">TWO<"), (">by <", ">BY <"), ("> Inc.", "> INC."), ("&copy;", "©"),
    ):  # fmt: skip
        assert old in expected
        expected = expected.replace(old, new)
    assert upper(PAGE) == expected


def test_units_of_a_page() -> None:
    """Catches a sentence that is cut at inline tags, or two blocks in one unit."""
    pieces = markup_template(PAGE, "en", Markup()).pieces
    assert pieces == [
        "A page", "Big news", "Use <x1/> with <x3>this <x5>nice</x5> link</x3>!", "Next", "One", "Two",
        "by <x1/> Inc.", "1", "© 2026",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a &lt;b&gt; &amp;amp; c", "A &lt;B&gt; &amp;AMP; C"),
        ("5 < 6 & 7", "5 &lt; 6 &amp; 7"),
        ("&lt;x1&gt; <b>c</b> d", "&lt;x1&gt; <b>C</b> D"),
        ("&nbsp;a b&nbsp;", "&nbsp;A B&nbsp;"),
        ("<p> &emsp;a&#x20;</p>", "<p> &emsp;A&#x20;</p>"),
        ("<pre>a\n  b</pre>c\nd", "<pre>A\n  B</pre>C D"),
        ("<b>a</i> c</b>", "<b>A</i> C</b>"),
        ("<p>a<p title='x\">y'>b</P >", "<p>A<p title='x\">y'>B</P >"),
        ("<textarea>a <b></textarea>", "<textarea>A &lt;B&gt;</textarea>"),
        ("… <b>—</b>", "… <b>—</b>"),
        ("", ""),
    ],
)
def test_entities_and_broken_markup(text: str, expected: str) -> None:
    """Catches entities that become markup, and markup of careless authors that is lost."""
    assert upper(text) == expected


def test_tags_that_the_model_loses() -> None:
    """Catches tags that vanish from the page when a translation lacks them, and made-up ones that enter it."""
    template = markup_template("A <b>dog</b> <i>x</i>", "en", Markup())
    assert template.fill(["EIN HUND <script>"]) == "EIN HUND &lt;script&gt;<b></b><i></i>"


@pytest.mark.parametrize(
    ("markup", "pieces"),
    [
        (XML, ["Title", "This is <x1>bold</x1>.", "code"]),
        (Markup("xml", ignored=frozenset({"c"})), ["Title", "This is <x1>bold</x1>."]),
        (Markup("xml", splitting=frozenset({"b"})), ["Title", "This is", "bold", "code"]),
        (
            Markup("xml", finds_structure=False, splitting=frozenset({"t", "p"})),
            ["Title", "This is <x1>bold</x1>.", "code"],
        ),
        (
            Markup("xml", non_splitting=frozenset("tpc")),
            ["<x0>Title</x0><x3>This is <x5>bold</x5>.</x3><x10>code</x10>"],
        ),
    ],
)
def test_structure_of_xml(markup: Markup, pieces: list[str]) -> None:
    """Catches options for XML that have no effect, and structure that is not found."""
    text = "<d><t>Title</t><p>This is <b>bold</b>.</p><c>code</c></d>"
    template = markup_template(text, "en", markup)
    assert template.pieces == pieces
    assert template.fill(template.pieces) == text


MARKED_UP = st.text(alphabet="ab <>/&\"'=!-[]?xp\n;#1", max_size=60)


@given(MARKED_UP, st.sampled_from([Markup(), XML]))
def test_any_text(text: str, markup: Markup) -> None:
    """Catches texts that make the reader fail, or of which a part is lost."""
    assert "".join(token.source for token in markup_tokens(text, markup.kind)) == text
    template = markup_template(text, "en", markup)
    filled = template.fill(template.pieces)
    again = markup_template(filled, "en", markup)
    assert again.fill(again.pieces) == filled


@given(MARKED_UP)
def test_inline_tags_of_any_line(line: str) -> None:
    """Catches a tag that is removed before translation, and is text where the translation is checked."""
    tokens = markup_tokens(line, "inline")
    assert "".join(token.source for token in tokens) == line
    assert [token.source for token in tokens if token.kind != "text"] == TAG.findall(line)


@pytest.mark.parametrize(
    "part",
    ["<!--", "<a ", "<a b='", "<![", "<b>", "</b><a>", "&", "<script>", "<a \"><a '>", "<pre>", "&#" + "9" * 9999],
)
def test_hostile_markup_takes_linear_time(part: str) -> None:
    """Catches a text that occupies the server for minutes, since the time grows with the square of its length."""
    text = part * (200_000 // len(part))
    begin = time.process_time()
    for template in (markup_template(text, "en", Markup()), plain_template(text, "en")):
        template.fill(template.pieces)
    assert time.process_time() - begin < 60


def test_lines_are_kept() -> None:
    """Catches line ends and white space of a plain text that change."""
    text = "\r\n  A dog \n\n\t\nTwo\u2028cats\r\n---\n"
    template = plain_template(text, "en")
    assert template.pieces == ["A dog", "Two\u2028cats"]
    assert template.fill(template.pieces) == text
    assert template.fill(["X", "Y"]) == "\r\n  X \n\n\t\nY\r\n---\n"


def test_long_lines_are_split_at_sentences() -> None:
    """Catches a long line that is one unit, is cut within a sentence, or is joined differently."""
    text = " ".join(f"This is sentence number {number} of a long line." for number in range(60))
    template = plain_template(text, "en")
    assert len(template.pieces) > 4
    assert all(len(piece) <= MAX_PIECE and piece.endswith(".") for piece in template.pieces)
    assert template.fill(template.pieces) == text
    chinese = plain_template("这是一个很长的句子。" * 100, "zh")
    assert len(chinese.pieces) > 1
    assert chinese.fill(chinese.pieces) == "这是一个很长的句子。" * 100


def test_long_units_are_not_split_within_elements() -> None:
    """Catches the two tags of an element in different pieces, of which each is translated alone."""
    sentences = " ".join(f"Sentence number {number} is here." for number in range(40))
    template = markup_template(f"<p>{sentences} <b>{sentences[:300]}</b> {sentences}</p>", "en", Markup())
    assert len(template.pieces) > 2
    assert [piece.count("<x1>") for piece in template.pieces] == [piece.count("</x1>") for piece in template.pieces]
    long = markup_template(f"A <b>{sentences} {sentences} {sentences}</b>", "en", Markup())
    assert all(piece.removesuffix("</x1>").endswith(".") for piece in long.pieces)


def test_numbers_of_words() -> None:
    """Catches alignments of a text of several pieces that count words from the start of a piece."""
    assert word_indices("  a b\n\nc d", ["a b", "c d"]) == [[0, 1], [2, 3]]
    assert word_indices("你好。再见。 x", ["你好。", "再见。", "x"]) == [[0], [0], [1]]
    assert word_indices("a", []) == []
