"""An examination as one HTML file: no scripts, nothing from the network, all corpus text escaped."""

from collections.abc import Iterator
from html import escape

from transformer.data.doctor.examination import Examination
from transformer.data.doctor.findings import Finding, Place
from transformer.data.doctor.report import fit_line, headline, overlap_line, printable

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
# Should an escape ever be forgotten, the browser still runs and fetches nothing.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def html_report(examination: Examination) -> str:
    """The report as a page of its own."""
    title = "Corpus report: " + " and ".join(examination.names)
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{_text(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>",
            *_body(examination),
            "</body>\n</html>\n",
        ]
    )


def _body(examination: Examination) -> Iterator[str]:
    sides = zip(examination.names, examination.lines, strict=True)
    yield f"<h1>{' and '.join(f'{_text(name)} ({lines:,} lines)' for name, lines in sides)}</h1>"
    yield f"<p><b>{headline(examination)}</b>; {fit_line(examination)}.</p>"
    yield from (f"<p>{_text(overlap_line(test))}</p>" for test in examination.tests)
    yield from map(_section, examination.findings)
    if examination.worst:
        yield "<h2>Worst pairs</h2>"
        yield "<p>Fit is the log odds that the two lines belong together; good pairs are well above 0.</p>"
        yield "<table><tr><th>Fit</th><th>Lines</th><th>What speaks against them</th></tr>"
        for pair in examination.worst:
            lines = _place(pair.source) + "<br>" + _place(pair.target)
            yield f'<tr><td>{pair.fit:.1f}</td><td>{lines}</td><td class="reason">{_text(pair.reason)}</td></tr>'
        yield "</table>"


def _section(finding: Finding) -> str:
    known = finding.known
    rows = [
        f'<tr><td class="reason">{_text(example.reason)}</td><td>{"<br>".join(map(_place, example.places))}</td></tr>'
        for example in finding.examples
    ]
    return "\n".join(
        [
            f'<section class="{known.level}"><span class="level">{known.level}</span>',
            f"<h2>{finding.count:,} {_text(known.title)}</h2>",
            f'<p class="advice">{_text(known.advice)}</p>',
            f"<table>{''.join(rows)}</table></section>",
        ]
    )


def _place(place: Place) -> str:
    return f'<span class="reason">{_text(place.file)}:{place.line}</span> {_text(place.text)}'


def _text(text: str) -> str:
    return escape(printable(text))
