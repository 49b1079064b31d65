"""Which source word each word of a translation comes from, as the model's attention tells it."""

import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from transformer.attended import watched_weights, word_layer, written_from
from transformer.text.control import CONTROL_NAMES
from transformer.text.pair import TokenizerPair
from transformer.translation import Translation, Translator

SPACE: Final = "▁"
_PRINTED: Final = re.compile(r"<(09|0A|0B|0C|0D|20)>")
Links = list[tuple[int, int]]
"""Pairs of a source word and a target word, from 0."""


def attention_weights(translator: Translator, translation: Translation) -> list[Float[Tensor, "N H T S"]]:
    """Cross-attention of the best translation in every layer and head, one tensor a piece of the line.

    Row t is where the model looked when it wrote token t; the last column is the source's EOS.
    """
    return [
        _weights(translator, source, target)
        for source, target in zip(translation.sources, translation.alternatives[0].tokens, strict=True)
    ]


@torch.no_grad()
def _weights(translator: Translator, source: Sequence[int], target: Sequence[int]) -> Float[Tensor, "N H T S"]:
    model, device = translator.model, translator.device
    written = written_from(target[:-1], max(1, len(target)), translator.control.bos)
    src, tgt = torch.tensor([source], device=device), torch.tensor([written], device=device)
    return torch.cat(watched_weights(model, src, tgt))[:, :, : len(target)].cpu()


def word_alignment(translator: Translator, translation: Translation) -> Links:
    """For each word of the best translation the source word that it attends to most; none where that is EOS.

    Attention is that of `word_layer`, added up over the tokens of a word.
    """
    links: Links = []
    source_words = target_words = 0
    pieces = zip(translation.sources, translation.alternatives[0].tokens, strict=True)
    for weights, (source, target) in zip(attention_weights(translator, translation), pieces, strict=True):
        own = align(word_layer(list(weights[:, None]))[0], *_words(translator.tokenizers, source, target))
        links += [(source_words + s, target_words + t) for s, t in own]
        counts = [1 + max(words, default=-1) for words in _words(translator.tokenizers, source, target)]
        source_words, target_words = source_words + counts[0], target_words + counts[1]
    return links


def align(weights: Float[Tensor, "T S"], source_words: Sequence[int], target_words: Sequence[int]) -> Links:
    """Links by attention, given which word each token belongs to; -1 is none."""
    links: Links = []
    for word in range(max(target_words, default=-1) + 1):
        mass = weights[[place for place, owner in enumerate(target_words) if owner == word]].sum(dim=0)
        by_word = mass.new_zeros(max(source_words, default=-1) + 2)
        by_word.index_add_(0, torch.tensor(source_words) % len(by_word), mass)  # -1, EOS, is the last
        best = int(by_word.argmax())
        if best < len(by_word) - 1:
            links.append((best, word))
    return links


def _words(tokenizers: TokenizerPair, source: Sequence[int], target: Sequence[int]) -> tuple[list[int], list[int]]:
    """The word that each token belongs to; -1 for control tokens."""
    return word_of_each(tokenizers.source.pieces(source)), word_of_each(tokenizers.target.pieces(target))


def word_of_each(pieces: Sequence[str]) -> list[int]:
    """The word that each printed token belongs to, counted as `str.split` does; -1 for control tokens.

    Several spaces part no more words than one. White space goes with what follows.
    """
    owners: list[int] = []
    word, inside = -1, False
    for piece in pieces:
        if piece in CONTROL_NAMES:
            owners.append(-1)
            continue
        text = _PRINTED.sub(lambda byte: chr(int(byte[1], 16)), piece).replace(SPACE, " ")
        for character in text:
            word += not inside and not character.isspace()
            inside = not character.isspace()
        owners.append(word if text.strip() else word + 1)
    return [min(owner, word) for owner in owners]


class AttentionFile:
    """An .npz file to which the attention of one line after another is added.

    Holds, for piece 1 of line 7: `7.1` (N, H, T, S) in float16, `7.1.source` and `7.1.target`, the printable tokens.
    """

    def __init__(self, path: Path) -> None:
        self._archive = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)

    def add(self, number: int, translator: Translator, translation: Translation) -> None:
        """Adds the attention of a line's best translation."""
        tokenizers, best = translator.tokenizers, translation.alternatives[0]
        for piece, weights in enumerate(attention_weights(translator, translation), start=1):
            source, target = translation.sources[piece - 1], best.tokens[piece - 1]
            self._write(f"{number}.{piece}", weights.to(torch.float16).numpy())
            self._write(f"{number}.{piece}.source", np.array(tokenizers.source.pieces(source)))
            self._write(f"{number}.{piece}.target", np.array(tokenizers.target.pieces(target), dtype=np.str_))

    def _write(self, name: str, array: np.ndarray) -> None:
        with self._archive.open(f"{name}.npy", "w") as file:
            np.lib.format.write_array(file, array, allow_pickle=False)

    def close(self) -> None:
        """Completes the file."""
        self._archive.close()
