"""Protocols through which training and decoding use models and data, without knowing their classes."""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class LossSum:
    """The contribution of one micro-batch to the loss.

    Attributes:
        loss_sum: Loss summed over the scored tokens, with gradient.
        count: Number of scored tokens.
        metrics: Further sums over the scored tokens, without gradient, e.g. the unsmoothed loss.
    """

    loss_sum: Float[Tensor, ""]
    count: int
    metrics: dict[str, Float[Tensor, ""]]


@runtime_checkable
class Batch(Protocol):
    """A micro-batch: padded tensors and the number of scored tokens."""

    @property
    def scored_tokens(self) -> int:
        """The number of tokens that the loss counts, known without the model."""
        ...

    def to(self, device: torch.device) -> "Batch":
        """Returns the same batch on another device."""
        ...

    def pin_memory(self) -> "Batch":
        """Returns the same batch in page-locked memory, from which a GPU copies while the CPU continues."""
        ...


@dataclass(frozen=True)
class ExampleGroup:
    """Consecutive examples of a dataset that are seen equally often.

    Attributes:
        examples: Number of examples.
        weight: Number of times per epoch that each example is seen; a fraction rotates through
            them from epoch to epoch.
    """

    examples: int
    weight: float = 1.0


@dataclass(frozen=True)
class Stage:
    """A part of a training run with a mixture of its own.

    Attributes:
        name: Name of the stage.
        mix: Groups of the dataset in order, with their weights in this stage.
        share: Share of the run; None for the last stage, which takes the rest, and for one of `steps`.
        steps: Number of updates; None for a stage of `share`.
    """

    name: str
    mix: tuple[ExampleGroup, ...]
    share: float | None = None
    steps: int | None = None


@runtime_checkable
class Dataset(Protocol):
    """A numbered set of examples to train on: sentence pairs, windows of text, images."""

    @property
    def lengths(self) -> NDArray[np.int32]:
        """The number of tokens of each example, one column per side: shape (examples, sides)."""
        ...

    @property
    def mix(self) -> tuple[ExampleGroup, ...]:
        """The groups of the dataset in order, with their weights; if empty, each example is seen once per epoch."""
        ...

    def fetch(self, ids: NDArray[np.integer]) -> Batch:
        """Returns the batch of the given examples, in the given order."""
        ...


@runtime_checkable
class SupportsEpochs(Protocol):
    """A dataset whose examples and their lengths differ between epochs; itself, it is as in the first epoch."""

    def in_epoch(self, epoch: int) -> Dataset:
        """Returns the dataset as it is in an epoch, counted from 0."""
        ...


@runtime_checkable
class SupportsFlopCount(Protocol):
    """An objective that knows its computational cost."""

    def flops(self, lengths: NDArray[np.int32]) -> int:
        """Returns the floating-point operations of a step over examples of some lengths: shape (examples, sides)."""
        ...


@runtime_checkable
class State(Protocol):
    """The incremental state of a model during a search, such as its key-value caches; one row per hypothesis."""

    def select(self, rows: Int[Tensor, " R"]) -> "State":
        """Returns the state of the given rows, in the given order; rows may repeat or be left out."""
        ...


@runtime_checkable
class GenerativeModel(Protocol):
    """A model that generates one token after another, as the search needs it."""

    def begin(self, src: Int[Tensor, "B S"], src_mask: Bool[Tensor, "B 1 1 S"], limit: int) -> State:
        """Encodes the sources and returns the state of a search of up to `limit` tokens."""
        ...

    def step(self, tokens: Int[Tensor, " B"], state: Any) -> tuple[Float[Tensor, "B V"], State]:
        """Appends one token per row; returns the logits of the next token and the next state.

        The state is one that `begin` of the same model returned, or `step` after it.
        """
        ...


@runtime_checkable
class SupportsDecode(Protocol):
    """A model that scores the next token at every position of a text."""

    def decode(self, tokens: Int[Tensor, "B T"], /) -> Float[Tensor, "B T D"]:
        """Returns the hidden states at every position, before the projection to the vocabulary."""
        ...


@runtime_checkable
class EncoderModel(Protocol):
    """A model that encodes a text or an image as a whole."""

    @property
    def label_positions(self) -> int | None:
        """The number of leading positions that the classification head reads; None means all."""
        ...

    def encode(self, x: Tensor, /) -> Float[Tensor, "B S D"]:
        """Returns a vector at every position of texts without padding, or of images."""
        ...

    def label_logits(self, x: Tensor, mask: Bool[Tensor, "B 1 1 S"] | None = None, /) -> Float[Tensor, "B labels"]:
        """Returns one logit per label; positions that the labels do not depend on are not computed.

        The mask is False at the padding of texts.
        """
        ...
