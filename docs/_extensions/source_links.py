"""Links from pages to files of the project outside the documentation.

Markdown links such as `[recipe](../../src/transformer/recipes/NAME.toml)` work where the project is browsed as files.
The site stands alone, so there the link becomes plain text, unless `repository` in `conf.py` says where the files are.
"""

from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

ROOT = Path(__file__).resolve().parents[2]


class SourceLinks(SphinxPostTransform):
    """Resolves links to files outside `docs`, before MyST copies them to the site as downloads."""

    default_priority = 1

    def run(self) -> None:
        """Replaces each link of a page."""
        from sphinx import addnodes

        folder = Path(self.document["source"]).parent
        for link in list(self.document.findall(addnodes.download_reference)):
            target = (folder / link["reftarget"].split("#")[0]).resolve()
            if not target.is_relative_to(ROOT) or target.is_relative_to(ROOT / "docs"):
                continue
            children = link.children
            if base := self.config.repository:
                reference = nodes.reference("", "", internal=False, refuri=f"{base}/{target.relative_to(ROOT)}")
                reference += children
                children = [reference]
            link.parent.replace(link, children)


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the transform and its configuration value."""
    app.add_config_value("repository", "", "html", types=frozenset({str}))
    app.add_post_transform(SourceLinks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
