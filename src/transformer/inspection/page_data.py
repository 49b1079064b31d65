"""The data of the inspector's page: what it shows of a pass, and the tensors that it may ask for."""

import hashlib
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from transformer.blocks.positional import LearnedPositions, PositionalEncoding
from transformer.inspection.packing import Facts
from transformer.inspection.passes import Pass
from transformer.inspection.steps import Operand, Step, make_steps
from transformer.models.parameter_count import parameters_by_block

LARGE_TABLE: Final = 500_000
"""Number of elements of a table of tokens, e.g. the embedding, above which a page has only the rows that it needs."""
MAX_ROWS: Final = 256
"""Number of rows of a large output projection that a page has."""
TOP: Final = 8
"""Number of the most probable tokens that are listed at each position."""
NAMED_VOCABULARY: Final = 8000
"""Size of a vocabulary up to which a page has all of its tokens."""
POSITIONS: Final = 100
"""Number of positions whose encodings are shown."""

MEANINGS: Final = {
    "B": "sentences in the batch", "S": "tokens of the source", "T": "tokens of the target", "d_model": "width",
    "h": "heads", "h_kv": "heads of keys and values", "d_kv": "width of all heads of keys or values",
    "V_src": "vocabulary of the source", "d_q": "width of all heads of queries",
    "d_o": "width of all heads of values", "d_k": "width of a head", "d_v": "width of a head of values",
    "d_ff": "inner width of the feed-forward network", "V": "vocabulary",
}  # fmt: skip
"""Meanings of the letters of the axes."""
TABS: Final = ("forward", "backward", "attention", "positions", "parameters")


@dataclass(frozen=True)
class PageData:
    """The content of a page.

    Attributes:
        facts: Everything but the numbers of the tensors, as JSON.
        tensors: The tensors by their ids.
    """

    facts: Facts
    tensors: list[Tensor]

    def numbers(self, index: int) -> NDArray[np.float32]:
        """Returns the values of a tensor; of a large table, only the rows on the page."""
        rows = self.facts["tensors"][index].get("rows")
        return _flat_numbers(self.tensors[index] if rows is None else self.tensors[index][rows])

    def slice(self, index: int, axis: int, place: int) -> NDArray[np.float32]:
        """Returns one row (axis 0) or column (axis 1) of a tensor.

        Raises:
            IndexError: It has no such row or column.
        """
        return _flat_numbers(self.tensors[index].select(axis, place))


def _flat_numbers(tensor: Tensor) -> NDArray[np.float32]:
    return tensor.detach().float().contiguous().numpy().ravel().astype("<f4")


class _Tensors:
    """Numbers the tensors of a page; equal tensors have one number."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.entries: list[Facts] = []
        self._numbers: dict[tuple[tuple[int, ...], tuple[str, ...], bytes], int] = {}
        self._rows: list[dict[int, str] | None] = []

    def add(self, tensor: Tensor, axes: tuple[str, ...], rows: dict[int, str] | None = None) -> int:
        """Returns the number of a tensor; of a large table, only the named rows are needed."""
        values = tensor.detach().float().contiguous()
        key = tuple(values.shape), axes, hashlib.blake2b(values.numpy().tobytes()).digest()
        if key not in self._numbers:
            self._numbers[key] = len(self.tensors)
            self.tensors.append(values)
            self.entries.append({"shape": list(values.shape), "axes": list(axes)})
            self._rows.append({} if rows is not None else None)
        number = self._numbers[key]
        known = self._rows[number]
        self._rows[number] = None if known is None or rows is None else rows | known
        return number

    def facts(self) -> list[Facts]:
        """Returns shape and axes of each tensor, and the rows of large tables with their names."""
        return [
            entry if rows is None else {**entry, "rows": sorted(rows), "names": [rows[row] for row in sorted(rows)]}
            for entry, rows in zip(self.entries, self._rows, strict=True)
        ]


def page_data(recorded: Pass, gradient_norms: list[Facts] | None = None) -> PageData:
    """Returns what a page shows of a pass.

    Args:
        recorded: The pass.
        gradient_norms: Norms of this and of other models to compare, see `compared_norms`.
    """
    steps = make_steps(recorded)
    tensors = _Tensors()
    entries = [_step_facts(step, index, tensors, recorded) for index, step in enumerate(steps)]
    _link_shared_parameters(steps, entries, recorded)
    attention = _attention(entries)
    facts: Facts = {
        "model": _model_facts(recorded),
        "tabs": [tab for tab in TABS if tab != "attention" or attention],
        "axes": MEANINGS | ({} if "S" in recorded.example.tokens else {"T": "tokens of the text, or patches"}),
        "tokens": recorded.example.tokens,
        "labels": recorded.label_names,
        "label_ids": recorded.labels.tolist(),
        "vocabularies": _vocabularies(recorded),
        "loss": {"value": float(recorded.loss), "smoothing": recorded.smoothing, "count": len(recorded.label_names)},
        "steps": entries,
        "parts": _parts(steps),
        "attention": attention,
        "positions": _positions(recorded, tensors),
        "picture": _picture(recorded, tensors),
        "probabilities": _probabilities(recorded),
        "changes": {**asdict(recorded.changes), "mask_source": list(recorded.changes.mask_source)},
        "gradient_norms": gradient_norms or [],
        "tensors": tensors.facts(),
    }
    return PageData(facts, tensors.tensors)


def attention_data(data: PageData, kind: str) -> PageData:
    """Returns the part of a page's content that shows one kind of attention alone, without the steps before it.

    Args:
        data: Content of the whole page.
        kind: "Encoder self-attention", "Decoder self-attention" or "cross-attention".
    """
    entries = [entry for entry in data.facts["attention"] if entry["kind"] == kind]
    steps = [data.facts["steps"][entry["step"]] for entry in entries]
    facts = {
        **data.facts,
        "tabs": ["attention"],
        "attention": [{**entry, "step": number, "tensor": number} for number, entry in enumerate(entries)],
        "steps": [
            {**step, "id": number, "inputs": [], "chain": {}, "readers": [],
             "output": {**step["output"], "tensor": number, "gradient": None}}
            for number, step in enumerate(steps)
        ],
        "tensors": [data.facts["tensors"][entry["tensor"]] for entry in entries],
        "parts": [], "positions": None, "picture": None, "vocabularies": {}, "probabilities": [], "gradient_norms": [],
    }  # fmt: skip
    return PageData(facts, [data.tensors[entry["tensor"]] for entry in entries])


def _model_facts(recorded: Pass) -> dict[str, object]:
    config = recorded.bundle.config.model_dump()
    sizes = parameters_by_block(recorded.model)
    return {
        "family": recorded.bundle.family,
        "folder": _display_name(recorded.bundle.folder),
        "parameters": sum(sizes.values()),
        "shares": sizes,
        "sizes": {key: config[key] for key in ("d_model", "h", "d_ff", "norm_order") if key in config},
        "layers": _layer_counts(config),
        "is_int8": bool(recorded.bundle.rounding_note),
    }


def _layer_counts(config: Facts) -> dict[str, int]:
    """Returns the number of layers of each stack, by the name of the stack."""
    if "decoder_layers" not in config:
        return {"layers": config["N"]}
    return {stack: config.get(f"{stack}_layers") or config["N"] for stack in ("encoder", "decoder")}


def _display_name(folder: Path | None) -> str:
    """Returns the name of a model's folder, and for a checkpoint that of its run and its step."""
    match folder.resolve().parts if folder else ():
        case (*_, run, "checkpoints", step, "model") if step.removeprefix("step-").isdigit():
            return f"{run}, step {int(step.removeprefix('step-')):,}"
        case (*_, package, "bundle") if package.startswith("transformer_model_"):
            return package.removeprefix("transformer_model_").replace("_", "-")
        case (*_, run, "average"):
            return f"{run}, average"
        case (*_, name):
            return name
        case _:
            return ""


def _step_facts(step: Step, index: int, tensors: _Tensors, recorded: Pass) -> Facts:
    operation = step.operation
    attributes: Facts = {
        key: str(value) if value in (float("inf"), float("-inf")) else value
        for key, value in operation.attributes.items()
        if key != "origin"
    }
    inputs = [_operand(part, tensors, _needed_rows(step, part, recorded)) for part in step.inputs]
    if operation.kind == "rearrange":
        attributes["origin"] = tensors.add(operation.attributes["origin"], ())
    return {
        "id": index, "kind": operation.kind, "title": step.title, "section": step.section, "block": step.block,
        "inputs": inputs, "output": _operand(step.output, tensors), "attributes": attributes,
        "formula": mathml(step.formula), "chain": {role: mathml(line) for role, line in step.gradients.items()},
        "file": f"src/transformer/{operation.file}" if operation.file else "", "line": operation.line,
        "module": operation.module, "paper": step.paper, "note": step.note, "readers": step.readers,
    }  # fmt: skip


def _operand(part: Operand, tensors: _Tensors, rows: dict[int, str] | None = None) -> Facts:
    gradient = part.gradient
    norm = None if gradient is None else float(gradient.norm())
    return {
        "role": part.role, "symbol": mathml(part.symbol), "axes": list(part.axes), "shape": list(part.tensor.shape),
        "parameter": part.parameter, "tensor": tensors.add(part.tensor, part.axes, rows), "gradient_norm": norm,
        "gradient": None if gradient is None or part.parameter else tensors.add(gradient, part.axes),
    }  # fmt: skip


def _needed_rows(step: Step, part: Operand, recorded: Pass) -> dict[int, str] | None:
    """Returns the rows of a large table that a page needs, with their names; None for other tensors.

    These are the tokens that are looked up, the right tokens, and the most probable ones.
    """
    kind, example = step.operation.kind, recorded.example
    if not part.parameter or part.role != "w" or part.tensor.dim() != 2 or part.tensor.numel() <= LARGE_TABLE:
        return None
    if kind == "embedding":
        ids = next(part for part in step.inputs if part.role == "t")
        looked_up = ids.tensor.flatten().tolist()
        names = example.tokens.get(ids.axes[-1], [])
        return dict(zip(looked_up, names if len(names) == len(looked_up) else map(str, looked_up), strict=True))
    if kind == "linear" and step.output.axes[-1] == "V":
        best = recorded.logits.topk(TOP, dim=-1).indices.T.flatten().tolist()
        rows = list(dict.fromkeys([*recorded.labels.tolist(), *best]))[:MAX_ROWS]
        return dict(zip(rows, example.names(rows), strict=True))
    return None


def _link_shared_parameters(steps: list[Step], entries: list[Facts], recorded: Pass) -> None:
    """Names all steps that use the same parameter, and the norm of its whole gradient, where there are several."""
    uses: dict[int, list[tuple[int, int]]] = {}
    for number, step in enumerate(steps):
        for place, part in enumerate(step.inputs):
            if part.parameter and part.gradient is not None:
                uses.setdefault(id(part.tensor), []).append((number, place))
    for paths in uses.values():
        if len(paths) > 1:
            number, place = paths[0]
            whole = recorded.gradients.get(id(steps[number].inputs[place].tensor))
            norm = None if whole is None else float(whole.norm())
            for number, place in paths:
                entries[number]["inputs"][place].update(paths=paths, whole_norm=norm)


def _parts(steps: list[Step]) -> list[Facts]:
    """Returns the path of a pass: sections, their blocks, and the numbers of the steps of each."""
    parts: list[Facts] = []
    for index, step in enumerate(steps):
        if not parts or parts[-1]["title"] != step.section:
            parts.append({"title": step.section, "blocks": []})
        blocks = parts[-1]["blocks"]
        if not blocks or blocks[-1]["title"] != step.block:
            blocks.append({"title": step.block, "number": len(blocks) + 1, "steps": []})
        blocks[-1]["steps"].append(index)
    return parts


def _attention(entries: list[Facts]) -> list[Facts]:
    """Returns the attention weights of every layer, after the user's changes."""
    weights: list[Facts] = []
    for softmax in entries:
        if softmax["kind"] == "softmax" and "attention" in softmax["block"]:
            later = entries[softmax["id"] :]
            product = next(step for step in later if step["kind"] == "matmul" and step["module"] == softmax["module"])
            tensor = product["inputs"][0]["tensor"]
            entry = next(step for step in later if step["output"]["tensor"] == tensor)
            kind = "cross-attention" if "cross" in entry["block"] else f"{entry['section'].split()[0]} self-attention"
            layer = int(entry["section"].split()[-1]) if entry["section"][-1].isdigit() else 1
            weights.append({"kind": kind, "layer": layer, "step": entry["id"], "tensor": entry["output"]["tensor"],
                          "module": entry["module"], "rows": entry["output"]["axes"][-2],
                          "columns": entry["output"]["axes"][-1]})  # fmt: skip
    return weights


def _positions(recorded: Pass, tensors: _Tensors) -> Facts | None:
    """Returns the first rows of the table that encodes positions, and whether it is learned; None without a table."""
    for module in recorded.model.modules():
        if isinstance(module, PositionalEncoding | LearnedPositions):
            is_learned = isinstance(module, LearnedPositions)
            table = module.embedding.weight if is_learned else module.pe
            rows = tensors.add(table[:POSITIONS], ("", "d_model"))
            return {"tensor": rows, "is_learned": is_learned, "count": len(table)}
    return None


def _picture(recorded: Pass, tensors: _Tensors) -> Facts | None:
    """Returns the picture that a model of images reads, and its grid of patches."""
    example, picture = recorded.example, recorded.example.picture
    if picture is None:
        return None
    pixels = example.inputs["image"]
    grid = [size // side for size, side in zip(pixels.shape[-2:], picture.patch, strict=True)]
    return {
        "tensor": tensors.add(pixels, example.axes["image"]), "grid": grid, "mean": picture.mean,
        "deviation": picture.deviation, "patch": picture.patch,
    }  # fmt: skip


def _vocabularies(recorded: Pass) -> dict[str, list[str]]:
    """Returns the tokens of small vocabularies: of what is predicted, and of the source if it has another one."""
    config, tokenizers = recorded.bundle.config.model_dump(), recorded.bundle.text
    size = config.get("tgt_vocab_size") or config.get("vocab_size") or 0
    if tokenizers is None or not 0 < size <= NAMED_VOCABULARY:
        return {}
    sides = {"target": tokenizers.target, "source": tokenizers.source}
    if tokenizers.source is tokenizers.target:
        del sides["source"]
    return {side: tokenizer.pieces(range(tokenizer.vocab_size)) for side, tokenizer in sides.items()}


def _probabilities(recorded: Pass) -> list[list[dict[str, object]]]:
    p = recorded.logits.softmax(dim=-1)
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
