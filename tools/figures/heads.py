"""Drawing of the head of the English-German model that follows the written words best, over the words of a sentence."""

from pathlib import Path

import torch
from torch import Tensor

from figures.svg import Drawing, paint
from transformer.blocks import causal_mask
from transformer.pipelines.auto import read_model
from transformer.tokenizers.special_tokens import BOS_ID, EOS_ID

SOURCE = "The man has not read the book."
TARGET = "Der Mann hat das Buch nicht gelesen."
FOLLOWED = (0, 1, 2, 5, 6, 3, 4, 7, 8)
"""Source token of each token that is written, [EOS] included."""


def cross_attention() -> tuple[Tensor, list[str], list[str]]:
    """Returns the weights of a head, the source tokens and the target tokens, which begin with [SOS].

    It is the head that gives most weight to the source tokens of those that are written.
    """
    bundle = read_model(Path("en-de"), None)
    model, tokenizers = bundle.model.eval(), bundle.tokenizers
    src = [*tokenizers.source.encode(SOURCE), EOS_ID]
    tgt = [BOS_ID, *tokenizers.target.encode(TARGET)]
    maps: list[Tensor] = []
    hooks = [
        layer.cross_attention_block.register_forward_pre_hook(
            lambda block, inputs: maps.append(block.attention_weights(*inputs[:2]))
        )
        for layer in model.decoder.layers
    ]
    with torch.inference_mode():
        model(torch.tensor([src]), torch.tensor([tgt]), None, causal_mask(len(tgt)))
    for hook in hooks:
        hook.remove()
    heads = torch.cat(maps, dim=1)[0]  # of all layers, one after the other
    best = int(heads[:, range(len(tgt)), FOLLOWED].sum(dim=-1).argmax())
    layer, head = divmod(best, heads.size(0) // len(maps))
    print(f"one-head: layer {layer + 1}, head {head + 1}")
    names = [
        [tokenizer.decode([token]) for token in ids]
        for tokenizer, ids in ((tokenizers.source, src), (tokenizers.target, tgt))
    ]
    return heads[best], [*names[0][:-1], "[EOS]"], ["[SOS]", *names[1][1:]]


def one_head() -> Drawing:
    """Draws the weights of a head of cross-attention: a row for each word that is written, a column for each read."""
    weights, source, target = cross_attention()
    drawing = Drawing(350, 304)
    left, top, width, height = 124, 62, 24, 24
    drawing.label(44, top - 12, "reads", size=11, bold=True)
    drawing.label(98, top - 12, "writes", size=11, bold=True)
    for i, (read, written) in enumerate(zip(target, [*target[1:], "[EOS]"], strict=True)):
        y = top + height * (i + 0.5)
        drawing.label(44, y, read, size=11)
        drawing.label(98, y, written, size=11)
        for j in range(len(source)):
            tenths = round(10 * weights[i, j].item())
            drawing.parts.append(
                f'<rect x="{left + width * j}" y="{top + height * i}" width="{width}" height="{height}" '
                f'fill="{paint("attention")}" fill-opacity="{0.07 * tenths:.2f}" '
                'stroke="currentColor" stroke-opacity="0.3"/>'
            )
            if tenths:
                drawing.label(left + width * (j + 0.5), y, "1" if tenths == 10 else f".{tenths}", size=10)
    for j, token in enumerate(source):
        drawing.slanted(left + width * (j + 0.4), top - 6, token, size=11)
    drawing.label(
        left + width * len(source) / 2, top + height * len(target) + 14, "attends to (source)", size=11, bold=True
    )
    return drawing


DRAWINGS = {"one-head": one_head}
