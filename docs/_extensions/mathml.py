"""Renders formulas as MathML, which browsers draw themselves: no script, no font and no outside request."""

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util.math import get_node_equation_number


def visit_inline(self: Any, node: nodes.math) -> None:
    """Writes a formula within a line."""
    self.body.append(convert(node.astext()))
    raise nodes.SkipNode


def visit_block(self: Any, node: nodes.math_block) -> None:
    """Writes a formula on a line of its own, with its number if it has a label."""
    self.body.append(self.starttag(node, "div", CLASS="formula", TABINDEX="0", ROLE="group"))
    self.body.append(convert(node.astext(), display="block"))
    if node["number"]:
        self.body.append(f'<span class="eqno">({get_node_equation_number(self, node)})</span>')
    self.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the renderer as `html_math_renderer = "mathml"`."""
    app.add_html_math_renderer("mathml", inline_renderers=(visit_inline, None), block_renderers=(visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
