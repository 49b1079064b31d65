"""Writes pages of the inspector into the site, each the pass of one sentence through a model kept in this repository.

The directive `inspector` shows such a page within another:

```{inspector} forward-and-backward.html#forward/0
:title: what the frame shows, for those who do not see it
```
"""

import json
from html import escape
from pathlib import Path
from typing import ClassVar, Final, NamedTuple

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

DOCS: Final = Path(__file__).resolve().parents[1]
MODELS: Final = DOCS.parent / "models"
RESULTS: Final = DOCS.parent / "benchmarks" / "results"


class Page(NamedTuple):
    """The pass that a page shows.

    Attributes:
        model: Folder of the model.
        text: Sentence that it reads.
        target: Its translation; None for the model's own.
        kind: Kind of attention that the page shows alone; None for a page with everything.
    """

    model: Path
    text: str
    target: str | None = None
    kind: str | None = None


def typical_sentence(name: str, results: str) -> Page:
    """Returns the encoder's attention in the sentence that `benchmarks/translation/heads.py` has found typical."""
    [path] = RESULTS.glob(f"*/{results}")  # on whatever machine they were counted
    facts = json.loads(path.read_text(encoding="utf-8"))
    folder = MODELS / name / f"transformer_model_{name.replace('-', '_')}" / "bundle"
    return Page(folder, facts["typical"]["sentence"], kind="Encoder self-attention")


PAGES: Final = {
    "forward-and-backward.html": Page(
        DOCS / "tutorials" / "small-model", "Today a woman sleeps.", "Heute schläft eine Frau."
    ),
    "long-distance.html": typical_sentence("de-en", "heads-particles-de-en.json"),
    "anaphora.html": typical_sentence("en-de", "heads-pronouns-en-de.json"),
    "heads.html": typical_sentence("en-de", "heads-en-de.json"),
}
"""Pages by their names."""


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
    from transformer.inspection.page import render
    from transformer.inspection.page_data import attention_data, page_data
    from transformer.inspection.passes import record_pass
    from transformer.pipelines.auto import read_model

    code = Path(transformer.__file__).parent
    folders = code / "inspection", code / "reporting", code / "blocks"
    sources = [*(file for part in folders for file in part.rglob("*.*")), code / "style.py", Path(__file__)]
    sources += RESULTS.glob("*/heads-*.json")
    for name, page in PAGES.items():
        path = Path(app.outdir) / "_static" / name
        newest = max(source.stat().st_mtime for source in [*sources, *page.model.iterdir()] if source.is_file())
        if path.exists() and path.stat().st_mtime > newest:
            continue
        recorded = record_pass(read_model(page.model, None), page.text, page.target)
        data = (
            attention_data(page_data(recorded), page.kind)
            if page.kind
            else page_data(recorded, compared_norms(recorded, step_norms))
        )
        path.parent.mkdir(exist_ok=True)
        path.write_text(render(data), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the directive, and writes the pages when a build ends."""
    app.add_directive("inspector", InspectorFrame)
    app.connect("build-finished", write_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
