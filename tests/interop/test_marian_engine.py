"""Marian translates with weights that `benchmarks/decoding/engines/with_marian.py` converted.

Marian's decoder begins with zeros, its positions have frequencies of their own, and its pre-norm decoder normalizes
keys and values of self-attention in the first step alone. The models here are made like it in these three points.
Marian is another program in C++, so equal tokens show that names, transposed matrices, norms, biases, activation, scale
of the embedding and order of features are right. It is looked for in `.peers`
(`sh benchmarks/decoding/engines/setup.sh .peers marian`) or the folder that TRANSFORMER_PEERS names.
"""

import json
import os
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from samples import ROOT
from transformer import build_transformer
from transformer.blocks.decoder import DecoderLayer
from transformer.blocks.masks import causal_mask
from transformer.tokenizers.special_tokens import BOS_ID, EOS_ID
from transformer.transformer import Transformer

PYTHON = Path(os.environ.get("TRANSFORMER_PEERS", ROOT / ".peers")) / "marian" / "bin" / "python"
PROGRAM = ROOT / "benchmarks" / "decoding" / "engines" / "with_marian.py"
VOCABULARY, POSITIONS, LIMIT = 50, 64, 60
SIZES = {
    "N": 2, "encoder_layers": 3, "decoder_layers": 2, "d_model": 32, "d_ff": 48, "h": 4, "vocabulary": VOCABULARY,
    "positions": POSITIONS,
}  # fmt: skip

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not PYTHON.exists(), reason="pymarian is not installed in the folder of peers"),
]


def marian_positions() -> Tensor:
    """Marian's sinusoids in the order of features here: sines and cosines alternate."""
    half = SIZES["d_model"] // 2
    angle = torch.outer(torch.arange(POSITIONS), 10000.0 ** (-torch.arange(half) / (half - 1)))
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)


def marian_like_model(norm_order: str, updates: int) -> Transformer:
    """A model with Marian's positions and BOS that learns to write sentences backwards.

    Random models write one token again and again, which says little about the order of anything.
    """
    torch.manual_seed(7)
    model = build_transformer(
        VOCABULARY, VOCABULARY, POSITIONS, POSITIONS, d_model=32, N=2, encoder_layers=3, decoder_layers=2, h=4, d_ff=48,
        dropout=0.0, norm_order=norm_order, initialization="fairseq", share_embeddings="all",
    )  # fmt: skip
    for positions in (model.src_pos, model.tgt_pos):
        positions.get_buffer("pe").copy_(marian_positions())
    embedding = model.tgt_embed.embedding.weight
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for update in range(updates + 1):
        with torch.no_grad():
            embedding[BOS_ID] = 0
        words = torch.randint(4, VOCABULARY, (64, 2 + update % 7))
        ends = torch.full((64, 1), EOS_ID)
        target = torch.cat([words.flip(1), ends], 1)
        shifted = torch.cat([torch.full((64, 1), BOS_ID), target[:, :-1]], 1)
        logits = model(torch.cat([words, ends], 1), shifted, None, causal_mask(target.shape[1]))
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten()).backward()
        if update < updates:
            optimizer.step()
            optimizer.zero_grad()
    return model.eval()


def attend_to_raw_vectors(model: Transformer) -> None:
    """Lets a pre-norm decoder normalize keys and values of self-attention in the first step alone, as Marian does."""
    for layer in model.decoder.layers:
        assert isinstance(layer, DecoderLayer)
        inputs: list[Tensor] = []

        def keep(inputs: list[Tensor], _: torch.nn.Module, arguments: tuple[Any, ...]) -> None:
            inputs.append(arguments[0])

        def attend(
            q: Tensor, k: Tensor, v: Tensor, mask: Tensor, bias: None, attention: Any, inputs: list[Tensor]
        ) -> Tensor:
            raw = inputs.pop()
            first = attention(q[:, :1], k[:, :1], v[:, :1], mask[..., :1, :1], bias)
            return torch.cat([first, attention(q, raw, raw, mask, bias)[:, 1:]], 1)

        layer.register_forward_pre_hook(partial(keep, inputs))
        block = layer.self_attention_block
        vars(block)["forward"] = partial(attend, attention=block.forward, inputs=inputs)


@torch.no_grad()
def greedy(model: Transformer, source: list[int], limit: int) -> list[int]:
    """Greedy search by the whole forward pass."""
    tokens = [BOS_ID]
    while len(tokens) <= limit:
        logits = model(torch.tensor([source]), torch.tensor([tokens]), None, causal_mask(len(tokens)))
        tokens.append(int(logits[0, -1].argmax()))
        if tokens[-1] == EOS_ID:
            return tokens[1:-1]
    return tokens[1:]


def translate(folder: Path, model: Transformer, norm_order: str, sources: list[list[int]], **more: Any) -> list[Any]:
    """Returns the tokens that Marian writes."""
    save_file({name: tensor.clone() for name, tensor in model.state_dict().items()}, folder / "weights.safetensors")
    (folder / "sources.json").write_text(json.dumps(sources))
    case = {
        "name": "case", "sources": str(folder / "sources.json"), "beam": 1, "batch": 4, "by_tokens": False,
        "limit": LIMIT, "fixed": False, "sentences": len(sources),
    }  # fmt: skip
    order = {
        "weights": str(folder / "weights.safetensors"), "sizes": SIZES | {"norm_order": norm_order},
        "precision": "float32", "workers": 2, "threads": 1, "result": str(folder / "result.json"),
        "cases": [case | more],
    }  # fmt: skip
    (folder / "order.json").write_text(json.dumps(order))
    ended = subprocess.run([PYTHON, PROGRAM, folder / "order.json"], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    return json.loads((folder / "result.json").read_text())["cases"]["case"]["tokens"]


def random_sources() -> list[list[int]]:
    """Sentences of 1 to 12 tokens and EOS."""
    generator = torch.Generator().manual_seed(3)
    lengths = [1, 3, 5, 8, 12, 2, 7, 4]
    return [[*torch.randint(4, VOCABULARY, (n,), generator=generator).tolist(), EOS_ID] for n in lengths]


@pytest.mark.parametrize("norm_order", ["pre", "post"])
def test_marian_writes_the_same_tokens(norm_order: str, tmp_path: Path) -> None:
    """Catches a matrix that is not transposed, a norm at another place, and a feature in another order."""
    model, sources = marian_like_model(norm_order, 100), random_sources()
    written = translate(tmp_path, model, norm_order, sources)
    if norm_order == "pre":
        attend_to_raw_vectors(model)
    expected = [greedy(model, source, LIMIT) for source in sources]
    assert len({tuple(line) for line in expected}) == len(sources)
    lines = list(zip(written, sources, expected, strict=True))
    assert all(len(line) >= 3 * len(source) or line == whole for line, source, whole in lines)
    assert [whole[: len(line)] for line, _, whole in lines] == written


def test_all_translations_have_a_fixed_length(tmp_path: Path) -> None:
    """Catches a comparison of speeds in which Marian ends sooner than the others."""
    sources = [[*range(4, 11), EOS_ID], [*range(20, 27), EOS_ID]]
    written = translate(tmp_path, marian_like_model("post", 0), "post", sources, fixed=True, limit=10, beam=4)
    assert [len(line) for line in written] == [10, 10]
