"""Checks that reference, glossary and bibliography are complete, and name nothing twice."""

import re

import transformer
import transformer.blocks
from samples import ROOT

DOCS = ROOT / "docs"
NAME = r"[A-Z][\wéñć-]+"
CITATION = re.compile(rf"\b({NAME}(?: et al\.| and {NAME}| & {NAME})?) ((?:19|20)\d\d)\b")
"""An author or two, and a year: `Ba et al. 2016`."""
NOT_AUTHORS = {"RFC", "November", "December"}


def documented(page: str) -> list[str]:
    """Returns the names that a page of the reference documents."""
    text = (DOCS / "reference" / page).read_text(encoding="utf-8")
    return re.findall(r"^\.\. (?:auto(?:class|function|exception)|py:data):: (\w+)", text, re.M)


def test_public_names_are_documented_once() -> None:
    """Catches a public name without an entry in the reference, or with two."""
    assert sorted(documented("python.md")) == sorted(transformer.__all__)
    assert sorted(documented("blocks.md")) == sorted(transformer.blocks.__all__)


def test_glossary_is_in_order() -> None:
    """Catches a term that stands twice, or where nobody looks for it."""
    text = (DOCS / "explanation" / "glossary.md").read_text(encoding="utf-8")
    (entries,) = re.findall(r"^```\{glossary\}\n(.*?)^```", text, re.M | re.S)
    terms = re.findall(r"^(\S.*)$", entries, re.M)
    assert len(terms) > 100
    assert terms == sorted(set(terms), key=lambda term: term.replace("_", " ").lower())


def test_cited_works_are_in_the_bibliography() -> None:
    """Catches a docstring that cites a paper which the bibliography lacks."""
    bibliography = (DOCS / "explanation" / "bibliography.md").read_text(encoding="utf-8")
    listed = {(author.split()[0], year) for author, year in CITATION.findall(bibliography)}
    listed |= {(author, year) for author, year in re.findall(rf"({NAME}) \d+, .*?, and (\d{{4}}),", bibliography)}
    cited: dict[tuple[str, str], str] = {}
    for path in sorted((ROOT / "src").rglob("*.py")):
        text = " ".join(path.read_text(encoding="utf-8").split())
        for source in re.findall(r"Source: (.{,300}?)(?:\"\"\"|Args:|Returns:)", text):
            cited |= {(author.split()[0], year): path.name for author, year in CITATION.findall(source)}
    assert len(cited) > 40
    missing = {key: name for key, name in cited.items() if key not in listed and key[0] not in NOT_AUTHORS}
    assert missing == {}
