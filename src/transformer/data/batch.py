"""Micro-batches of every task, as padded tensors."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True)
class PairBatch:
    """Sentence pairs, padded: the batch of every encoder-decoder model.

    Attributes:
        src: source tokens, each row ending in EOS.
        tgt: decoder input: BOS, then the target.
        labels: what the decoder should say: the target, then EOS.
        scored_tokens: number of labels that are not padding.
    """

    src: Int[Tensor, "B S"]
    tgt: Int[Tensor, "B T"]
    labels: Int[Tensor, "B T"]
    scored_tokens: int

    def to(self, device: torch.device) -> "PairBatch":
        """The same batch on another device."""
        src, tgt, labels = (tensor.to(device) for tensor in (self.src, self.tgt, self.labels))
        return PairBatch(src, tgt, labels, self.scored_tokens)


@dataclass(frozen=True)
class WindowBatch:
    """Windows of running text, all of one length.

    Attributes:
        tokens: of the windows.
        scored_tokens: number of tokens that the loss counts.
    """

    tokens: Int[Tensor, "B T"]
    scored_tokens: int

    def to(self, device: torch.device) -> "WindowBatch":
        """The same batch on another device."""
        return WindowBatch(self.tokens.to(device), self.scored_tokens)


@dataclass(frozen=True)
class TextBatch:
    """Texts with labels, framed and padded.

    Attributes:
        tokens: of the texts.
        mask: which of them are no padding.
        labels: one a text.
    """

    tokens: Int[Tensor, "B S"]
    mask: Bool[Tensor, "B 1 1 S"]
    labels: Int[Tensor, " B"]

    @property
    def scored_tokens(self) -> int:
        """Number of texts."""
        return len(self.labels)

    def to(self, device: torch.device) -> "TextBatch":
        """The same batch on another device."""
        return TextBatch(self.tokens.to(device), self.mask.to(device), self.labels.to(device))


@dataclass(frozen=True)
class NeighbourBatch:
    """Pairs of texts that mean the same; text i of one side goes with text i of the other.

    Attributes:
        first: tokens of one side.
        first_mask: which of them are no padding.
        second: tokens of the other.
        second_mask: which of them are no padding.
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
        """The same batch on another device."""
        return NeighbourBatch(*(x.to(device) for x in (self.first, self.first_mask, self.second, self.second_mask)))


@dataclass(frozen=True)
class ImageBatch:
    """Images with labels.

    Attributes:
        images: normalized pixels.
        labels: one an image.
    """

    images: Float[Tensor, "B C height width"]
    labels: Int[Tensor, " B"]

    @property
    def scored_tokens(self) -> int:
        """Number of images."""
        return len(self.labels)

    def to(self, device: torch.device) -> "ImageBatch":
        """The same batch on another device."""
        return ImageBatch(self.images.to(device), self.labels.to(device))
