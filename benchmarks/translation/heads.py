"""What the encoder's heads of a translation model attend to, counted over sentences.

For each head: the mean share of the attention of a word that goes to the previous token, to itself, to the next token,
to the end of the sentence (the last punctuation mark and the end-of-sentence token), and farther than five tokens away.
The first three figures have the same meaning for every sentence, so that a head that looks typical in one picture can
be told from a head that does the same everywhere.

Usage: python benchmarks/translation/heads.py MODEL --source FILE --out FILE
"""

import argparse
import json
import shlex
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

from transformer.blocks import MultiHeadAttention, padding_mask
from transformer.pipelines.auto import read_model
from transformer.runtime.machine import machine
from transformer.tokenizers.special_tokens import EOS_ID

FAR = 5
TARGETS = ("previous", "itself", "next", "end", "far")


def main() -> None:
    """Counts and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--sentences", type=int, default=200)
    parser.add_argument("--shortest", type=int, default=8, help="fewest tokens of a sentence")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    bundle = read_model(arguments.model, None)
    model, tokenizer = bundle.model.eval(), bundle.tokenizers.source
    lines = arguments.source.read_text(encoding="utf-8").splitlines()
    encoded = [[*tokenizer.encode(line), EOS_ID] for line in lines if line[-1:] in ".?!"]
    sentences = [ids for ids in encoded if len(ids) > arguments.shortest][: arguments.sentences]
    shares = torch.stack([heads_of(model, ids) for ids in sentences])  # sentence, layer, head, target
    even = torch.stack([shares_of(torch.full((1, 1, len(ids), len(ids)), 1 / len(ids))) for ids in sentences])
    mean, spread = shares.mean(dim=0), shares.std(dim=0)
    heads = [
        {
            "layer": layer + 1,
            "head": head + 1,
            **{name: round(mean[layer, head, index].item(), 3) for index, name in enumerate(TARGETS)},
            "standard deviation": {
                name: round(spread[layer, head, index].item(), 3) for index, name in enumerate(TARGETS)
            },
        }
        for layer in range(mean.size(0))
        for head in range(mean.size(1))
    ]
    facts = {
        "command": shlex.join(["python", *sys.argv]),
        "machine": machine(),
        "sentences": len(sentences),
        "tokens": sum(map(len, sentences)),
        "meaning": f"mean share of a token's attention; far: more than {FAR} tokens away, without the end",
        "even attention": dict(
            zip(TARGETS, [round(share, 3) for share in even.mean(dim=0).flatten().tolist()], strict=True)
        ),
        "heads": heads,
    }
    arguments.out.write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for head in heads:
        print(head["layer"], head["head"], [head[name] for name in TARGETS])


@torch.no_grad()
def heads_of(model: nn.Module, ids: list[int]) -> Tensor:
    """Returns the mean shares of attention in a sentence: (layers, heads, targets)."""
    src = torch.tensor([ids])
    weights: list[Tensor] = []

    def record(block: MultiHeadAttention, inputs: tuple[Tensor, ...]) -> None:
        query, key, _, mask, *_ = inputs
        weights.append(block.attention_weights(query, key, mask)[0])

    hooks = [layer.self_attention_block.register_forward_pre_hook(record) for layer in model.encoder.layers]
    model.encode(src, padding_mask(src))
    for hook in hooks:
        hook.remove()
    return shares_of(torch.stack(weights))


def shares_of(weights: Tensor) -> Tensor:
    """Returns the mean shares of attention weights of the shape (layers, heads, tokens, tokens)."""
    tokens = weights.size(-1)
    words = tokens - 2  # without the last punctuation mark and the end token
    offsets = torch.arange(tokens) - torch.arange(tokens)[:, None]
    inside = (torch.arange(tokens) < words).expand(tokens, -1)
    targets = (offsets == -1, offsets == 0, offsets == 1, ~inside, (offsets.abs() > FAR) & inside)
    masks = torch.stack(targets)[:, :words].float()
    return torch.einsum("lhts,nts->lhn", weights[:, :, :words], masks) / words


if __name__ == "__main__":
    main()
