"""The corpus report as one HTML file: no scripts, nothing from the network, all corpus text escaped."""

from collections.abc import Iterator, Sequence

from transformer.data.quality.examination import Examination
from transformer.data.quality.findings import CorpusLine, Example, Finding
from transformer.data.quality.pairs import WorstPair
from transformer.data.quality.report import fit_line, headline, overlap_line
from transformer.errors import printable
from transformer.reporting.html import Markup, element, join

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin: 0; }
section { border-left: 6px solid #999; padding: .4rem 1rem; margin: 1rem 0; background: #f7f7f7; }
section.problem { border-color: #c0392b; } section.warning { border-color: #d98e04; }
section.note { border-color: #2d7dd2; }
.level { text-transform: uppercase; font-size: .75rem; letter-spacing: .05em; }
.advice { margin: .2rem 0 .6rem; font-style: italic; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; } td, th { padding: .25rem .6rem; text-align: left; }
td { border-top: 1px solid #ddd; vertical-align: top; overflow-wrap: anywhere; } td:first-child { white-space: nowrap; }
.reason { color: #666; }
"""
# If an escape is ever missing, the browser still runs and loads nothing.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def html_report(examination: Examination) -> str:
    """Renders the corpus report as an HTML page."""
    head = element(
        "head",
        element("meta", attributes={"charset": "utf-8"}),
        element("meta", attributes={"http-equiv": "Content-Security-Policy", "content": POLICY}),
        element("meta", attributes={"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        element("title", printable("Corpus report: " + " and ".join(examination.names))),
        element("style", Markup(STYLE)),
    )
    page = element("html", head, "\n", element("body", *_body(examination)), attributes={"lang": "en"})
    return f"<!doctype html>\n{page}\n"


def _body(examination: Examination) -> Iterator[Markup]:
    sides = zip(examination.names, examination.lines, strict=True)
    yield element("h1", " and ".join(f"{printable(name)} ({lines:,} lines)" for name, lines in sides))
    yield element("p", element("b", headline(examination)), f"; {fit_line(examination)}.")
    yield from (element("p", printable(overlap_line(test))) for test in examination.tests)
    yield from map(_section, examination.findings)
    if examination.worst:
        yield element("h2", "Worst pairs")
        yield element("p", "Fit is the log odds that the two lines belong together; good pairs are well above 0.")
        yield element(
            "table",
            element("tr", *(element("th", name) for name in ("Fit", "Lines", "What speaks against them"))),
            *map(_worst_row, examination.worst),
        )


def _section(finding: Finding) -> Markup:
    known = finding.kind_info
    return element(
        "section",
        element("span", known.level, attributes={"class": "level"}),
        element("h2", f"{finding.count:,} {printable(known.title)}"),
        element("p", printable(known.advice), attributes={"class": "advice"}),
        element("table", *map(_example_row, finding.examples)),
        "\n",
        attributes={"class": known.level},
    )


def _worst_row(pair: WorstPair) -> Markup:
    lines = element("td", _places([pair.source, pair.target]))
    return element("tr", element("td", f"{pair.fit:.1f}"), lines, _muted("td", pair.reason))


def _example_row(example: Example) -> Markup:
    return element("tr", _muted("td", example.reason), element("td", _places(example.lines)))


def _places(places: Sequence[CorpusLine]) -> Markup:
    """Renders lines of files, one below the other."""
    lines = [join(_muted("span", f"{place.file}:{place.line}"), " ", printable(place.text)) for place in places]
    return join(*(join(element("br") if number else None, line) for number, line in enumerate(lines)))


def _muted(tag: str, text: str) -> Markup:
    return element(tag, printable(text), attributes={"class": "reason"})
