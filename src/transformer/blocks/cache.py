"""What the decoder remembers from one step to the next: a value owned by the search, never state of a module."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass
class KeyValueCache:
    """Keys and values of one attention block, with room for L positions."""

    keys: Float[Tensor, "B H L E"]
    values: Float[Tensor, "B H L E"]

    @classmethod
    def empty(cls, like: Float[Tensor, "B H S E"], capacity: int) -> "KeyValueCache":
        """A cache of zeros with rows, heads, width, type and device of `like` and room for `capacity` positions."""
        rows, heads, _, width = like.shape
        return cls(like.new_zeros(rows, heads, capacity, width), like.new_zeros(rows, heads, capacity, width))

    def write(
        self, keys: Float[Tensor, "B H 1 E"], values: Float[Tensor, "B H 1 E"], positions: Int[Tensor, " B"]
    ) -> None:
        """Stores one new position a row, in place; row b writes at `positions[b]`."""
        rows = torch.arange(keys.size(0), device=keys.device)
        self.keys[rows, :, positions] = keys[:, :, 0]
        self.values[rows, :, positions] = values[:, :, 0]

    def first(self, length: int) -> "KeyValueCache":
        """A view of the first `length` positions."""
        return type(self)(self.keys[:, :, :length], self.values[:, :, :length])

    def select(self, rows: Int[Tensor, " R"]) -> "KeyValueCache":
        """A copy of the given rows, in the given order; a row may appear more than once."""
        return type(self)(self.keys.index_select(0, rows), self.values.index_select(0, rows))


@dataclass
class LayerCache:
    """The two caches of one decoder layer: over the target so far, and over the source."""

    self_attention: KeyValueCache
    cross_attention: KeyValueCache


@dataclass
class DecoderCache:
    """The state of a search over rows (hypotheses) of sentences.

    The source side (cross-attention keys and values, `src_mask`) is held once a sentence, however many rows search
    for its translation; `sentence` says which sentence a row belongs to.

    Attributes:
        layers: one cache a decoder layer.
        src_mask: padding mask of the sentences.
        sentence: index into the source side for each row.
        positions: position the next token of each row will stand at.
        longest: the largest of `positions`, known without reading the tensor.
        one_to_one: row b belongs to sentence b, so that the source side is used as it is.
    """

    layers: list[LayerCache]
    src_mask: Bool[Tensor, "N 1 1 S"]
    sentence: Int[Tensor, " B"]
    positions: Int[Tensor, " B"]
    longest: int = 0
    one_to_one: bool = True

    @property
    def self_mask(self) -> Bool[Tensor, "B 1 1 T"]:
        """Each row may attend to its own positions up to the one being written."""
        reachable = torch.arange(self.longest + 1, device=self.positions.device)
        return (reachable <= self.positions[:, None])[:, None, None, :]

    @property
    def row_src_mask(self) -> Bool[Tensor, "B 1 1 S"]:
        """The padding mask of each row's sentence."""
        return self.src_mask if self.one_to_one else self.src_mask[self.sentence]

    def row_source(self, layer: int) -> KeyValueCache:
        """Keys and values of each row's sentence in one layer."""
        source = self.layers[layer].cross_attention
        return source if self.one_to_one else source.select(self.sentence)

    def advance(self) -> None:
        """Moves every row one position on."""
        self.positions = self.positions + 1
        self.longest += 1

    def select(self, rows: Int[Tensor, " R"]) -> "DecoderCache":
        """The state of the given rows, in the given order; sentences without a row are dropped."""
        sentences, sentence = self.sentence[rows].unique(return_inverse=True)
        drops = sentences.numel() < self.src_mask.size(0)
        layers = [
            LayerCache(
                layer.self_attention.select(rows),
                layer.cross_attention.select(sentences) if drops else layer.cross_attention,
            )
            for layer in self.layers
        ]
        one_to_one = torch.equal(sentence, torch.arange(sentences.numel(), device=rows.device))
        positions = self.positions[rows]
        src_mask = self.src_mask[sentences] if drops else self.src_mask
        return type(self)(layers, src_mask, sentence, positions, self.longest, one_to_one)
