"""The HTML page around the sections of a report: head, light and dark style, table of contents."""

from collections.abc import Mapping

from transformer.reporting.html import Markup, element, join

# Nothing may be loaded, run or sent: the file is self-contained.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

STYLE = Markup("""
:root { color-scheme: light dark; --page: #fcfcfb; --text: #1c2024; --soft: #66707a; --line: #e3e5e8; --panel: #f3f4f5;
  --c0: #2563eb; --c1: #c2570c; --c2: #047857; --c3: #7c3aed; --bad: #b42318; }
@media (prefers-color-scheme: dark) { :root { --page: #14171a; --text: #e6e8ea; --soft: #9aa4ae; --line: #2b3036;
  --panel: #1d2125; --c0: #6ea8fe; --c1: #f5a25d; --c2: #4ec9a0; --c3: #b794f6; --bad: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1180px; padding: 2rem 1.25rem 5rem; background: var(--page); color: var(--text);
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 3rem 0 .9rem; padding-top: 1rem; border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.6rem 0 .5rem; }
p { max-width: 72ch; } .soft, small { color: var(--soft); }
nav { margin: 1rem 0 0; } nav a { margin-right: 1.1rem; color: var(--c0); text-decoration: none; white-space: nowrap; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: .8rem; margin: 1.6rem 0; }
.card { background: var(--panel); border-radius: 10px; padding: .8rem 1rem; }
.card b { display: block; font-size: 1.55rem; font-variant-numeric: tabular-nums; line-height: 1.3; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 430px), 1fr)); gap: 1.4rem; }
figure { margin: 0; } figcaption { margin-bottom: .4rem; } figcaption b { font-weight: 600; margin-right: .8rem; }
.key { color: var(--soft); margin-right: .8rem; } .key::before { content: ""; display: inline-block; width: .7em;
  height: .7em; border-radius: 2px; margin-right: .4em; background: var(--c0); }
.k1::before { background: var(--c1); } .k2::before { background: var(--c2); } .k3::before { background: var(--c3); }
svg { display: block; width: 100%; height: auto; } svg text { fill: var(--soft); font-size: 11px; }
.grid { stroke: var(--line); } polyline { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
.l0 { stroke: var(--c0); } .l1 { stroke: var(--c1); } .l2 { stroke: var(--c2); } .l3 { stroke: var(--c3); }
.d0, .cell, .bar { fill: var(--c0); } .d1 { fill: var(--c1); } .d2 { fill: var(--c2); } .d3 { fill: var(--c3); }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; vertical-align: top; padding: .35rem 1.2rem .35rem 0; border-bottom: 1px solid var(--line); }
th { font-weight: 500; color: var(--soft); } td { overflow-wrap: anywhere; }
.sentence { display: grid; grid-template-columns: 6.5rem 1fr; gap: .1rem 1rem; padding: .8rem 0;
  border-bottom: 1px solid var(--line); } .sentence > span { overflow-wrap: anywhere; white-space: pre-wrap; }
.sentence > small { text-align: right; } .output { font-weight: 600; } .low { color: var(--bad); }
pre { background: var(--panel); border-radius: 10px; padding: 1rem; overflow-x: auto; font-size: 13px; }
code { font-size: .92em; overflow-wrap: anywhere; }
@media (max-width: 560px) { .sentence { grid-template-columns: 1fr; } .sentence > small { text-align: left; } }
@media print { body { max-width: none; } h2 { break-after: avoid; } figure, .sentence { break-inside: avoid; } }
""")


def page(title: str, opening: Markup, sections: Mapping[str, Markup | None]) -> str:
    """Renders an HTML file.

    Args:
        title: Title of the page.
        opening: Content above the sections.
        sections: Content of the sections by heading; sections without content are omitted.
    """
    present = {name: content for name, content in sections.items() if content}
    links = [element("a", name, attributes={"href": f"#{_anchor(name)}"}) for name in present]
    bodies = [
        element("section", element("h2", name), content, attributes={"id": _anchor(name)})
        for name, content in present.items()
    ]
    head = join(
        element("meta", attributes={"charset": "utf-8"}),
        element("meta", attributes={"http-equiv": "Content-Security-Policy", "content": POLICY}),
        element("meta", attributes={"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        element("title", title),
        element("style", STYLE),
    )
    header = element("header", element("h1", title), opening, element("nav", *links))
    body = element("body", header, element("main", *bodies))
    return f"<!doctype html>\n{element('html', element('head', head), body, attributes={'lang': 'en'})}\n"


def _anchor(name: str) -> str:
    return "-".join(name.lower().split())
