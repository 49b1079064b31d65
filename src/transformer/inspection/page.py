"""The inspector's page: one self-contained file, whose data may be embedded or sent by a server."""

import base64
import hashlib
import json
from collections.abc import Sequence
from typing import Any, Final

from transformer.inspection.packing import Facts, pack_tensors
from transformer.inspection.page_data import PageData
from transformer.reporting.html import style_sheet, template_environment

MAX_PAGE: Final = 10_000_000
"""Size in bytes up to which a page embeds what fits."""
SCRIPTS: Final = (
    "arithmetic.js", "gradients.js", "tensors.js", "charts.js", "heatmap.js", "picture.js", "steps.js", "shared.js",
    "plots.js", "changes.js", "inspect.js",
)  # fmt: skip
"""Files of the page's script, in the order in which they are joined."""


def render(data: PageData, *, token: str = "", limit: int | None = None, layers: Sequence[int] | None = None) -> str:
    """Returns the page as one self-contained file.

    Args:
        data: What it shows.
        token: Token by which the page asks its server for tensors that are not embedded; empty for a file.
        limit: Size in bytes, once compressed, up to which tensors are embedded; default: what keeps the page small.
        layers: Numbers of the layers to embed, whatever their size; default: those that fit.
    """
    from markupsafe import Markup  # only where a page is written

    environment = template_environment("transformer.inspection")
    loader: Any = environment.loader
    style, *scripts = (loader.get_source(environment, name)[0] for name in ("inspect.css", *SCRIPTS))
    style, script = style_sheet() + style, "\n".join(scripts)
    facts = json_for_script(_with_formulas_once(data.facts))
    if limit is None:
        limit = max(0, (MAX_PAGE - len((style + script + facts).encode()) - 20 * len(data.tensors)) * 4 // 5)
    packed = pack_tensors(data.facts, data.numbers, limit, layers)
    places = {"count": packed.count, "places": packed.places, "rounded": packed.is_rounded}
    name = data.facts["model"]["folder"] or "the Transformer"
    values: dict[str, object] = {
        "style": Markup(style), "style_hash": _csp_hash(style),
        "script": Markup(script), "script_hash": _csp_hash(script),
        "facts": Markup(facts),
        "packed": Markup(json_for_script(places)),
        "inspector": Markup(json_for_script({"served": bool(token), "token": token})),
        "numbers": Markup(packed.text),  # has none of the signs that end a script
        "title": f"Inside {name}",
    }  # fmt: skip
    return environment.get_template("inspect.html.jinja").render(values)


def _with_formulas_once(facts: Facts) -> dict[str, object]:
    """Replaces the formulas of all steps by their numbers in a list, since most of them occur many times."""
    numbers: dict[str, int] = {}

    def number(formula: str) -> int:
        return numbers.setdefault(formula, len(numbers))

    def operand(part: Facts) -> dict[str, object]:
        return {**part, "symbol": number(part["symbol"])}

    steps = [
        {**step, "formula": number(step["formula"]),
         "chain": {role: number(line) for role, line in step["chain"].items()},
         "inputs": [operand(part) for part in step["inputs"]], "output": operand(step["output"])}
        for step in facts["steps"]
    ]  # fmt: skip
    return {**facts, "steps": steps, "formulas": [*numbers]}


def json_for_script(facts: object) -> str:
    """Returns JSON that may stand inside a script element."""
    text = json.dumps(facts, ensure_ascii=False, separators=(",", ":"))
    return text.translate({ord(sign): f"\\u{ord(sign):04x}" for sign in "<\u2028\u2029"})


def _csp_hash(text: str) -> str:
    """Returns the hash by which a content security policy allows an inline script or style."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
