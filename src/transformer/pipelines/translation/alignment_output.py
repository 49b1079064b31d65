"""Output of word alignments and of the attention matrices that they come from."""

import zipfile
from typing import BinaryIO

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from transformer.decoding import Tokens
from transformer.pipelines.translation.alignment import Links, scale_index
from transformer.pipelines.translation.results import Translation
from transformer.pipelines.translation.translator import Translator


def attention_weights(translator: Translator, translation: Translation) -> list[Float[Tensor, "N H T S"]]:
    """Returns the cross-attention of the best translation in every layer and head, one tensor per segment of the line.

    Row t holds the attention of target token t over the source; the last column is the source's EOS.
    """
    return [translator.aligner.attention(*segment) for segment in _segments(translation)]


def word_alignment(translator: Translator, translation: Translation) -> Links:
    """Links each word of the best translation to the source word that it attends to most; none if that is EOS.

    The attention of `alignment_weights` is summed over the tokens of a word. Words are separated by white space, in the
    input line and in the final translation, tags included. A word that contains a tag counts where it begins.
    """
    links, counts = translator.aligner.links(_segments(translation))
    if translation.words is None:
        return links
    sources, targets = translation.words
    mapped = (
        (sources[scale_index(source, counts[0], len(sources))], targets[scale_index(target, counts[1], len(targets))])
        for source, target in links
        if sources and targets
    )
    return list(dict.fromkeys(mapped))


def _segments(translation: Translation) -> list[tuple[Tokens, Tokens]]:
    return list(zip(translation.sources, translation.alternatives[0].tokens, strict=True))


class AttentionFile:
    """An .npz file that receives the attention of one line after another.

    For segment 1 of line 7 it contains `7.1` (N, H, T, S) in float16, and the printable tokens `7.1.source` and
    `7.1.target`. The file is complete when the context exits. If an error ends the context before anything was added,
    nothing is written.

    Args:
        file: Binary file, open for writing.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._archive: zipfile.ZipFile | None = None

    def __enter__(self) -> "AttentionFile":
        """Returns the file itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Completes the file."""
        if kind is None or self._archive is not None:
            self._open().close()

    def add(self, number: int, translator: Translator, translation: Translation) -> None:
        """Adds the attention of a line's best translation."""
        tokenizers, best = translator.tokenizers, translation.alternatives[0]
        for segment, weights in enumerate(attention_weights(translator, translation), start=1):
            source, target = translation.sources[segment - 1], best.tokens[segment - 1]
            self._write(f"{number}.{segment}", weights.to(torch.float16).numpy())
            self._write(f"{number}.{segment}.source", np.array(tokenizers.source.pieces(source)))
            self._write(f"{number}.{segment}.target", np.array(tokenizers.target.pieces(target), dtype=np.str_))

    def _write(self, name: str, array: np.ndarray) -> None:
        with self._open().open(f"{name}.npy", "w") as file:
            np.lib.format.write_array(file, array, allow_pickle=False)

    def _open(self) -> zipfile.ZipFile:
        self._archive = self._archive or zipfile.ZipFile(self._file, "w", zipfile.ZIP_DEFLATED)
        return self._archive
