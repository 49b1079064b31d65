"""The directive `drawing`: puts an SVG file into the page itself, so that it takes the colours of light and dark mode.

```{drawing} figures/encoder-layer.svg
:alt: what the drawing shows, for those who do not see it

The caption.
```
"""

import re
from html import escape
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class Drawing(SphinxDirective):
    """Includes an SVG file whose lines and letters are drawn in `currentColor`."""

    required_arguments = 1
    has_content = True
    option_spec: ClassVar = {"alt": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        """Returns a figure with the drawing and its caption."""
        if "alt" not in self.options:
            raise self.error("a drawing needs :alt:, a text that says what it shows")
        relative, path = self.env.relfn2path("/" + self.arguments[0])
        self.env.note_dependency(relative)
        svg = Path(path).read_text(encoding="utf-8")
        svg = re.sub(r"^.*?(?=<svg)", "", svg, flags=re.DOTALL)
        label = f'<svg role="img" aria-label="{escape(self.options["alt"], quote=True)}"'
        figure = nodes.figure(classes=["drawing"])
        figure += nodes.raw("", svg.replace("<svg", label, 1), format="html")
        if self.content:
            caption = nodes.caption()
            children, messages = self.parse_inline(" ".join(self.content), lineno=self.content_offset)
            caption += children
            figure += caption
            figure += messages
        return [figure]


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the directive."""
    app.add_directive("drawing", Drawing)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
