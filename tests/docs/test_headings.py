"""Checks that each heading of the five descriptions has a row in `docs/explanation/headings.md` with working links."""

import re
import tomllib
from pathlib import Path

import pytest

from samples import ROOT

PAGE = ROOT / "docs" / "explanation" / "headings.md"
SEEDS = ROOT.parent / "shared" / "seeds"
TITLES = ("Architecture guide", "Tutorial", "Model architecture", "Shape walk", "Deep dive")
PAPER = "The paper"
MOST_WORDS = 6
"""Most words of a line that is taken for a heading in a text without marked headings."""


def headings(text: str) -> list[str]:
    """Returns the headings of a description; those below the second level follow the one above them."""
    titles: list[str] = []
    above: dict[int, str] = {}
    for marks, name in re.findall(r"^(#+) (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M):
        above = {level: title for level, title in above.items() if level < len(marks)}
        above[len(marks)] = name.strip()
        titles.append(" / ".join(title for level, title in sorted(above.items()) if level > 1 or len(above) == 1))
    if titles:
        return titles
    paragraphs = re.split(r"\n\s*\n", text)
    lines = [paragraph.strip() for paragraph in paragraphs if "\n" not in paragraph.strip()]
    return [line for line in lines if line and len(line.split()) <= MOST_WORDS and not line.endswith(".")]


def rows() -> dict[str, list[tuple[str, str]]]:
    """Returns the heading and the link of each row, by the title of the description."""
    sections = re.split(r"^## (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.M)
    return {
        title.strip(): re.findall(r"^\| (.+?) \| (.+) \|$", section, re.M)[1:]
        for title, section in zip(sections[1::2], sections[2::2], strict=True)
    }


def anchors(page: Path) -> set[str]:
    """Returns the anchors of a page's headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    names = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", name.lower()).replace(" ", "-") for name in names}


def test_every_heading_has_a_row() -> None:
    """Catches a heading of a description that no page treats, and a row for a heading that does not exist."""
    seeds = sorted(SEEDS.glob("00[0-4]_*.txt"))
    if len(seeds) != len(TITLES):
        pytest.skip(f"the five descriptions are not in {SEEDS}")
    table = rows()
    for title, seed in zip(TITLES, seeds, strict=True):
        expected = headings(seed.read_text(encoding="utf-8"))
        assert [heading for heading, _ in table[title]] == expected, title
    assert sum(len(table[title]) for title in TITLES) >= 110


def test_every_row_leads_to_a_section() -> None:
    """Catches a row whose link goes to a page or a section that does not exist."""
    table = rows()
    assert tuple(table) == (PAPER, *TITLES)
    for heading, cell in [row for section in table.values() for row in section]:
        links = re.findall(r"\]\(([^)]+)\)", cell)
        assert links, f"{heading}: no link"
        for link in links:
            name, _, anchor = link.partition("#")
            page = (PAGE.parent / name).resolve() if name else PAGE
            assert page.exists(), f"{heading}: {link}"
            assert not anchor or anchor in anchors(page), f"{heading}: {link}"


def test_every_section_of_the_paper_has_its_code_and_its_test() -> None:
    """Catches a section, table or figure of the paper without a row, and code or a test that has moved."""
    places = tomllib.loads((ROOT / "tools" / "citations.toml").read_text(encoding="utf-8"))["Vaswani et al. 2017"]
    table = rows()[PAPER]
    assert {place for place, _ in table} == {f"{place}: {title}" for place, title in places.items()}
    for place, cells in table:
        code, test = re.findall(r"`([^`]*)`", cells) or ("", "")
        assert not code or (ROOT / "src" / "transformer" / code).is_file(), place
        path, _, name = test.partition("::")
        assert not test or f"def {name}(" in (ROOT / "tests" / path).read_text(encoding="utf-8"), place
