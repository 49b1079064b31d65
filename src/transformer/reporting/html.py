"""HTML and SVG in which every text is escaped unless it was made here."""

import html
from collections.abc import Mapping, Sequence
from typing import Any

VOID = frozenset({"meta", "link", "br", "hr"})
CONTROLS = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n"} | {0x7F: 0x2421}
"""Control characters, which HTML cannot hold, become their visible pictures."""


class Markup(str):
    """Text that is markup already. Only `element` and constants of this project make it."""

    __slots__ = ()


def escape(text: object) -> Markup:
    """Any text as it should be read: `<script>` is eight visible characters."""
    return text if isinstance(text, Markup) else Markup(html.escape(str(text).translate(CONTROLS), quote=True))


def element(tag: str, *children: object, attributes: Mapping[str, Any] | None = None) -> Markup:
    """One element; children that are not `Markup` are escaped, and so are all attributes. None is left out."""
    given = "".join(f' {name}="{escape(value)}"' for name, value in (attributes or {}).items() if value is not None)
    if tag in VOID:
        return Markup(f"<{tag}{given}>")
    return Markup(f"<{tag}{given}>{join(*children)}</{tag}>")


def join(*children: object) -> Markup:
    """Children one after the other; None is left out."""
    return Markup("".join(escape(child) for child in children if child is not None))


def table(rows: Mapping[str, object] | Sequence[Sequence[object]], head: Sequence[str] | None = None) -> Markup:
    """A table of cells; a mapping becomes two columns, names and values."""
    lines = list(rows.items()) if isinstance(rows, Mapping) else rows
    header = element("tr", *(element("th", name, attributes={"scope": "col"}) for name in head)) if head else None
    body = [
        element("tr", element("th", row[0], attributes={"scope": "row"}), *(element("td", cell) for cell in row[1:]))
        for row in lines
    ]
    return element("div", element("table", header, *body), attributes={"class": "wide"})
