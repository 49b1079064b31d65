"""Operations on the incremental states of models for joining batches and for CUDA graphs."""

from collections.abc import Sequence
from dataclasses import fields, replace
from functools import singledispatch
from typing import Protocol, TypeVar, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor

from transformer.blocks.cache import CausalCache, DecoderCache, KeyValueCache, LayerCache
from transformer.interfaces import State

StateT = TypeVar("StateT", bound=CausalCache | DecoderCache)
Joinable = TypeVar("Joinable", bound=State)


@runtime_checkable
class SupportsReordering(Protocol):
    """A cache whose rows are reordered without copying keys or values, by a table that all layers share."""

    def reorder_cache(
        self, caches: Sequence[KeyValueCache], rows: Int[Tensor, " B"], length: int
    ) -> list[KeyValueCache]:
        """Reorders the rows of the caches of all layers, of which it is the first and which hold `length` positions."""
        ...


@runtime_checkable
class JoinableState(State, Protocol):
    """A state that knows how its rows are joined with those of another one."""

    def join(self: Joinable, other: Joinable) -> Joinable:
        """Implements `join_states`."""
        ...


@singledispatch
def join_states(state: JoinableState, other: JoinableState) -> State:
    """Returns the rows of both states, which may be at different positions.

    States are `JoinableState`, or of one of the two classes of `blocks.cache`.

    Raises:
        ValueError: The two states have different numbers of rows per sentence.
    """
    return state.join(other)


@join_states.register
def _(state: CausalCache, other: CausalCache) -> CausalCache:
    layers = [_join_caches(cache, joined) for cache, joined in zip(state.layers, other.layers, strict=True)]
    return CausalCache(layers, torch.cat([state.positions, other.positions]), max(state.longest, other.longest))


@join_states.register
def _(state: DecoderCache, other: DecoderCache) -> DecoderCache:
    if state.width != other.width:
        raise ValueError(
            f"width={other.width} differs from the {state.width} rows per sentence of this state; search with one "
            "beam width"
        )
    layers = [
        LayerCache(
            _join_caches(layer.self_attention, joined.self_attention),
            _join_caches(layer.cross_attention, joined.cross_attention),
        )
        for layer, joined in zip(state.layers, other.layers, strict=True)
    ]
    return DecoderCache(
        layers,
        src_mask=_concatenate(state.src_mask, other.src_mask, 3),
        positions=torch.cat([state.positions, other.positions]),
        longest=max(state.longest, other.longest),
        width=state.width,
    )


def state_tensors(state: CausalCache | DecoderCache) -> list[Tensor]:
    """Returns all tensors that a step reads, in an order that depends on the model alone.

    Self-attention caches are included only once a position has been written.
    """
    written = self_attention_caches(state) if state.longest else []
    tensors = [x for cache in written for x in _cache_tensors(cache)]
    if isinstance(state, DecoderCache):
        tensors += [x for layer in state.layers for x in _cache_tensors(layer.cross_attention)]
        tensors.append(state.src_mask)
    return [*tensors, state.positions]


def reorder_rows(state: StateT, rows: Int[Tensor, " B"]) -> StateT:
    """Reorders rows within their sentences, where all rows of a sentence are at the same position.

    Nothing is copied to the CPU, so that a GPU need not wait and a CUDA graph can capture the operation.
    """
    caches = self_attention_caches(state)
    if isinstance(caches[0], SupportsReordering):
        return with_self_attention_caches(state, caches[0].reorder_cache(caches, rows, state.longest))
    reordered = [type(cache)(*(x.index_select(0, rows) for x in _cache_tensors(cache))) for cache in caches]
    return with_self_attention_caches(state, reordered)


def resize_caches(state: StateT, positions: int) -> StateT:
    """Returns the state with a capacity of `positions`: views of the first ones, or grown in place."""
    resized: list[KeyValueCache] = []
    for cache in self_attention_caches(state):
        missing = positions - cache.keys.size(2)
        if missing > 0:
            cache.grow(missing)
        resized.append(cache.first(positions) if missing < 0 else cache)
    return with_self_attention_caches(state, resized)


def self_attention_caches(state: CausalCache | DecoderCache) -> list[KeyValueCache]:
    """Returns the self-attention cache of each layer, which every step writes to."""
    return state.layers if isinstance(state, CausalCache) else [layer.self_attention for layer in state.layers]


def with_self_attention_caches(state: StateT, caches: list[KeyValueCache]) -> StateT:
    """Returns the same state with other self-attention caches."""
    if isinstance(state, CausalCache):
        return replace(state, layers=caches)
    pairs = zip(caches, state.layers, strict=True)
    return replace(state, layers=[LayerCache(cache, layer.cross_attention) for cache, layer in pairs])


def _cache_tensors(cache: KeyValueCache) -> list[Tensor]:
    values = (getattr(cache, field.name) for field in fields(cache) if field.init)
    return [value for value in values if isinstance(value, Tensor)]


def _join_caches(cache: KeyValueCache, other: KeyValueCache) -> KeyValueCache:
    """Returns the rows of both caches, with the larger of the two capacities."""
    first, second = (x.first(x.keys.size(2)) for x in (cache, other))
    keys, values = _concatenate(first.keys, second.keys, 2), _concatenate(first.values, second.values, 2)
    return type(cache)(keys, values)


def _concatenate(x: Tensor, y: Tensor, axis: int) -> Tensor:
    """Concatenates the rows of two tensors, the shorter one padded along `axis` with zeros (or False)."""
    length = max(x.size(axis), y.size(axis))

    def pad(z: Tensor) -> Tensor:
        return F.pad(z, (0, 0) * (z.dim() - 1 - axis) + (0, length - z.size(axis)))

    return torch.cat([pad(x), pad(y)])
