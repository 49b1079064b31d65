"""Key and value caches for incremental decoding.

A cache is a value that the search owns and passes to each step. It is never part of a module's state.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

INITIAL_CAPACITY: Final = 32
"""Capacity of a new cache in positions, beyond those of a prompt, and the fewest positions that a full one grows by."""
MAX_GROWTH: Final = 256
"""The most positions that a full cache grows by."""


@dataclass
class KeyValueCache:
    """Keys and values of one attention block, with a capacity of L positions; H counts the heads of keys and values."""

    keys: Float[Tensor, "B H L E"]
    values: Float[Tensor, "B H L E"]

    @classmethod
    def empty(cls, like: Float[Tensor, "B H S E"], capacity: int) -> "KeyValueCache":
        """Returns a cache of zeros for `capacity` positions, otherwise of the size, dtype and device of `like`."""
        rows, heads, _, width = like.shape
        return cls(like.new_zeros(rows, heads, capacity, width), like.new_zeros(rows, heads, capacity, width))

    def write(
        self, keys: Float[Tensor, "B H 1 E"], values: Float[Tensor, "B H 1 E"], positions: Int[Tensor, " B"]
    ) -> None:
        """Stores one new position per row, in place; row b is written at `positions[b]`."""
        rows = torch.arange(keys.size(0), device=keys.device)
        self.keys[rows, :, positions] = keys[:, :, 0]
        self.values[rows, :, positions] = values[:, :, 0]

    def first(self, length: int) -> "KeyValueCache":
        """Returns a view of the first `length` positions."""
        return type(self)(self.keys[:, :, :length], self.values[:, :, :length])

    def grow(self, positions: int) -> "KeyValueCache":
        """Returns a copy whose capacity is larger by `positions`."""
        return type(self)(F.pad(self.keys, (0, 0, 0, positions)), F.pad(self.values, (0, 0, 0, positions)))

    def resized(self, positions: int) -> "KeyValueCache":
        """Returns a cache with a capacity of `positions`: a view of the first ones, or a larger copy."""
        capacity = self.keys.size(2)
        return self.first(positions) if positions <= capacity else self.grow(positions - capacity)

    def tensors(self) -> list[Tensor]:
        """Returns the tensors that the cache consists of."""
        return [self.keys, self.values]

    @classmethod
    def reorder_cache(
        cls, caches: "Sequence[KeyValueCache]", rows: Int[Tensor, " B"], length: int
    ) -> "list[KeyValueCache]":
        """Reorders the rows of the caches of all layers, which hold `length` positions.

        The indices in `rows` are never copied to the CPU, so that a CUDA graph can capture the operation.
        """
        del length
        return [type(cache)(*(x.index_select(0, rows) for x in cache.tensors())) for cache in caches]

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

    @classmethod
    def selected(
        cls, caches: "Sequence[KeyValueCache]", rows: Int[Tensor, " R"], length: int, shortest: int
    ) -> "list[KeyValueCache]":
        """Selects rows of the caches of all layers; see `select`."""
        return [cache.select(rows, length, shortest) for cache in caches]

    def join(self, other: "KeyValueCache") -> "KeyValueCache":
        """Returns the rows of both caches, with the larger of the two capacities."""
        return type(self)(_concatenate(self.keys, other.keys, 2), _concatenate(self.values, other.values, 2))


class IncrementalState(ABC):
    """The state of incremental decoding: rows of a batch that grow by one position at a time.

    Attributes:
        positions: Position of the next token of each row.
        longest: The largest of `positions`, known without reading the tensor.
    """

    positions: Int[Tensor, " B"]
    longest: int

    @property
    @abstractmethod
    def self_attention_caches(self) -> list[KeyValueCache]:
        """The self-attention cache of each layer, which every step writes to."""

    @abstractmethod
    def with_self_attention_caches(self, caches: list[KeyValueCache]) -> "IncrementalState":
        """Returns the same state with other self-attention caches."""

    @abstractmethod
    def tensors(self) -> list[Tensor]:
        """Returns all tensors that a step reads, in an order that depends on the model alone.

        Self-attention caches are included only once a position has been written.
        """

    def reorder_cache(self, rows: Int[Tensor, " B"]) -> "IncrementalState":
        """Reorders rows within their sentences, where all rows of a sentence are at the same position.

        Nothing is copied to the CPU, so that a GPU need not wait and a CUDA graph can capture the operation.
        """
        caches = self.self_attention_caches
        return self.with_self_attention_caches(type(caches[0]).reorder_cache(caches, rows, self.longest))

    def resized(self, positions: int) -> "IncrementalState":
        """Returns the same state with a capacity of `positions`."""
        return self.with_self_attention_caches([cache.resized(positions) for cache in self.self_attention_caches])

    @property
    def self_mask(self) -> Bool[Tensor, "B 1 1 T"]:
        """Mask by which each row may attend to its own positions, up to and including the one being written."""
        return prefix_mask(self.positions, self.longest)

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
        longest: The largest of `positions`, known without reading the tensor.
    """

    layers: list[KeyValueCache]
    positions: Int[Tensor, " B"]
    longest: int = 0

    @property
    def self_attention_caches(self) -> list[KeyValueCache]:
        """Implements `IncrementalState.self_attention_caches`."""
        return self.layers

    def with_self_attention_caches(self, caches: list[KeyValueCache]) -> "CausalCache":
        """Implements `IncrementalState.with_self_attention_caches`."""
        return replace(self, layers=caches)

    def tensors(self) -> list[Tensor]:
        """Implements `IncrementalState.tensors`."""
        return [*(_tensors_of(self.layers) if self.longest else []), self.positions]

    def ensure_capacity(self) -> None:
        """Grows the caches if they are full, so that a step can write one more position."""
        if self.longest == self.layers[0].keys.size(2):
            self.layers = [layer.grow(_growth(self.longest)) for layer in self.layers]

    def select(self, rows: Int[Tensor, " R"]) -> "CausalCache":
        """Returns the selected rows, in the order of `rows`, which may repeat; this state must not be used again."""
        positions = self.positions[rows]
        shortest, longest = _min_max(positions)
        layers = type(self.layers[0]).selected(self.layers, rows, self.longest, shortest)
        return type(self)(layers, positions, longest)

    def join(self, other: "CausalCache") -> "CausalCache":
        """Returns the rows of both states, which may be at different positions."""
        layers = [cache.join(joined) for cache, joined in zip(self.layers, other.layers, strict=True)]
        return type(self)(layers, torch.cat([self.positions, other.positions]), max(self.longest, other.longest))


def prefix_mask(positions: Int[Tensor, " B"], longest: int) -> Bool[Tensor, "B 1 1 {longest}+1"]:
    """Returns a mask over the first `longest` + 1 positions: each row may attend to 0 .. its position."""
    return (torch.arange(longest + 1, device=positions.device) <= positions[:, None])[:, None, None, :]


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

    @property
    def self_attention_caches(self) -> list[KeyValueCache]:
        """Implements `IncrementalState.self_attention_caches`."""
        return [layer.self_attention for layer in self.layers]

    def with_self_attention_caches(self, caches: list[KeyValueCache]) -> "DecoderCache":
        """Implements `IncrementalState.with_self_attention_caches`."""
        pairs = zip(caches, self.layers, strict=True)
        return replace(self, layers=[LayerCache(cache, layer.cross_attention) for cache, layer in pairs])

    def tensors(self) -> list[Tensor]:
        """Implements `IncrementalState.tensors`."""
        cross_attention_caches = [layer.cross_attention for layer in self.layers]
        written = _tensors_of(self.self_attention_caches) if self.longest else []
        return [*written, *_tensors_of(cross_attention_caches), self.src_mask, self.positions]

    def ensure_capacity(self) -> None:
        """Grows the self-attention caches if they are full, so that a step can write one more position."""
        if self.longest == self.layers[0].self_attention.keys.size(2):
            for layer in self.layers:
                layer.self_attention = layer.self_attention.grow(_growth(self.longest))

    def select(self, rows: Int[Tensor, " R"]) -> "DecoderCache":
        """Returns the selected rows, in the order of `rows`; sentences without a row are dropped.

        If the selected rows of a sentence are not adjacent, or sentences have unequal numbers of rows, each row gets a
        copy of the source side. This state must not be used afterwards.
        """
        row_sentences = (rows // self.width).tolist()
        width = len(row_sentences) // len(dict.fromkeys(row_sentences)) if row_sentences else 1
        sentences = row_sentences[::width]
        if [sentence for sentence in sentences for _ in range(width)] != row_sentences:
            sentences, width = row_sentences, 1
        keeps_all = sentences == list(range(len(self.src_mask)))
        sentence_ids = torch.tensor(sentences, dtype=torch.long, device=rows.device)
        positions = self.positions[rows]
        shortest, longest = _min_max(positions)
        caches = self.self_attention_caches
        targets = type(caches[0]).selected(caches, rows, self.longest, shortest)
        sources = [layer.cross_attention for layer in self.layers]
        if not keeps_all:
            sources = [source.select(sentence_ids, self.src_mask.size(-1)) for source in sources]
        return type(self)(
            [LayerCache(target, source) for target, source in zip(targets, sources, strict=True)],
            src_mask=self.src_mask if keeps_all else self.src_mask[sentence_ids],
            positions=positions,
            longest=longest,
            width=width,
        )

    def join(self, other: "DecoderCache") -> "DecoderCache":
        """Returns the rows and sentences of both states; rows may be at different positions.

        Raises:
            ValueError: The two states have different numbers of rows per sentence.
        """
        if self.width != other.width:
            raise ValueError(
                f"width={other.width} differs from the {self.width} rows per sentence of this state; search with one "
                "beam width"
            )
        layers = [
            LayerCache(
                layer.self_attention.join(joined.self_attention), layer.cross_attention.join(joined.cross_attention)
            )
            for layer, joined in zip(self.layers, other.layers, strict=True)
        ]
        return type(self)(
            layers,
            src_mask=_concatenate(self.src_mask, other.src_mask, 3),
            positions=torch.cat([self.positions, other.positions]),
            longest=max(self.longest, other.longest),
            width=self.width,
        )


def _tensors_of(caches: list[KeyValueCache]) -> list[Tensor]:
    return [x for cache in caches for x in cache.tensors()]


def _growth(positions: int) -> int:
    """Returns how many positions to add to a full cache.

    Growing in proportion to its size keeps the number of copies of a long text small; the bounds limit the waste.
    """
    return min(max(INITIAL_CAPACITY, positions // 2), MAX_GROWTH)


def _min_max(positions: Int[Tensor, " B"]) -> tuple[int, int]:
    """Returns the smallest and the largest position, or zeros if there are none."""
    if not len(positions):
        return 0, 0
    smallest, largest = torch.stack(positions.aminmax()).tolist()  # one transfer: on a GPU, each one synchronizes
    return smallest, largest


def _concatenate(x: Tensor, y: Tensor, axis: int) -> Tensor:
    """Concatenates the rows of two tensors, the shorter one padded along `axis` with zeros (or False)."""
    length = max(x.size(axis), y.size(axis))

    def pad(z: Tensor) -> Tensor:
        return F.pad(z, (0, 0) * (z.dim() - 1 - axis) + (0, length - z.size(axis)))

    return torch.cat([pad(x), pad(y)])
