"""Compares the numbers in the tables of the shape walk with its letters and with the shapes that its code prints."""

import re

from samples import ROOT

PAGE = (ROOT / "docs" / "explanation" / "shape-walk.md").read_text(encoding="utf-8")


def table_rows() -> list[list[str]]:
    """Returns the cells of each step of the tables of encoder and decoder."""
    rows = [re.split(r" \| ", line.strip("| ")) for line in PAGE.splitlines() if line.startswith("| ")]
    return [row for row in rows if len(row) == 5 and row[1].startswith("`(")]


def test_numbers_of_the_tables_are_those_of_the_letters() -> None:
    """Catches a row whose numbers do not fit its letters."""
    letters = [line.strip("| ").split(" | ") for line in PAGE.split("## Encoder")[0].splitlines() if line[:2] == "| "]
    sizes = {row[0]: row[2:] for row in letters}
    rows = table_rows()
    assert len(rows) == 43
    for row in rows:
        names = row[1].strip("`()").split(", ")
        for place in (0, 1):
            assert row[2 + place] == f"({', '.join(sizes[name][place] for name in names)})", row


def test_tables_and_code_have_the_same_shapes() -> None:
    """Catches a shape of the code that no row has, a shape of a row that the code does not have, and another order."""
    printed = re.search(r"print\(shape\)\n(.*?)^```", PAGE, re.M | re.S)
    assert printed is not None
    walked = [shape for shape in printed[1].splitlines() if shape != "decoder"]
    shown = [row[3] for row in table_rows()]
    assert set(walked) == set(shown)
    place = 0
    for shape in shown:  # a row may stand for several steps of one shape
        place = walked.index(shape, place)
