"""Writes pages of the inspector into the site, each the pass of one sentence through a small model kept in `docs`.

The directive `inspector` shows such a page within another:

```{inspector} forward-and-backward.html#forward/0
:title: what the frame shows, for those who do not see it
```
"""

from html import escape
from pathlib import Path
from typing import ClassVar, Final

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

DOCS: Final = Path(__file__).resolve().parents[1]
PAGES: Final = {
    "forward-and-backward.html": ("tutorials/small-model", "Today a woman sleeps.", "Heute schläft eine Frau.")
}
"""Name of each page, with the folder of its model, the sentence that it reads and its translation."""


class InspectorFrame(SphinxDirective):
    """Shows a page of the inspector at one of its addresses, loaded when it is scrolled to."""

    required_arguments = 1
    option_spec: ClassVar = {"title": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        """Returns a frame, and a link that opens the page alone."""
        if "title" not in self.options:
            raise self.error("a frame needs :title:, a text that says what it shows")
        depth = self.env.docname.count("/")
        address = "../" * depth + "_static/" + self.arguments[0]
        title = escape(self.options["title"], quote=True)
        frame = (
            f'<figure class="inspector"><iframe src="{address}" title="{title}" loading="lazy"></iframe>'
            f'<figcaption><a href="{address}" target="_blank">Open this page alone</a></figcaption></figure>'
        )
        return [nodes.raw("", frame, format="html")]


def write_pages(app: Sphinx, error: Exception | None) -> None:
    """Writes each page that is missing or older than its model or the inspector."""
    if error is not None or app.builder.format != "html":
        return
    import transformer
    from transformer.inspection.gradient_norms import compared_norms, step_norms
    from transformer.inspection.page import page_data, render
    from transformer.inspection.passes import record_pass
    from transformer.pipelines.auto import read_model

    code = Path(transformer.__file__).parent
    folders = code / "inspection", code / "reporting", code / "blocks"
    sources = [*(file for part in folders for file in part.rglob("*.*")), code / "style.py", Path(__file__)]
    for name, (model, text, target) in PAGES.items():
        path, folder = Path(app.outdir) / "_static" / name, DOCS / model
        newest = max(source.stat().st_mtime for source in [*sources, *folder.iterdir()] if source.is_file())
        if path.exists() and path.stat().st_mtime > newest:
            continue
        recorded = record_pass(read_model(folder, None), text, target)
        path.parent.mkdir(exist_ok=True)
        path.write_text(render(page_data(recorded, compared_norms(recorded, step_norms))), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the directive, and writes the pages when a build ends."""
    app.add_directive("inspector", InspectorFrame)
    app.connect("build-finished", write_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
