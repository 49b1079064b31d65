"""Properties of Java and strings of Apple programs: values are translated, everything else stays byte for byte."""

import pytest

from transformer.errors import DataError
from translated_documents import translated


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("# Comment\nkey = Value here\n! Comment\n\nother:Text\nthird  More\n",
         "# Comment\nkey = vALUE HERE\n! Comment\n\nother:tEXT\nthird  mORE\n"),
        ("a = One \\\n    two\r\nb=x\r\n", "a = oNE \\\n    TWO\r\nb=X\r\n"),
        ("a.b = Caf\\u00e9 \\t\\\\ end", "a.b = cAF\\u00e9 \\t\\\\ END"),
        ("a\\ b\\:c = Value {0} of {1}", "a\\ b\\:c = vALUE {0} OF {1}"),
        ("empty =\nnumber = 12\nalone\n", None),
    ],
)  # fmt: skip
def test_properties(content: str, expected: str | None) -> None:
    out, _ = translated(content.encode(), "properties")
    assert out.decode() == (expected or content)
    assert translated(out, "properties")[0] == content.encode()


def test_properties_in_ascii_stay_so() -> None:
    content = b"a = Caf\\u00e9\nb = Text"
    assert translated(content, "properties", lambda line: "\u00dcber \u0142\u00f3d\u017a" if line == "Text" else line)[
        0
    ] == (b"a = Caf\\u00e9\nb = \\u00dcber \\u0142\\u00f3d\\u017a")
    assert translated(b"a = Caf\xe9", "properties")[0] == b"a = cAF\xe9"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('/* A "b" = "c"; */\n"key one" = "Hello %@";\n// "x" = "y";\nkey="Say \\"hi\\"\\n";',
         '/* A "b" = "c"; */\n"key one" = "hELLO %@";\n// "x" = "y";\nkey="sAY \\"HI\\"\\n";'),
        ('"a" = "";\n"b" = "12";', None),
        ('"a" = "One\n\ttwo";\n', '"a" = "oNE\n\tTWO";\n'),
        ('"a" = "\\U00e9tat";', '"a" = "\\U00e9TAT";'),
    ],
)  # fmt: skip
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_apple_strings(content: str, expected: str | None, encoding: str) -> None:
    out, _ = translated(content.encode(encoding), "strings")
    assert out.decode(encoding) == (expected or content)
    assert translated(out, "strings")[0] == content.encode(encoding)


def test_quotation_marks_are_escaped() -> None:
    assert translated(b'"a" = "Text";', "strings", lambda line: 'Ein "Text"')[0] == b'"a" = "Ein \\"Text\\"";'


@pytest.mark.parametrize(("content", "message"), [(b'"a" = "b', "line 1"), (b"\n{a}", "line 2: '{' is not")])
def test_strings_that_cannot_be_read_are_refused_in_one_line(content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        translated(content, "strings")


def lost(line: str) -> str:
    """Returns a translation without placeholders."""
    return "Wort" if "{" in line or "%" in line else line


@pytest.mark.parametrize(
    ("content", "form", "expected"),
    [
        ("a = One\n  b: {0} two\n", "properties",
         "a = One\n  # not translated: the translation lacks '{0}'\n  b: {0} two\n"),
        ("a = {0} x\\\r\n  y\r\n", "properties",
         "# not translated: the translation lacks '{0}'\r\na = {0} x\\\r\n  y\r\n"),
        ('/* A */\n"a" = "%@ one";', "strings",
         '/* A */\n/* not translated: the translation lacks \'%@\' */\n"a" = "%@ one";'),
        ('"b" = "One"; "a" = "%@ two";', "strings",
         '"b" = "One"; /* not translated: the translation lacks \'%@\' */ "a" = "%@ two";'),
    ],
)  # fmt: skip
def test_a_comment_says_why_a_value_was_left(content: str, form: str, expected: str) -> None:
    """Catches a value that stays in the source language without a trace, and a comment that hides an entry."""
    out, report = translated(content.encode(), form, lost)
    assert (out.decode(), report.refused) == (expected, 1)
    assert translated(content.encode(), form, lost, mark="none")[0] == content.encode()
    again, report = translated(out, form, str, mark="none")
    assert (again, report.refused) == (out, 0)


def test_comments_stay_in_the_encoding_of_the_file() -> None:
    """Catches a comment that turns a file of ASCII, or of ISO 8859-1, into one that is not."""
    out, _ = translated(b"a = Caf\\u00e9 {\\u0142}\n", "properties", lambda line: "Wort")
    assert out == b"# not translated: the translation lacks '{\\u0142}'\na = Caf\\u00e9 {\\u0142}\n"
    out, report = translated(b"a = Caf\xe9 bar\n", "properties", lambda line: "\u0142\u00f3d\u017a")
    assert out.startswith(b"# not translated: '\\u0142' cannot be written in ISO-8859-1")
    assert report.refused == 1
