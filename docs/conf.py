"""Configuration of the documentation: `make docs` builds it with Sphinx."""

import sys
from importlib.metadata import version as installed_version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

from transformer.style import DARK, LIGHT

project = "transformer"
author = "the authors of transformer"
copyright = author
release = version = installed_version("transformer")

extensions = [
    "myst_nb",  # Markdown, and pages whose code runs while they are built
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "mathml",
    "drawings",
    "source_links",
    "generated_pages",
    "inspector_pages",
    "scrolling_code",
    "search_order",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "_extensions", "_templates", "reference/_generated/README.md"]

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "dollarmath", "fieldlist"]
myst_heading_anchors = 4
nb_execution_mode = "cache"
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_merge_streams = True

autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_numpy_docstring = False
napoleon_use_rtype = False
python_use_unqualified_type_names = True
copybutton_prompt_text = r">>> |\.\.\. ?|\$ "  # the button copies what follows a prompt, without outputs
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True

html_theme = "furo"
html_title = "transformer"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["theme.js"]
html_search_scorer = str(Path(__file__).parent / "_static" / "search_order.js")
html_show_sourcelink = False
html_copy_source = False
accents = ("color-brand-primary", "color-brand-content")
html_theme_options = {
    "navigation_with_keys": True,
    "top_of_page_buttons": [],
    "light_css_variables": LIGHT | dict.fromkeys(accents, LIGHT["accent"]),
    "dark_css_variables": DARK | dict.fromkeys(accents, DARK["accent"]),
}
html_math_renderer = "mathml"
suppress_warnings = ["config.cache"]
