"""The corpus report as one HTML file: no scripts, nothing from the network, all corpus text escaped."""

from transformer.data.quality.examination import Examination
from transformer.data.quality.report import detail_line, fit_line, headline, overlap_line
from transformer.errors import printable
from transformer.reporting.html import render_page


def html_report(examination: Examination) -> str:
    """Renders the corpus report as an HTML page."""
    return render_page(
        "corpus.html.jinja",
        show=_printable_lines,
        title="Corpus report: " + " and ".join(examination.names),
        files=list(zip(examination.names, examination.lines, strict=True)),
        headline=headline(examination),
        fit=fit_line(examination),
        overlaps=[overlap_line(test) for test in examination.tests],
        findings=examination.findings,
        worst=examination.worst,
        detail_line=detail_line,
    )


def _printable_lines(page: str) -> str:
    return "\n".join(map(printable, page.split("\n")))
