"""The micro-batch of each task: padded tensors."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

T = TypeVar("T")


class TensorBatch:
    """Base class of micro-batches: operations on all of their tensors."""

    def to(self: T, device: torch.device) -> T:
        """Returns the batch on another device; from pinned memory, a GPU copies it while the CPU continues."""
        return _convert(self, lambda tensor: tensor.to(device, non_blocking=device.type != "cpu"))

    def pin_memory(self: T) -> T:
        """Returns the batch in page-locked memory."""
        return _convert(self, Tensor.pin_memory)


def _convert(batch: T, convert: Callable[[Tensor], Tensor]) -> T:
    fields = {name: convert(field) for name, field in vars(batch).items() if isinstance(field, Tensor)}
    return replace(cast(Any, batch), **fields)


@dataclass(frozen=True)
class PairBatch(TensorBatch):
    """Padded sentence pairs: the batch of every encoder-decoder model.

    Attributes:
        src: Source tokens; each row ends in EOS.
        tgt: Decoder input: BOS, then the target.
        labels: Expected decoder output: the target, then EOS.
        scored_tokens: Number of labels that are not padding.
    """

    src: Int[Tensor, "B S"]
    tgt: Int[Tensor, "B T"]
    labels: Int[Tensor, "B T"]
    scored_tokens: int


@dataclass(frozen=True)
class WindowBatch(TensorBatch):
    """Windows of running text, all of the same length.

    Attributes:
        tokens: Token ids of each window.
        scored_tokens: Number of tokens that the loss counts.
    """

    tokens: Int[Tensor, "B T"]
    scored_tokens: int


@dataclass(frozen=True)
class TextBatch(TensorBatch):
    """Labelled texts with special tokens, padded.

    Attributes:
        tokens: Token ids of each text.
        mask: True where a token is not padding.
        labels: Label id of each text.
    """

    tokens: Int[Tensor, "B S"]
    mask: Bool[Tensor, "B 1 1 S"]
    labels: Int[Tensor, " B"]

    @property
    def scored_tokens(self) -> int:
        """Number of texts."""
        return len(self.labels)


@dataclass(frozen=True)
class NeighbourBatch(TensorBatch):
    """Positive pairs: texts with the same meaning; row i of one side belongs to row i of the other.

    Attributes:
        first: Token ids of the first side.
        first_mask: True where a token of the first side is not padding.
        second: Token ids of the second side.
        second_mask: True where a token of the second side is not padding.
    """

    first: Int[Tensor, "B S"]
    first_mask: Bool[Tensor, "B 1 1 S"]
    second: Int[Tensor, "B T"]
    second_mask: Bool[Tensor, "B 1 1 T"]

    @property
    def scored_tokens(self) -> int:
        """Number of pairs."""
        return len(self.first)


@dataclass(frozen=True)
class ImageBatch(TensorBatch):
    """Labelled images.

    Attributes:
        images: Normalized pixels.
        labels: Label id of each image.
    """

    images: Float[Tensor, "B C height width"]
    labels: Int[Tensor, " B"]

    @property
    def scored_tokens(self) -> int:
        """Number of images."""
        return len(self.labels)
