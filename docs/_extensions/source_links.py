"""Links from pages to files of the project outside the documentation.

Markdown links such as `[recipe](../../src/transformer/recipes/NAME.toml)` work where the project is browsed as files.
The site stands alone, so there the link becomes plain text, unless `repository` in `conf.py` says where the files are.
"""

from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

ROOT = Path(__file__).resolve().parents[2]


class SourceLinks(SphinxTransform):
    """Resolves links to files outside `docs` when a page is read, before files are collected as downloads."""

    default_priority = 1

    def apply(self, **_: object) -> None:
        """Replaces each link of a page."""
        folder = Path(self.document["source"]).parent
        for kind in (addnodes.download_reference, addnodes.pending_xref):
            for link in list(self.document.findall(kind)):
                # The target of a page has lost its suffix, and starts with / where the page is outside `docs`.
                target = (folder / str(link["reftarget"]).split("#")[0]).resolve()
                exists = target.exists() or target.with_suffix(".md").exists()
                if exists and target.is_relative_to(ROOT) and not target.is_relative_to(ROOT / "docs"):
                    self._replace(link, target)

    def _replace(self, link: nodes.Element, target: Path) -> None:
        children = link.children
        if base := self.config.repository:
            path = target if target.exists() else target.with_suffix(".md")
            reference = nodes.reference("", "", internal=False, refuri=f"{base}/{path.relative_to(ROOT)}")
            reference += children
            children = [reference]
        assert link.parent is not None
        link.parent.replace(link, children)


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the transform and its configuration value."""
    app.add_config_value("repository", "", "env", types=frozenset({str}))
    app.add_transform(SourceLinks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
