"""The inspector's page: one self-contained file, or the data that a server sends to it."""

import base64
import hashlib
import json
import zlib
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Final

import numpy as np
from torch import Tensor

from transformer.blocks.positional import PositionalEncoding
from transformer.inspection.passes import Pass
from transformer.inspection.steps import Operand, Step, make_steps
from transformer.models.parameter_count import parameters_by_block

MAX_EMBEDDED: Final = 4_200_000
"""Size in bytes, once compressed, up to which tensors are embedded in a page."""
COMPRESSED_SHARE: Final = 0.8
TOP: Final = 8
"""Number of the most probable tokens that are listed at each position."""
POSITIONS: Final = 100
"""Number of positions whose encodings are shown."""

MEANINGS: Final = {
    "B": "sentences in the batch", "T": "tokens of the source", "T_dec": "tokens of the target", "d_model": "width",
    "h": "heads", "h_kv": "heads of keys and values", "d_kv": "width of their heads together",
    "d_q": "width of the queries' heads together",
    "d_k": "width of a head", "d_ff": "inner width of the feed-forward network", "V": "vocabulary",
}  # fmt: skip
"""What the letters of the axes stand for."""


@dataclass(frozen=True)
class PageData:
    """The content of a page.

    Attributes:
        facts: Everything but the numbers of the tensors, as JSON.
        tensors: The tensors by their ids.
    """

    facts: dict[str, Any]
    tensors: list[Tensor]

    def packed(self, limit: int = MAX_EMBEDDED) -> tuple[str, list[int]]:
        """Returns tensors in base64, and the offset of each among the numbers; -1 for those that do not fit.

        The bytes of all numbers are stored plane by plane, which compresses better, and deflated. Small tensors go
        first; tensors of the same numbers in other shapes are stored once.
        """
        offsets = [-1] * len(self.tensors)
        total, parts = 0, []
        known: dict[bytes, int] = {}
        for index in sorted(range(len(self.tensors)), key=lambda index: self.tensors[index].numel()):
            numbers = self.numbers(index)
            content = numbers.tobytes()
            if content not in known:
                if (total + numbers.size) * 4 * COMPRESSED_SHARE > limit:
                    break
                known[content] = total
                total += numbers.size
                parts.append(numbers)
            offsets[index] = known[content]
        flat = np.concatenate(parts) if parts else np.zeros(0, np.float32)
        planes = flat.view(np.uint8).reshape(-1, 4).T.copy()
        deflated = zlib.compressobj(9, wbits=-15)
        data = deflated.compress(planes.tobytes()) + deflated.flush()
        return base64.b64encode(data).decode(), offsets

    def numbers(self, index: int) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Returns the numbers of a tensor."""
        return self.tensors[index].detach().float().contiguous().numpy().ravel().astype("<f4")


class _Tensors:
    """Numbers the tensors of a page; equal tensors have one number."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.entries: list[dict[str, Any]] = []
        self._numbers: dict[Any, int] = {}

    def add(self, tensor: Tensor, axes: tuple[str, ...]) -> int:
        values = tensor.detach().float().contiguous()
        key = tuple(values.shape), axes, values.numpy().tobytes()
        if key not in self._numbers:
            self._numbers[key] = len(self.tensors)
            self.tensors.append(values)
            self.entries.append({"shape": list(values.shape), "axes": list(axes)})
        return self._numbers[key]


def page_data(recorded: Pass, gradient_norms: list[dict[str, Any]] | None = None) -> PageData:
    """Returns what a page shows of a pass.

    Args:
        recorded: The pass.
        gradient_norms: Norms of this and of other models to compare, see `compared_norms`.
    """
    steps = make_steps(recorded)
    tensors = _Tensors()
    entries = [_step_facts(step, index, tensors) for index, step in enumerate(steps)]
    facts = {
        "model": _model_facts(recorded),
        "axes": MEANINGS,
        "tokens": recorded.example.tokens,
        "labels": recorded.label_names,
        "label_ids": recorded.labels.tolist(),
        "loss": {"value": float(recorded.loss), "smoothing": recorded.smoothing, "count": len(recorded.label_names)},
        "steps": entries,
        "parts": _parts(steps),
        "attention": _attention(entries),
        "positions": _positions(recorded, tensors),
        "picture": _picture(recorded, tensors),
        "probabilities": _probabilities(recorded),
        "changes": {**asdict(recorded.changes), "mask_source": list(recorded.changes.mask_source)},
        "gradient_norms": gradient_norms or [],
        "tensors": tensors.entries,
    }
    return PageData(facts, tensors.tensors)


def _model_facts(recorded: Pass) -> dict[str, Any]:
    config = recorded.bundle.config.model_dump()
    sizes = parameters_by_block(recorded.model)
    return {
        "family": recorded.bundle.family,
        "folder": recorded.bundle.folder.name if recorded.bundle.folder else "",
        "parameters": sum(sizes.values()),
        "shares": sizes,
        "sizes": {key: config[key] for key in ("d_model", "N", "h", "d_ff", "norm_order") if key in config},
    }


def _step_facts(step: Step, index: int, tensors: _Tensors) -> dict[str, Any]:
    operation = step.operation
    attributes: dict[str, Any] = {
        key: str(value) if value in (float("inf"), float("-inf")) else value
        for key, value in operation.attributes.items()
        if key != "origin"
    }
    inputs = [_operand(part, tensors) for part in step.inputs]
    if operation.kind == "rearrange":
        attributes["origin"] = tensors.add(operation.attributes["origin"], ())
    return {
        "id": index, "kind": operation.kind, "title": step.title, "section": step.section, "block": step.block,
        "inputs": inputs, "output": _operand(step.output, tensors), "attributes": attributes,
        "formula": mathml(step.formula), "chain": {role: mathml(line) for role, line in step.gradients.items()},
        "file": f"src/transformer/{operation.file}" if operation.file else "", "line": operation.line,
        "module": operation.module, "paper": step.paper, "note": step.note, "readers": step.readers,
    }  # fmt: skip


def _operand(part: Operand, tensors: _Tensors) -> dict[str, Any]:
    gradient = part.gradient
    norm = None if gradient is None else float(gradient.norm())
    return {
        "role": part.role, "symbol": mathml(part.symbol), "axes": list(part.axes), "shape": list(part.tensor.shape),
        "parameter": part.parameter, "tensor": tensors.add(part.tensor, part.axes), "gradient_norm": norm,
        "gradient": None if gradient is None or part.parameter else tensors.add(gradient, part.axes),
    }  # fmt: skip


def _parts(steps: list[Step]) -> list[dict[str, Any]]:
    """Returns the path of a pass: sections, their blocks, and the numbers of the steps of each."""
    parts: list[dict[str, Any]] = []
    for index, step in enumerate(steps):
        if not parts or parts[-1]["title"] != step.section:
            parts.append({"title": step.section, "blocks": []})
        blocks = parts[-1]["blocks"]
        if not blocks or blocks[-1]["title"] != step.block:
            blocks.append({"title": step.block, "number": len(blocks) + 1, "steps": []})
        blocks[-1]["steps"].append(index)
    return parts


def _attention(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the attention weights of every layer: the outputs of the softmax of attention blocks."""
    weights: list[dict[str, Any]] = []
    for entry in entries:
        if entry["kind"] == "softmax" and "attention" in entry["block"]:
            kind = "cross-attention" if "cross" in entry["block"] else f"{entry['section'].split()[0]} self-attention"
            layer = int(entry["section"].split()[-1]) if entry["section"][-1].isdigit() else 1
            weights.append({"kind": kind, "layer": layer, "step": entry["id"], "tensor": entry["output"]["tensor"],
                          "module": entry["module"], "rows": entry["output"]["axes"][-2],
                          "columns": entry["output"]["axes"][-1]})  # fmt: skip
    return weights


def _positions(recorded: Pass, tensors: _Tensors) -> dict[str, int] | None:
    """Returns the first rows of the table that encodes positions, if the model adds one."""
    for module in recorded.model.modules():
        if isinstance(module, PositionalEncoding):
            return {"tensor": tensors.add(module.pe[:POSITIONS], ("", "d_model"))}
    return None


def _picture(recorded: Pass, tensors: _Tensors) -> dict[str, Any] | None:
    """Returns the picture that a model of images reads, and its grid of patches."""
    example = recorded.example
    if example.picture is None:
        return None
    pixels = example.inputs["image"]
    grid = [size // side for size, side in zip(pixels.shape[-2:], example.picture.patch, strict=True)]
    return {"tensor": tensors.add(pixels, example.axes["image"]), "grid": grid, **asdict(example.picture)}


def _probabilities(recorded: Pass) -> list[list[dict[str, Any]]]:
    p = (recorded.logits / recorded.changes.temperature).softmax(dim=-1)
    best = p.topk(min(TOP, p.size(-1)), dim=-1)
    pieces = recorded.example.names
    return [
        [{"id": id, "token": piece, "p": value} for id, piece, value in zip(ids, pieces(ids), values, strict=True)]
        for ids, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]


@cache
def mathml(latex: str) -> str:
    """Converts a formula from LaTeX to MathML."""
    from latex2mathml.converter import convert  # only where a page is made

    return convert(latex)


def json_for_script(facts: dict[str, Any]) -> str:
    """Returns JSON that may stand inside a script element."""
    text = json.dumps(facts, ensure_ascii=False, separators=(",", ":"))
    return text.translate({ord(sign): f"\\u{ord(sign):04x}" for sign in "<\u2028\u2029"})


SCRIPTS: Final = (
    "arithmetic.js", "gradients.js", "tensors.js", "charts.js", "heatmap.js", "picture.js", "steps.js", "plots.js",
    "changes.js", "inspect.js",
)  # fmt: skip
"""Files of the page's script, in the order in which they are joined."""


def render(data: PageData, *, token: str = "", limit: int = MAX_EMBEDDED) -> str:
    """Returns the page as one self-contained file.

    Args:
        data: What it shows.
        token: Token by which the page asks its server for tensors that are not embedded; empty for a file.
        limit: Size in bytes, once compressed, up to which tensors are embedded.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined  # only where a page is written
    from markupsafe import Markup

    loader = PackageLoader("transformer.inspection")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    style, *scripts = (_template_text(environment, name) for name in ("inspect.css", *SCRIPTS))
    script = "\n".join(scripts)
    numbers, offsets = data.packed(limit)
    values: dict[str, Any] = {
        "style": Markup(style), "style_hash": _content_hash(style),
        "script": Markup(script), "script_hash": _content_hash(script),
        "facts": Markup(json_for_script(data.facts | {"offsets": offsets})),
        "inspector": Markup(json_for_script({"served": bool(token), "token": token})),
        "numbers": numbers,
        "title": f"{data.facts['model']['folder'] or data.facts['model']['family']}: inside the Transformer",
    }  # fmt: skip
    return environment.get_template("inspect.html.jinja").render(values)


def _template_text(environment: Any, name: str) -> str:
    return environment.loader.get_source(environment, name)[0]


def _content_hash(text: str) -> str:
    """Returns what a content security policy calls an inlined text by."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
