"""HTML pages from the templates of this package."""

from collections.abc import Callable
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from transformer.errors import escape_controls
from transformer.style import css_variables

if TYPE_CHECKING:
    from jinja2 import Environment

CONTROLS: Final = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n"} | {0x7F: 0x2421}
"""Replacements of control characters, which HTML cannot contain, by their visible symbols."""


def show_controls(text: str) -> str:
    """Replaces control characters by their visible symbols, and escapes direction marks and C1 controls."""
    return escape_controls(text.translate(CONTROLS))


def render_page(template: str, show: Callable[[str], str] = show_controls, **values: object) -> str:
    """Renders a page from a template; all values except `Markup` are escaped.

    Args:
        template: File name of the template.
        show: Function that makes the control characters of the page visible.
        values: Variables of the template.
    """
    from markupsafe import Markup  # only where a page is written

    environment = template_environment("transformer.reporting")
    return show(environment.get_template(template).render(style=Markup(style_sheet()), **values))


def style_sheet() -> str:
    """Returns the style sheet that reports and the inspector share: colours, text and charts."""
    return css_variables() + files("transformer.reporting").joinpath("templates/shared.css").read_text(encoding="utf-8")


def template_environment(package: str) -> "Environment":
    """Returns the environment that renders the templates of a package."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # only where a page is written

    return Environment(
        loader=PackageLoader(package), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
