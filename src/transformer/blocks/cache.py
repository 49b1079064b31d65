"""Key-value (KV) caches: keys and values of past positions, which decoding one more token need not compute again.

The capacity of a cache may exceed the positions in use. The others are zeros, and masks hide them.
"""

from dataclasses import dataclass
from typing import Final

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

MIN_GROWTH: Final = 32
"""The fewest positions that a full cache grows by."""
MAX_GROWTH: Final = 256
"""The most positions that a full cache grows by."""


@dataclass
class KeyValueCache:
    """Keys and values of one attention block, with a capacity of L positions; H counts the heads of keys and values."""

    keys: Float[Tensor, "B H L E"]
    values: Float[Tensor, "B H L E_v"]

    def without_positions(self) -> "KeyValueCache":
        """Returns an empty cache for the same rows, heads and widths, of the same dtype and device."""
        return type(self)(self.keys[:, :, :0].contiguous(), self.values[:, :, :0].contiguous())

    def write(self, new: "KeyValueCache", positions: Int[Tensor, " B"], length: int) -> None:
        """Stores one new position per row, in place.

        Args:
            new: Keys and values of the new position of each row.
            positions: Index of the new position of each row.
            length: Number of positions in use after this call, more than the largest of `positions`.
        """
        self.reserve(length)
        rows = torch.arange(len(positions), device=positions.device)
        self.keys[rows, :, positions] = new.keys[:, :, 0]
        self.values[rows, :, positions] = new.values[:, :, 0]

    def reserve(self, length: int) -> None:
        """Grows a cache that has less than `length` positions.

        Growth is proportional to the size, so that long texts are copied rarely; its bounds limit the waste.
        """
        capacity = self.keys.size(2)
        if length > capacity:
            self.grow(max(length - capacity, min(max(MIN_GROWTH, capacity // 2), MAX_GROWTH)))

    def grow(self, positions: int) -> None:
        """Adds positions to the capacity."""
        self.keys, self.values = (F.pad(x, (0, 0, 0, positions)) for x in (self.keys, self.values))

    def first(self, length: int) -> "KeyValueCache":
        """Returns a view of the first `length` positions."""
        return type(self)(self.keys[:, :, :length], self.values[:, :, :length])

    def select(self, rows: Int[Tensor, " R"], length: int, shortest: int = 0) -> "KeyValueCache":
        """Returns the selected rows, in the order of `rows`, which may repeat. This cache must not be used afterwards.

        If most rows keep their index, for example after a few have finished, only the others are copied.

        Args:
            rows: Indices of rows of this cache.
            length: Number of positions that are in use; the others need not be copied.
            shortest: Number of positions that are in use in all selected rows.
        """
        del shortest  # needed by caches whose rows share their storage
        n = rows.numel()
        if length == 0:
            return type(self)(*(x.new_zeros(n, *x.shape[1:]) for x in (self.keys, self.values)))
        moved = (rows != torch.arange(n, device=rows.device)).nonzero()[:, 0]
        if n > self.keys.size(0) or 2 * moved.numel() > n:
            return type(self)(self.keys.index_select(0, rows), self.values.index_select(0, rows))
        for cached in (self.keys[:, :, :length], self.values[:, :, :length]):
            cached[moved] = cached[rows[moved]]
        return type(self)(self.keys[:n], self.values[:n])


class IncrementalState:
    """The state of incremental decoding: rows of a batch that grow by one position at a time.

    Attributes:
        positions: Position of the next token of each row.
        longest: The largest of `positions`, known without reading the tensor.
    """

    positions: Int[Tensor, " B"]
    longest: int

    @property
    def self_mask(self) -> Bool[Tensor, "B 1 1 T"]:
        """Mask by which each row may attend to its own positions, up to and including the one being written."""
        return (torch.arange(self.longest + 1, device=self.positions.device) <= self.positions[:, None])[:, None, None]

    def select(self, rows: Int[Tensor, " R"]) -> "IncrementalState":
        """Returns the selected rows, in the order of `rows`, which may repeat; this state must not be used again."""
        raise NotImplementedError

    def advance(self) -> None:
        """Advances every row by one position."""
        self.positions = self.positions + 1
        self.longest += 1


@dataclass
class CausalCache(IncrementalState):
    """The decoding state of a decoder-only model.

    Attributes:
        layers: One cache per layer, for the prompt and the generated tokens.
        positions: Position of the next token of each row.
        longest: The largest of `positions`.
    """

    layers: list[KeyValueCache]
    positions: Int[Tensor, " B"]
    longest: int = 0

    def select(self, rows: Int[Tensor, " R"]) -> "CausalCache":
        """Returns the selected rows, in the order of `rows`, which may repeat; this state must not be used again."""
        positions = self.positions[rows]
        shortest, longest = _min_max(positions)
        layers = [layer.select(rows, self.longest, shortest) for layer in self.layers]
        return type(self)(layers, positions, longest)


@dataclass
class LayerCache:
    """The two caches of one decoder layer: self-attention over the target so far, cross-attention over the source."""

    self_attention: KeyValueCache
    cross_attention: KeyValueCache


@dataclass
class DecoderCache(IncrementalState):
    """The decoding state of an encoder-decoder model; its rows are hypotheses of sentences.

    The source side (cross-attention keys and values, `src_mask`) is stored once per sentence. The `width` rows of a
    sentence are adjacent and share it: cross-attention treats them like positions of one target.

    Attributes:
        layers: One pair of caches per decoder layer.
        src_mask: Padding mask of the sentences.
        positions: Position of the next token of each row.
        longest: The largest of `positions`, known without reading the tensor.
        width: Number of rows per sentence.
    """

    layers: list[LayerCache]
    src_mask: Bool[Tensor, "N 1 1 S"]
    positions: Int[Tensor, " B"]
    longest: int = 0
    width: int = 1

    def select(self, rows: Int[Tensor, " R"]) -> "DecoderCache":
        """Returns the selected rows, in the order of `rows`; sentences without a row are dropped.

        If the selected rows of a sentence are not adjacent, or sentences have unequal numbers of rows, each row gets a
        copy of the source side. This state must not be used afterwards.
        """
        sentences, width = group_rows(rows, self.width)
        keeps_all = sentences == list(range(len(self.src_mask)))
        sentence_ids = torch.tensor(sentences, dtype=torch.long, device=rows.device)
        positions = self.positions[rows]
        shortest, longest = _min_max(positions)
        layers: list[LayerCache] = []
        for layer in self.layers:
            source = layer.cross_attention
            source = source if keeps_all else source.select(sentence_ids, self.src_mask.size(-1))
            layers.append(LayerCache(layer.self_attention.select(rows, self.longest, shortest), source))
        src_mask = self.src_mask if keeps_all else self.src_mask[sentence_ids]
        return type(self)(layers, src_mask, positions, longest, width)


def group_rows(rows: Int[Tensor, " R"], width: int) -> tuple[list[int], int]:
    """Groups the rows of a selection by sentence.

    Args:
        rows: Selected rows.
        width: Number of rows per sentence before the selection.

    Returns:
        The sentence of each group, and the number of rows per group: 1 if the rows of a sentence are not adjacent, or
        sentences have unequal numbers of rows.
    """
    row_sentences = (rows // width).tolist()
    new_width = len(row_sentences) // len(dict.fromkeys(row_sentences)) if row_sentences else 1
    sentences = row_sentences[::new_width]
    if [sentence for sentence in sentences for _ in range(new_width)] != row_sentences:
        return row_sentences, 1
    return sentences, new_width


def _min_max(positions: Int[Tensor, " B"]) -> tuple[int, int]:
    """Returns the smallest and the largest position, or zeros if there are none."""
    if not len(positions):
        return 0, 0
    smallest, largest = torch.stack(positions.aminmax()).tolist()  # one transfer: on a GPU, each one synchronizes
    return smallest, largest
