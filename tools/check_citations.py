"""Compares citations in the code and the documentation with the bibliography and with `tools/citations.toml`.

Usage: python tools/check_citations.py [FILE_OR_FOLDER ...]      (default: src docs README.md)

The list, written by hand, names the sections, equations, tables and figures of each source with their titles. A
citation names its source, "Wu et al. 2016", and then a place, "Eq. 14". A place belongs to the last source of its
paragraph, or to the paper if there is none. Reported are sources that the bibliography lacks and places that the list
lacks. Exits with 1 if there are any.
"""

import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIBLIOGRAPHY = ROOT / "docs" / "explanation" / "bibliography.md"
PLACES = Path(__file__).with_name("citations.toml")
PAPER = "Vaswani et al. 2017"
ENDINGS = {".md", ".py", ".cpp", ".js"}

NAME = r"[A-Z][\w-]+"
YEAR = r"(?:19|20)\d\d[a-z]?"
NUMBER = r"(?:[A-Z]\.)?\d+(?:\.\d+)*"
CITATION = re.compile(
    rf"(?P<other>RFC \d+)"
    rf"|(?P<authors>{NAME}(?: et al\.| and {NAME})?),? \(?(?P<years>{YEAR}(?: and {YEAR})?)\b"
    rf"|\b(?P<kind>Sec|Section|Eq|Equation|Table|Fig|Figure|Algorithm)s?\.? "
    rf"(?P<numbers>{NUMBER}(?:(?:,| and| to) {NUMBER})*)(?P<of> of the paper)?"
)
KINDS = {"Sec": "Section", "Eq": "Equation", "Fig": "Figure"}
NOT_AUTHORS = {"AD", "In", "January", "Juli", "June", "Juni", "May", "T_dec", "WMT"}
"""Words before a number of four digits that are not authors."""


def citations(text: str) -> Iterator[tuple[str, str]]:
    """Yields sources and places, such as "Wu et al. 2016" and "Equation 14"; the place of a source itself is empty."""
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*[-|] )", re.sub(r"`[^`\n]+`", "", text)):
        source = PAPER
        for match in CITATION.finditer(re.sub(r"\s*\n\s*(?:# |// )?", " ", paragraph)):
            if match["other"]:
                source = ""
            elif match["authors"] in NOT_AUTHORS:
                continue
            elif match["authors"]:
                for year in match["years"].split(" and "):
                    source = f"{match['authors']} {year}"
                    yield source, ""
            elif source or match["of"]:
                kind = KINDS.get(match["kind"], match["kind"])
                for number in re.findall(NUMBER, match["numbers"]):
                    yield PAPER if match["of"] else source, f"{kind} {number}"


def check(text: str, places: dict[str, dict[str, str]], bibliography: str) -> list[str]:
    """Returns a message for each citation of a text that cannot be found."""
    known = {source for source, place in citations(bibliography) if not place}
    return [
        f"{source}, {place}: not in {PLACES.name}" if place else f"{source}: not in {BIBLIOGRAPHY.name}"
        for source, place in citations(text)
        if (place not in places.get(source, {}) if place else source not in known)
    ]


def main(arguments: Sequence[str]) -> int:
    """Checks the given files, prints what cannot be found, and returns the exit status."""
    roots = [Path(one) for one in arguments] or [ROOT / "src", ROOT / "docs", ROOT / "README.md"]
    places = tomllib.loads(PLACES.read_text(encoding="utf-8"))
    bibliography = BIBLIOGRAPHY.read_text(encoding="utf-8")
    failed = False
    for root in roots:
        for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
            if path.suffix in ENDINGS and not {"_build", "seeds"} & {*path.parts}:
                for message in check(path.read_text(encoding="utf-8"), places, bibliography):
                    print(f"{path}: {message}")
                    failed = True
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
