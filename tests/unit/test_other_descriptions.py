"""The names, signatures, formulas and shapes that `docs/explanation/other-descriptions.md` compares with ours."""

import ast
import inspect
import math
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

import transformer.blocks
import transformer.transformer
from samples import ROOT, randomize
from transformer.blocks import LayerNormalization, PositionalEncoding, causal_mask, padding_mask
from transformer.transformer import Transformer, build_transformer

PAGE = ROOT / "docs" / "explanation" / "other-descriptions.md"
DATA = Path(os.environ.get("TRANSFORMER_DATA", ROOT.parent / "shared" / "data"))
CLASSES = {
    "Architecture guide": {
        "InputEmbedding", "PositionalEncoding", "MultiHeadAttention", "FeedForwardBlock", "LayerNormalization",
        "Encoder", "EncoderLayer", "Decoder", "DecoderBlock", "ProjectionLayer", "Transformer", "build_transformer",
    },
    "Tutorial": {"MultiHeadAttention"},
    "Model architecture": {
        "Encoder", "EncoderLayer", "Decoder", "DecoderLayer", "Transformer", "build_transformer",
        "MultiHeadAttentionBlock", "FeedForwardBlock", "ResidualConnection", "LayerNormalization",
    },
    "Shape walk": set(),
    "Deep dive": {"PositionalEncoding"},
}  # fmt: skip
KEYWORDS = {"num_heads": "h", "max_seq_length": "seq_len"}
D, H, F, S, T, V = 12, 3, 17, 7, 5, 31


class Row(NamedTuple):
    """A row of the page."""

    document: str
    section: str
    there: str
    here: str
    verdict: str


def rows() -> list[Row]:
    """Returns the rows of the page's tables."""
    result: list[Row] = []
    for part in re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        for line in part.splitlines():
            if line.startswith("| ") and not line.startswith("| section |"):
                result.append(Row(part.splitlines()[0], *(cell.strip() for cell in line.strip("|").split("|"))))
    return result


def here(name: str) -> Any:
    """Returns a class, function or method of this package by its name in a description, or None."""
    owner, _, method = name.partition(".")
    value = getattr(transformer.blocks, owner, getattr(transformer.transformer, owner, None))
    return getattr(value, method) if value and method else value


def signatures(row: Row) -> Iterator[tuple[Callable[..., Any], ast.arguments]]:
    """Yields what a signature of a row names here, and the arguments that are written there."""
    for name, arguments in re.findall(r"`([\w.]+)\(([^`]*)\)`", row.there):
        if (function := here(name)) is not None:
            yield function, ast.parse(f"lambda {arguments}: 0", mode="eval").body.args


def accepts(function: Callable[..., Any], written: ast.arguments) -> bool:
    """Whether a call that the written signature allows, by position or keyword, means the same here."""
    names = [KEYWORDS.get(argument.arg, argument.arg) for argument in written.args]
    ours = [parameter for parameter in inspect.signature(function).parameters.values() if parameter.name != "self"]
    first, others = ours[: len(names)], ours[len(names) :]
    defaults = [ast.literal_eval(default) for default in written.defaults]
    return (
        [parameter.name for parameter in first] == names
        and [parameter.default for parameter in first[len(first) - len(defaults) :]] == defaults
        and all(parameter.default is not parameter.empty for parameter in others)
    )


def test_every_class_has_a_row() -> None:
    """Catches a class or function of a description that is missing on the page, and a row without verdict or reason."""
    table = rows()
    assert list(dict.fromkeys(row.document for row in table)) == list(CLASSES)
    for document, names in CLASSES.items():
        spans = " ".join(re.findall(r"`[^`]+`", " ".join(row.there for row in table if row.document == document)))
        assert {name for name in names if not re.search(rf"\b{name}\b", spans)} == set(), document
    for row in table:
        assert re.fullmatch(r"same|alias|different: .{10,}", row.verdict), row


def test_signatures_are_accepted_or_differ_as_the_page_says() -> None:
    """Catches an argument that is renamed, moved or loses its default, and a difference that no longer exists."""
    counts = {"same": 0, "alias": 0, "different": 0}
    other_name = re.compile("|".join(["DecoderBlock", "MultiHeadAttentionBlock", *KEYWORDS]))
    for row in rows():
        for function, written in signatures(row):
            verdict = "alias" if other_name.search(row.there) else "same"
            verdict = verdict if accepts(function, written) else "different"
            assert row.verdict.partition(":")[0] == verdict, row
            counts[verdict] += 1
    assert counts == {"same": 24, "alias": 3, "different": 4}, "a row is missing or new"


def test_names_that_the_page_gives_exist_here() -> None:
    """Catches a class, method, attribute or keyword of the last columns that is renamed here."""
    checked = 0
    for row in rows():
        for owner, name, arguments in re.findall(r"`(\w+)\.?(\w+)?(?:\(([^`]*)\))?`", row.here + row.verdict):
            if (block := here(owner)) is None:
                continue
            source = inspect.getsource(block)
            assert not name or hasattr(block, name) or f"self.{name} =" in source or f'buffer("{name}"' in source, row
            function = getattr(block, name) if name and arguments else block
            assert set(re.findall(r"(\w+)=", arguments)) <= set(inspect.signature(function).parameters), row
            checked += 1
    assert checked > 60


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """Returns the descriptions themselves, by their titles on the page."""
    paths = sorted(DATA.parent.glob("*/00[0-4]_*.txt"))
    if len(paths) != len(CLASSES):
        pytest.skip(f"the five descriptions are not beside {DATA}")
    return {name: path.read_text(encoding="utf-8") for name, path in zip(CLASSES, paths, strict=True)}


def fences(text: str) -> Iterator[tuple[list[str], str, str]]:
    """Yields the headings around each fenced block, its language and its content."""
    headings: list[str] = []
    for heading, language, code in re.findall(r"^(#+ [^\n]*)$|^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        if heading:
            level = heading.index(" ")
            headings = [outer for outer in headings if outer.index(" ") < level] + [heading]
        else:
            yield [outer.lstrip("# ") for outer in headings], language, code


def python(text: str) -> ast.Module:
    """Returns all classes and functions of a description; a signature without a body gets an empty one."""
    codes = [code for _, language, code in fences(text) if language == "python"]
    return ast.parse("\n".join(f"{code.rstrip()} pass" if code.rstrip().endswith(":") else code for code in codes))


def written_signatures(tree: ast.Module) -> Iterator[str]:
    """Yields the signatures of a description as the page writes them."""
    owners = {id(function): node.name for node in tree.body if isinstance(node, ast.ClassDef) for function in node.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            for argument in node.args.args:
                argument.annotation = None
            name = f"{owners[id(node)]}.{node.name}" if id(node) in owners else node.name
            yield f"{name}({ast.unparse(node.args)})".replace(".__init__", "").replace("(self, ", "(")


def test_nothing_of_the_descriptions_is_missing(texts: dict[str, str]) -> None:
    """Catches a class, signature, formula, shape or section with code that the page leaves out."""
    missing: list[tuple[str, str]] = []
    count = 0
    for document, text in texts.items():
        there = " ".join(row.there for row in rows() if row.document == document)
        sections = {row.section for row in rows() if row.document == document}
        tree = python(text)
        named = re.findall(r"^(?:\*\*Class\*\*|### Class|### Function): (.*)$", text, re.MULTILINE)
        names = {name for line in named for name in re.findall(r"`(\w+)`", line)}
        names |= {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
        facts = sorted(names - CLASSES[document]) + list(written_signatures(tree))
        for headings, language, code in fences(text):
            missing += [(document, headings[-1])] if sections.isdisjoint(headings) else []
            lines = [] if language else [line for line in code.splitlines() if re.search(r"\w\(.*[^ ]", line)]
            facts += [
                line.partition(" = ")[0].removeprefix("where ") for line in lines if not re.search("→|â|↑|↓", line)
            ]
        if document == "Shape walk":
            plain = re.sub(r"\$|\\text|[{}]", "", text)
            facts += re.findall(r"\((?:B|1), [^()]+\)|[QKV] = XW_[QKV]|PE\(pos, 2i(?:\+1)?\)", plain)
            steps = re.findall(r"^\d\.? (.*)$", plain, re.MULTILINE)
            missing += [(document, step) for step in steps if step not in sections]
        count += len(facts)
        missing += [(document, fact) for fact in facts if fact not in there]
    assert missing == []
    assert count >= 80


def classes(text: str) -> dict[str, Any]:
    """Runs the classes of a description, with what they do not define taken from this package."""
    available = {
        "torch": torch,
        "nn": nn,
        "math": math,
        "np": np,
        **vars(transformer.blocks),
        "Transformer": Transformer,
    }
    namespace: dict[str, Any] = available | {"LayerNormalization": lambda: LayerNormalization(D)}
    for node in python(text).body:
        if isinstance(node, ast.ClassDef):
            exec(ast.unparse(node), namespace)
    return {
        name: value for name, value in namespace.items() if available.get(name) is not value and inspect.isclass(value)
    }


@torch.no_grad()
def test_code_of_the_descriptions_gives_what_the_blocks_give(texts: dict[str, str]) -> None:
    """Catches a block with other attributes or parameters than the code of a description, and another result."""
    x, source = torch.randn(2, T, D), torch.randn(2, S, D)
    src, tgt, tgt_mask = torch.randint(1, V, (2, S)), torch.randint(1, V, (2, T)), causal_mask(T)
    src[1, 4:] = 0
    src_mask = padding_mask(src)
    model = randomize(build_transformer(V, V, S, T, D, 2, H, d_ff=F))
    encoder, decoder = model.encoder.layers[0], model.decoder.layers[0]
    layer_parts = encoder.self_attention_block, encoder.feed_forward_block
    decoder_parts = decoder.self_attention_block, decoder.cross_attention_block, decoder.feed_forward_block
    cases: dict[str, tuple[nn.Module, tuple[Any, ...], tuple[Any, ...]]] = {
        "InputEmbedding": (model.src_embed, (D, V), (src,)),
        "FeedForwardBlock": (encoder.feed_forward_block, (D, F, 0.0), (x,)),
        "ProjectionLayer": (model.projection_layer, (D, V), (x,)),
        "MultiHeadAttention": (encoder.self_attention_block, (D, H), (x, source, source, src_mask)),
        "PositionalEncoding": (PositionalEncoding(D), (D,), (x,)),
        "Encoder": (model.encoder, (model.encoder.layers,), (source, src_mask)),
        "Decoder": (model.decoder, (model.decoder.layers,), (x, source, src_mask, tgt_mask)),
        "EncoderLayer": (encoder, (D, *layer_parts, 0.0), (source, src_mask)),
        "DecoderLayer": (decoder, (D, *decoder_parts, 0.0), (x, source, src_mask, tgt_mask)),
        "DecoderBlock": (decoder, (D, *decoder_parts, 0.0), (x, source, src_mask, tgt_mask)),
    }
    ran: list[str] = []
    for document in texts:
        for name, written in classes(texts[document]).items():
            if name == "Transformer":
                parts = [getattr(model, part) for part in inspect.signature(written).parameters]
                theirs = written(*parts).eval()
                assert torch.equal(theirs.encode(src, src_mask), model.encode(src, src_mask))
                states = theirs.encode(src, src_mask)
                logits = theirs.project(theirs.decode(states, src_mask, tgt, tgt_mask))
                assert torch.equal(logits, model(src, tgt, src_mask, tgt_mask))
            else:
                ours, arguments, inputs = cases[name]
                if "__init__" in vars(written):
                    theirs = written(*arguments).eval()
                    missing = theirs.load_state_dict(ours.state_dict(), strict=False)
                    assert (missing.missing_keys, missing.unexpected_keys) == (
                        ["pe"] if hasattr(ours, "pe") else [],
                        [],
                    )
                    torch.testing.assert_close(theirs(*inputs), ours(*inputs), atol=1e-5, rtol=1e-5)
                if name != "PositionalEncoding":  # whose table has another shape
                    torch.testing.assert_close(written.forward(ours, *inputs), ours(*inputs), atol=1e-5, rtol=1e-5)
            ran.append(f"{document}: {name}")
    assert len(ran) == 12
