"""Builders for HTML and SVG that escape all text except `Markup`."""

import html
from collections.abc import Mapping, Sequence
from typing import Any

VOID = frozenset({"meta", "link", "br", "hr"})
CONTROLS = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n"} | {0x7F: 0x2421}
"""Replacements of control characters, which HTML cannot contain, by their visible symbols."""


class Markup(str):
    """Text that is already markup. Only `element`, `join` and constants of this package create it."""

    __slots__ = ()


def escape(text: object) -> Markup:
    """Escapes text so that it is displayed literally: `<script>` becomes eight visible characters."""
    return text if isinstance(text, Markup) else Markup(html.escape(str(text).translate(CONTROLS), quote=True))


def element(tag: str, *children: object, attributes: Mapping[str, Any] | None = None) -> Markup:
    """Builds an element. Children that are not `Markup` and all attributes are escaped; None is skipped."""
    rendered = "".join(f' {name}="{escape(value)}"' for name, value in (attributes or {}).items() if value is not None)
    if tag in VOID:
        return Markup(f"<{tag}{rendered}>")
    return Markup(f"<{tag}{rendered}>{join(*children)}</{tag}>")


def join(*children: object) -> Markup:
    """Concatenates children; None is skipped."""
    return Markup("".join(escape(child) for child in children if child is not None))


def table(rows: Mapping[str, object] | Sequence[Sequence[object]], head: Sequence[str] | None = None) -> Markup:
    """Builds a table; a mapping becomes two columns, names and values."""
    lines = list(rows.items()) if isinstance(rows, Mapping) else rows
    header = element("tr", *(element("th", name, attributes={"scope": "col"}) for name in head)) if head else None
    body = [
        element("tr", element("th", row[0], attributes={"scope": "row"}), *(element("td", cell) for cell in row[1:]))
        for row in lines
    ]
    return element("div", element("table", header, *body), attributes={"class": "wide"})
