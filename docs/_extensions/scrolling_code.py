"""Lets the keyboard reach code, which scrolls on its own where it is wider than the page."""

from typing import Any

from sphinx.application import Sphinx


def make_focusable(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Adds code blocks of a page to the order in which the tab key visits elements."""
    if "body" in context:
        context["body"] = context["body"].replace("<pre>", '<pre tabindex="0">')


def setup(app: Sphinx) -> dict[str, bool]:
    """Connects the change to the writing of pages."""
    app.connect("html-page-context", make_focusable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
