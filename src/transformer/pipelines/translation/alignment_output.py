"""Where a translator looked: links between words, and the matrices they come from."""

import zipfile
from typing import BinaryIO

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from transformer.decoding import Tokens
from transformer.pipelines.translation.alignment import Links, scaled
from transformer.pipelines.translation.translator import Translation, Translator


def attention_weights(translator: Translator, translation: Translation) -> list[Float[Tensor, "N H T S"]]:
    """Cross-attention of the best translation in every layer and head, one tensor a piece of the line.

    Row t is where the model looked when it wrote token t; the last column is the source's EOS.
    """
    return [translator.aligner.attention(*piece) for piece in _pieces(translation)]


def word_alignment(translator: Translator, translation: Translation) -> Links:
    """For each word of the best translation the source word that it attends to most; none where that is EOS.

    Attention is that of `word_layer`, added up over the tokens of a word. Words are what white space parts, in the line
    as given and in the translation as written, tags included; a word with a tag within it is where it begins.
    """
    links, counts = translator.aligner.links(_pieces(translation))
    if translation.words is None:
        return links
    sources, targets = translation.words
    moved = (
        (sources[scaled(source, counts[0], len(sources))], targets[scaled(target, counts[1], len(targets))])
        for source, target in links
        if sources and targets
    )
    return list(dict.fromkeys(moved))


def _pieces(translation: Translation) -> list[tuple[Tokens, Tokens]]:
    return list(zip(translation.sources, translation.alternatives[0].tokens, strict=True))


class AttentionFile:
    """An .npz file to which the attention of one line after another is added.

    Holds, for piece 1 of line 7: `7.1` (N, H, T, S) in float16, `7.1.source` and `7.1.target`, the printable tokens. It
    is complete once it is left as a context; nothing is written where that is by an error before anything was added.

    Args:
        file: open for writing.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._archive: zipfile.ZipFile | None = None

    def __enter__(self) -> "AttentionFile":
        """Itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Completes the file."""
        if kind is None or self._archive is not None:
            self._open().close()

    def add(self, number: int, translator: Translator, translation: Translation) -> None:
        """Adds the attention of a line's best translation."""
        tokenizers, best = translator.tokenizers, translation.alternatives[0]
        for piece, weights in enumerate(attention_weights(translator, translation), start=1):
            source, target = translation.sources[piece - 1], best.tokens[piece - 1]
            self._write(f"{number}.{piece}", weights.to(torch.float16).numpy())
            self._write(f"{number}.{piece}.source", np.array(tokenizers.source.pieces(source)))
            self._write(f"{number}.{piece}.target", np.array(tokenizers.target.pieces(target), dtype=np.str_))

    def _write(self, name: str, array: np.ndarray) -> None:
        with self._open().open(f"{name}.npy", "w") as file:
            np.lib.format.write_array(file, array, allow_pickle=False)

    def _open(self) -> zipfile.ZipFile:
        self._archive = self._archive or zipfile.ZipFile(self._file, "w", zipfile.ZIP_DEFLATED)
        return self._archive
