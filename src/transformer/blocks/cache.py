"""What the decoder remembers from one step to the next: a value owned by the search, never state of a module."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

INITIAL_CAPACITY: Final = 32
"""Positions that a cache begins with, beside those of a prompt, and the fewest that are added when it is full."""
MOST_ROOM: Final = 256
"""The most that are added."""


@dataclass
class KeyValueCache:
    """Keys and values of one attention block, with room for L positions; H is the heads that keys have."""

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

    def grow(self, positions: int) -> "KeyValueCache":
        """The same with room for more positions."""
        return type(self)(F.pad(self.keys, (0, 0, 0, positions)), F.pad(self.values, (0, 0, 0, positions)))

    def resized(self, positions: int) -> "KeyValueCache":
        """The same with room for so many positions: a view of the first ones, or a copy with more."""
        room = self.keys.size(2)
        return self.first(positions) if positions <= room else self.grow(positions - room)

    def tensors(self) -> list[Tensor]:
        """What it holds."""
        return [self.keys, self.values]

    @classmethod
    def reorder_cache(
        cls, caches: "Sequence[KeyValueCache]", rows: Int[Tensor, " B"], length: int
    ) -> "list[KeyValueCache]":
        """The given rows of the caches of all layers, of `length` positions; rows need not be known on the host."""
        del length
        return [type(each)(*(x.index_select(0, rows) for x in each.tensors())) for each in caches]

    def select(self, rows: Int[Tensor, " R"], length: int, shortest: int = 0) -> "KeyValueCache":
        """The given rows, in the given order; a row may appear more than once. This cache is not to be used again.

        Where most rows stay where they are, as when a few have left, only the others are copied.

        Args:
            rows: of this cache.
            length: positions that hold something; the others need not be copied.
            shortest: of them, those that do in every one of the given rows.
        """
        del shortest  # which a cache whose rows share what they hold needs to know
        n = rows.numel()
        if length == 0:
            return type(self)(*(held.new_zeros(n, *held.shape[1:]) for held in (self.keys, self.values)))
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
        """As `select`, of the caches of all layers."""
        return [each.select(rows, length, shortest) for each in caches]

    def join(self, other: "KeyValueCache") -> "KeyValueCache":
        """The rows of both, with room for the longer of the two."""
        return type(self)(_join(self.keys, other.keys, 2), _join(self.values, other.values, 2))


class IncrementalState(ABC):
    """Rows that are written one position at a time."""

    positions: Int[Tensor, " B"]
    longest: int

    @property
    @abstractmethod
    def written(self) -> list[KeyValueCache]:
        """The cache of each layer that every step writes to."""

    @abstractmethod
    def with_written(self, caches: list[KeyValueCache]) -> "IncrementalState":
        """The same with others in place of those of `written`."""

    @abstractmethod
    def tensors(self) -> list[Tensor]:
        """All that a step reads; caches only once something is written. Their order depends on the model alone."""

    def reorder_cache(self, rows: Int[Tensor, " B"]) -> "IncrementalState":
        """As `select`, where each row takes the place of one of the same sentence and at the same position.

        Nothing is read on the host, so that a GPU can go on.
        """
        caches = self.written
        return self.with_written(type(caches[0]).reorder_cache(caches, rows, self.longest))

    def resized(self, positions: int) -> "IncrementalState":
        """The same with room for so many positions in all."""
        return self.with_written([cache.resized(positions) for cache in self.written])

    @property
    def self_mask(self) -> Bool[Tensor, "B 1 1 T"]:
        """Each row may attend to its own positions up to the one being written."""
        return reachable(self.positions, self.longest)

    def advance(self) -> None:
        """Moves every row one position on."""
        self.positions = self.positions + 1
        self.longest += 1


@dataclass
class CausalCache(IncrementalState):
    """The state of a search with a model that is a decoder alone.

    Attributes:
        layers: one cache a layer, of the prompt and of what was written.
        positions: position the next token of each row will stand at.
        longest: the largest of `positions`, known without reading the tensor.
    """

    layers: list[KeyValueCache]
    positions: Int[Tensor, " B"]
    longest: int = 0

    @property
    def written(self) -> list[KeyValueCache]:
        """As in `IncrementalState`."""
        return self.layers

    def with_written(self, caches: list[KeyValueCache]) -> "CausalCache":
        """As in `IncrementalState`."""
        return replace(self, layers=caches)

    def tensors(self) -> list[Tensor]:
        """As in `IncrementalState`."""
        return [*(_of(self.layers) if self.longest else []), self.positions]

    def make_room(self) -> None:
        """Makes room for one more position."""
        if self.longest == self.layers[0].keys.size(2):
            self.layers = [layer.grow(_more_than(self.longest)) for layer in self.layers]

    def select(self, rows: Int[Tensor, " R"]) -> "CausalCache":
        """The given rows, in the given order; a row may appear more than once. This state is not to be used again."""
        positions = self.positions[rows]
        shortest, longest = _extremes(positions)
        layers = type(self.layers[0]).selected(self.layers, rows, self.longest, shortest)
        return type(self)(layers, positions, longest)

    def join(self, other: "CausalCache") -> "CausalCache":
        """The rows of both, which may stand at different positions."""
        layers = [ours.join(theirs) for ours, theirs in zip(self.layers, other.layers, strict=True)]
        return type(self)(layers, torch.cat([self.positions, other.positions]), max(self.longest, other.longest))


def reachable(positions: Int[Tensor, " B"], longest: int) -> Bool[Tensor, "B 1 1 {longest}+1"]:
    """Each row may attend to 0 .. its position, of the first `longest` + 1."""
    return (torch.arange(longest + 1, device=positions.device) <= positions[:, None])[:, None, None, :]


@dataclass
class LayerCache:
    """The two caches of one decoder layer: over the target so far, and over the source."""

    self_attention: KeyValueCache
    cross_attention: KeyValueCache


@dataclass
class DecoderCache(IncrementalState):
    """The state of a search over rows (hypotheses) of sentences.

    The source side (cross-attention keys and values, `src_mask`) is held once a sentence: its `width` rows stand side
    by side and look at it together, as positions of one target do.

    Attributes:
        layers: one cache a decoder layer.
        src_mask: padding mask of the sentences.
        positions: position the next token of each row will stand at.
        longest: the largest of `positions`, known without reading the tensor.
        width: rows of each sentence.
    """

    layers: list[LayerCache]
    src_mask: Bool[Tensor, "N 1 1 S"]
    positions: Int[Tensor, " B"]
    longest: int = 0
    width: int = 1

    @property
    def written(self) -> list[KeyValueCache]:
        """As in `IncrementalState`."""
        return [layer.self_attention for layer in self.layers]

    def with_written(self, caches: list[KeyValueCache]) -> "DecoderCache":
        """As in `IncrementalState`."""
        pairs = zip(caches, self.layers, strict=True)
        return replace(self, layers=[LayerCache(cache, layer.cross_attention) for cache, layer in pairs])

    def tensors(self) -> list[Tensor]:
        """As in `IncrementalState`."""
        sources = [layer.cross_attention for layer in self.layers]
        written = _of(self.written) if self.longest else []
        return [*written, *_of(sources), self.src_mask, self.positions]

    def make_room(self) -> None:
        """Makes room for one more position."""
        if self.longest == self.layers[0].self_attention.keys.size(2):
            for layer in self.layers:
                layer.self_attention = layer.self_attention.grow(_more_than(self.longest))

    def select(self, rows: Int[Tensor, " R"]) -> "DecoderCache":
        """The given rows, in the given order; sentences without a row are dropped. This state is not to be used again.

        Rows of the same sentence that do not stand side by side, or in unequal numbers, get the source side each.
        """
        sentence = (rows // self.width).tolist()
        width = len(sentence) // len(dict.fromkeys(sentence)) if sentence else 1
        sentences = sentence[::width]
        if [each for each in sentences for _ in range(width)] != sentence:
            sentences, width = sentence, 1
        all_stay = sentences == list(range(len(self.src_mask)))
        sources = torch.tensor(sentences, dtype=torch.long, device=rows.device)
        positions = self.positions[rows]
        shortest, longest = _extremes(positions)
        targets = type(self.written[0]).selected(self.written, rows, self.longest, shortest)
        read = [layer.cross_attention for layer in self.layers]
        if not all_stay:
            read = [source.select(sources, self.src_mask.size(-1)) for source in read]
        return type(self)(
            [LayerCache(target, source) for target, source in zip(targets, read, strict=True)],
            src_mask=self.src_mask if all_stay else self.src_mask[sources],
            positions=positions,
            longest=longest,
            width=width,
        )

    def join(self, other: "DecoderCache") -> "DecoderCache":
        """The rows of both, and their sentences; rows may stand at different positions.

        Raises:
            ValueError: the sentences of both do not have equally many rows.
        """
        if self.width != other.width:
            raise ValueError(f"{self.width} and {other.width} rows a sentence do not join; search with one width")
        layers = [
            LayerCache(
                ours.self_attention.join(theirs.self_attention), ours.cross_attention.join(theirs.cross_attention)
            )
            for ours, theirs in zip(self.layers, other.layers, strict=True)
        ]
        return type(self)(
            layers,
            src_mask=_join(self.src_mask, other.src_mask, 3),
            positions=torch.cat([self.positions, other.positions]),
            longest=max(self.longest, other.longest),
            width=self.width,
        )


def _of(caches: list[KeyValueCache]) -> list[Tensor]:
    return [x for cache in caches for x in cache.tensors()]


def _more_than(positions: int) -> int:
    """Positions to add to a full cache: a share of it, so that a long text is copied few times, but not too many."""
    return min(max(INITIAL_CAPACITY, positions // 2), MOST_ROOM)


def _extremes(positions: Int[Tensor, " B"]) -> tuple[int, int]:
    """The least and the largest; 0 where there are none."""
    if not len(positions):
        return 0, 0
    least, largest = torch.stack(positions.aminmax()).tolist()  # both at once: on a GPU, that waits
    return least, largest


def _join(ours: Tensor, theirs: Tensor, axis: int) -> Tensor:
    """One below the other, the shorter filled up along `axis` with zeros (or False)."""
    length = max(ours.size(axis), theirs.size(axis))

    def filled(x: Tensor) -> Tensor:
        return F.pad(x, (0, 0) * (x.dim() - 1 - axis) + (0, length - x.size(axis)))

    return torch.cat([filled(ours), filled(theirs)])
