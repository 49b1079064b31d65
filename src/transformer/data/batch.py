"""The micro-batch of each task: padded tensors."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True)
class PairBatch:
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

    def to(self, device: torch.device) -> "PairBatch":
        """Returns the batch on another device."""
        src, tgt, labels = (tensor.to(device) for tensor in (self.src, self.tgt, self.labels))
        return PairBatch(src, tgt, labels, self.scored_tokens)


@dataclass(frozen=True)
class WindowBatch:
    """Windows of running text, all of the same length.

    Attributes:
        tokens: Token ids of each window.
        scored_tokens: Number of tokens that the loss counts.
    """

    tokens: Int[Tensor, "B T"]
    scored_tokens: int

    def to(self, device: torch.device) -> "WindowBatch":
        """Returns the batch on another device."""
        return WindowBatch(self.tokens.to(device), self.scored_tokens)


@dataclass(frozen=True)
class TextBatch:
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

    def to(self, device: torch.device) -> "TextBatch":
        """Returns the batch on another device."""
        return TextBatch(self.tokens.to(device), self.mask.to(device), self.labels.to(device))


@dataclass(frozen=True)
class NeighbourBatch:
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

    def to(self, device: torch.device) -> "NeighbourBatch":
        """Returns the batch on another device."""
        return NeighbourBatch(*(x.to(device) for x in (self.first, self.first_mask, self.second, self.second_mask)))


@dataclass(frozen=True)
class ImageBatch:
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

    def to(self, device: torch.device) -> "ImageBatch":
        """Returns the batch on another device."""
        return ImageBatch(self.images.to(device), self.labels.to(device))
