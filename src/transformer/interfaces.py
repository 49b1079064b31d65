"""What the rooms below know of a model: just enough to train it and to search with it."""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class LossSum:
    """What one micro-batch contributes to the loss.

    Attributes:
        loss_sum: loss summed over the scored tokens, with gradient.
        count: number of scored tokens.
        metrics: further sums over the scored tokens, without gradient, e.g. the unsmoothed loss.
    """

    loss_sum: Float[Tensor, ""]
    count: int
    metrics: dict[str, Float[Tensor, ""]]


@runtime_checkable
class Batch(Protocol):
    """A micro-batch: padded tensors and how many tokens of it are scored."""

    @property
    def scored_tokens(self) -> int:
        """Number of tokens that the loss counts, known without the model."""
        ...

    def to(self, device: torch.device) -> "Batch":
        """The same batch on another device."""
        ...


@dataclass(frozen=True)
class DatasetMix:
    """Consecutive examples of a source that are seen equally often.

    Attributes:
        examples: how many.
        weight: how many times an epoch each is seen; a fraction takes them in turn.
    """

    examples: int
    weight: float = 1.0


@runtime_checkable
class Dataset(Protocol):
    """A numbered set of examples to train on: sentence pairs, windows of text, images."""

    @property
    def lengths(self) -> NDArray[np.int32]:
        """Tokens of each example, one column a side: shape (examples, sides)."""
        ...

    @property
    def mix(self) -> tuple[DatasetMix, ...]:
        """Which examples are seen how often, in the order of their numbers; none stands for each once an epoch."""
        ...

    def fetch(self, ids: NDArray[np.integer[Any]]) -> Any:
        """The `Batch` of the given examples, in the given order."""
        ...


@runtime_checkable
class Objective(Protocol):
    """A model together with its loss; what is compiled, and wrapped for distribution."""

    def __call__(self, batch: Any) -> LossSum:
        """The summed loss of a batch."""
        ...


@runtime_checkable
class CountsOperations(Protocol):
    """An objective that knows what it costs."""

    def operations(self, lengths: NDArray[np.int32]) -> int:
        """Floating-point operations of a step over examples of these lengths: shape (examples, sides)."""
        ...


@runtime_checkable
class State(Protocol):
    """Where a search stands, one row a hypothesis."""

    def select(self, rows: Int[Tensor, " R"]) -> "State":
        """The state of the given rows, in the given order; rows may repeat or be left out."""
        ...

    def join(self, other: Any) -> "State":
        """The rows of this state, then those of another; they may stand at different positions."""
        ...


@runtime_checkable
class GraphCapturableState(State, Protocol):
    """A state whose steps need nothing of the host: a GPU can make several of them on its own.

    Attributes:
        longest: positions that are taken of the longest row.
    """

    longest: int

    def tensors(self) -> list[Tensor]:
        """All that a step reads; caches only once something is written. Their order depends on the model alone."""
        ...

    def reorder_cache(self, rows: Int[Tensor, " R"]) -> "GraphCapturableState":
        """As `select`, where each row takes the place of one of the same sentence and at the same position."""
        ...

    def resized(self, positions: int) -> "GraphCapturableState":
        """The same with room for so many positions in all."""
        ...


@runtime_checkable
class GenerativeModel(Protocol):
    """A model that writes one token after another."""

    def begin(self, src: Int[Tensor, "B S"], src_mask: Bool[Tensor, "B 1 1 S"], limit: int) -> Any:
        """Reads the sources and returns the `State` of a search of up to `limit` tokens."""
        ...

    def step(self, tokens: Int[Tensor, " B"], state: Any) -> tuple[Float[Tensor, "B V"], Any]:
        """Appends one token a row; returns the logits of the next and the `State` to go on with."""
        ...


@runtime_checkable
class WritesText(Protocol):
    """A model that scores the next token at every position of a text."""

    def decode(self, tokens: Int[Tensor, "B T"], mask: Any = None, positions: Any = None) -> Float[Tensor, "B T D"]:
        """What is projected to the vocabulary, at every position."""
        ...


@runtime_checkable
class EncoderModel(Protocol):
    """A model that reads a text, or an image, as a whole."""

    @property
    def labels_read(self) -> int | None:
        """How many positions, the first ones, the labels depend on; None for all."""
        ...

    def encode(self, x: Any, mask: Any = None) -> Float[Tensor, "B S D"]:
        """A vector at every position; the mask says which positions of a text are no padding."""
        ...

    def label_logits(self, x: Any, mask: Any = None) -> Float[Tensor, "B labels"]:
        """A logit a label; nothing is computed at positions that they do not depend on."""
        ...
