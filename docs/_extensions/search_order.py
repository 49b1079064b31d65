"""Keeps the decisions out of the search: they contain nearly every word, and would come before the guides."""

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment


def leave_out_decisions(_: Sphinx, env: BuildEnvironment) -> None:
    """Marks the decisions as the field `nosearch` at the top of each would."""
    for page in env.found_docs:
        if page.startswith("decisions/"):
            env.metadata[page]["nosearch"] = ""


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the event."""
    app.connect("env-updated", leave_out_decisions)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
