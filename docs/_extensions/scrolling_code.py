"""Lets the keyboard reach code and tables, which scroll on their own where they are wider than the page."""

from typing import Any

from sphinx.application import Sphinx


def make_focusable(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Adds code blocks and tables of a page to the order in which the tab key visits elements."""
    if "body" in context:
        body = context["body"].replace("<pre>", '<pre tabindex="0">')
        context["body"] = body.replace('<div class="table-wrapper', '<div tabindex="0" class="table-wrapper')


def setup(app: Sphinx) -> dict[str, bool]:
    """Connects the change to the writing of pages."""
    app.connect("html-page-context", make_focusable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
