"""Tables: columns with sentences are translated, everything else stays byte for byte."""

import csv
import io
from contextlib import suppress

import pytest

from transformer.documents.csv_table import parse
from transformer.errors import DataError
from translated_documents import parsed, translated

SHOP = (
    "id,name,description,price,seen,mail\r\n"
    'A-1,Ann Smith,"A red, warm ""coat""",12.50,2026-01-02,ann@example.org\r\n'
    "A-2,Bob Jones,Two shoes,99,2026-01-03,\r\n"
    '\r\nA-3,Eve Wood,"Line one\r\nand two",7,2026-01-04,eve@example.org\r\n'
)


def texts(content: str, columns: tuple[int | str, ...] = ()) -> list[str]:
    return [segment.text for segment in parse(content.encode(), "name", columns).segments]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (SHOP, ['A red, warm "coat"', "Two shoes", "Line one\r\nand two"]),
        (SHOP.replace(",", ";").replace("\r\n", "\n"), ['A red; warm "coat"', "Two shoes", "Line one\nand two"]),
        ("key\ten\nopen\tOpen the file\nquote\t\"Quoted\" and more\nend\t\"unclosed text",
         ["Open the file", '"Quoted" and more', '"unclosed text']),
        ("a1|The first\na2|The second\n", ["The first", "The second"]),
        ("Hello, world\nHow are you?\n", ["Hello, world", "How are you?"]),
        ("1,Good morning\n2,Good night\n", ["Good morning", "Good night"]),
        ("id,Product name\n1,Good morning\n2,Good night\n", ["Good morning", "Good night"]),
        ("no,text\n1,\u4f60\u597d\u4e16\u754c\n", ["\u4f60\u597d\u4e16\u754c"]),
        ("", []),
    ],
)  # fmt: skip
def test_columns_with_sentences_are_translated(content: str, expected: list[str]) -> None:
    assert texts(content) == expected
    once, report = translated(content.encode(), "csv")
    assert report.refused == 0
    assert (once != content.encode()) == any(text.isascii() for text in expected)
    assert translated(once, "csv")[0] == content.encode()


def test_columns_are_chosen_by_name_or_number() -> None:
    assert texts(SHOP, ("name",)) == ["Ann Smith", "Bob Jones", "Eve Wood"]
    assert texts(SHOP, (2, "description"))[:2] == ["Ann Smith", 'A red, warm "coat"']
    for columns, message in [
        (("title",), r"no column is named 'title' in its first row \(id, name, .*\); give numbers"),
        ((7,), "it has 6 columns, but --columns names column 7"),
    ]:
        with pytest.raises(DataError, match=message):
            texts(SHOP, columns)
    with pytest.raises(DataError, match="several columns are named 'a'"):
        texts("a,a\n1,2\n", ("a",))


def test_the_choice_is_told() -> None:
    """Catches a user who does not learn that a column, or a first row, was left out."""
    report = translated(SHOP.encode(), "csv")[1]
    assert report.notes == ["name: column description of 6 translated, row 1 taken for their names; see --columns"]
    assert parse(SHOP.encode(), "name", (2,)).note == ""
    with pytest.raises(DataError, match=r"no column holds sentences; name those to translate, e\.g\. --columns"):
        parsed(b"id,word\n1,Open\n2,Close\n", "csv")


@pytest.mark.parametrize(
    ("content", "translation"),
    [
        ("id,text\n1,Two red shoes\n", "Zwei, rote Schuhe"),
        ("id,text\n1,Two red shoes\n", '"Zwei" rote'),
        ('id,text\n1,"Two red shoes"\n', 'Zwei "rote", Schuhe'),
        ("id;text\n1;Two red shoes\n", "Zwei; rote, Schuhe"),
    ],
)
def test_translations_are_quoted_where_they_must_be(content: str, translation: str) -> None:
    """Catches a comma of a translation that begins another cell; the oracle is Python's reader."""
    out, _ = translated(content.encode(), "csv", lambda line: translation)
    delimiter = ";" if ";" in content else ","
    assert [*csv.reader(io.StringIO(out.decode()), delimiter=delimiter)][1:] == [["1", translation]]


def test_translations_that_would_become_formulas_or_cells_are_left() -> None:
    for content, translation in [("id,text\n1,Two red shoes\n", "=Zwei()"), ("a\tTwo shoes\n", "Zwei\tSchuhe")]:
        out, report = translated(content.encode(), "csv", lambda line, text=translation: text)
        assert (out, report.refused) == (content.encode(), 1)


def test_encodings_and_byte_order_marks_stay() -> None:
    for encoding in ("utf-8-sig", "utf-16"):
        out, _ = translated(SHOP.encode(encoding), "csv")
        assert out == SHOP.replace('A red, warm ""coat""', 'a RED, WARM ""COAT""').replace(
            "Two shoes", "tWO SHOES"
        ).replace("Line one\r\nand two", "lINE ONE\r\nAND TWO").encode(encoding)


@pytest.mark.parametrize("content", ['a,b\n1,"Two shoes\n', 'a,b\n1,"Two" shoes\n'])
def test_broken_quotation_marks_are_refused(content: str) -> None:
    with pytest.raises(DataError, match="line 2: a quotation mark is not closed, or text stands behind it"):
        parsed(content.encode(), "csv")


def test_hostile_tables_take_linear_time() -> None:
    """Catches quadratic time, which would take minutes here."""
    for content in ('"' * 5_000, ("a," * 5_000) + "two words", "two words\n" * 5_000, '"a\n' * 5_000):
        with suppress(DataError):
            parsed(content.encode(), "csv")
