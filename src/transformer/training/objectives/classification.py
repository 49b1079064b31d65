"""Objectives of encoders of whole texts or images: classification and contrastive sentence embeddings."""

from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from transformer.data.batch import ImageBatch, NeighbourBatch, TextBatch
from transformer.interfaces import EncoderModel, LossSum
from transformer.training.activation_checkpointing import checkpoint_layers
from transformer.training.planning.flops import patch_flops, stack_flops


class ClassificationObjective(nn.Module):
    """Cross-entropy over the labels of texts or images.

    Args:
        model: Encoder with a classification head.
        label_smoothing: Probability spread over all labels.
        augmentation: Module that augments images in training.
        activation_checkpointing: Whether layers are recomputed in the backward pass, see `checkpoint_layers`.

    Source: Devlin et al. 2019, "BERT", Sec. 4.1 (texts); Dosovitskiy et al. 2021, Sec. 3.1 (images).
    """

    def __init__(
        self,
        model: nn.Module,
        label_smoothing: float,
        augmentation: nn.Module | None = None,
        *,
        activation_checkpointing: bool = False,
    ) -> None:
        super().__init__()
        self.model = model
        self.label_smoothing = label_smoothing
        self.augmentation = augmentation
        self.activation_checkpointing = activation_checkpointing
        if activation_checkpointing:
            checkpoint_layers(model)

    def forward(self, batch: TextBatch | ImageBatch) -> LossSum:
        """Returns the summed loss; metrics also count the correct labels."""
        logits = self.logits(batch)
        loss_sum = F.cross_entropy(logits, batch.labels, reduction="sum", label_smoothing=self.label_smoothing)
        with torch.no_grad():
            nll_sum = F.cross_entropy(logits, batch.labels, reduction="sum")
            n_correct = (logits.argmax(dim=1) == batch.labels).sum().float()
        return LossSum(loss_sum, batch.scored_tokens, {"nll_sum": nll_sum, "right": n_correct})

    def logits(self, batch: TextBatch | ImageBatch) -> Float[Tensor, "B labels"]:
        """Computes the logits of the labels, in float32."""
        model = cast(EncoderModel, self.model)
        if isinstance(batch, TextBatch):
            return model.label_logits(batch.tokens, batch.mask).float()
        images = self.augmentation(batch.images) if self.augmentation and self.training else batch.images
        return model.label_logits(images).float()

    def flops(self, lengths: NDArray[np.int32]) -> int:
        """Implements `SupportsFlopCount.flops`, without the heads, which are applied once per text or image."""
        rows, length = len(lengths), int(lengths.max())
        layers = stack_flops(
            self.model.get_submodule("encoder"), rows, length,
            n_queries=cast(EncoderModel, self.model).label_positions, recomputed=self.activation_checkpointing,
        )  # fmt: skip
        return layers + patch_flops(self.model, rows * (length - 1))


class ImageAugmentation(nn.Module):
    """Augments images by random flips, shifts and erased rectangles, drawn for each image.

    Args:
        flip: Whether half of the images are mirrored, left to right.
        shift: Largest shift in pixels; pixels at the edge are repeated.
        erase: Probability of erasing a rectangle of at most a quarter of the image.

    Source: flips and shifts as in Krizhevsky et al. 2012, Sec. 4.1; Zhong et al. 2020, "Random Erasing Data
    Augmentation".
    """

    def __init__(self, *, flip: bool, shift: int, erase: float) -> None:
        super().__init__()
        self.flip, self.shift, self.erase = flip, shift, erase

    def forward(self, images: Float[Tensor, "B C height width"]) -> Float[Tensor, "B C height width"]:
        """Returns the augmented images."""
        rows, _, height, width = images.shape
        if self.flip:
            images = torch.where(
                (torch.rand(rows) < 0.5).to(images.device)[:, None, None, None], images.flip(3), images
            )
        if self.shift:
            shifts = torch.randint(-self.shift, self.shift + 1, (2, rows)).to(images.device)
            down, right = (torch.arange(size, device=images.device) for size in (height, width))
            down, right = (
                (down + shifts[0, :, None]).clamp(0, height - 1),
                (right + shifts[1, :, None]).clamp(0, width - 1),
            )
            index = torch.arange(rows, device=images.device)[:, None, None]
            images = images.permute(0, 2, 3, 1)[index, down[:, :, None], right[:, None, :]].permute(0, 3, 1, 2)
        if self.erase:
            images = images.masked_fill(self._rectangles(rows, height, width).to(images.device), 0.0)
        return images

    def _rectangles(self, rows: int, height: int, width: int) -> Tensor:
        """Returns a mask that is True inside the erased rectangle of each image, of up to half of each side."""
        sides: list[Tensor] = []
        for size in (height, width):
            length = 1 + (torch.rand(rows) * (size // 2)).long()
            start = (torch.rand(rows) * (size - length + 1)).long()
            position = torch.arange(size)
            sides.append((position >= start[:, None]) & (position < (start + length)[:, None]))
        erased = torch.rand(rows) < self.erase
        return (sides[0][:, :, None] & sides[1][:, None, :] & erased[:, None, None])[:, None]


class ContrastiveObjective(nn.Module):
    """Contrastive loss with in-batch negatives: each text must be matched to its neighbour, in both directions.

    Args:
        model: Encoder that returns embeddings of length 1.
        scale: Factor of the cosines before the softmax.
        activation_checkpointing: Whether layers are recomputed in the backward pass, see `checkpoint_layers`.

    Source: Henderson et al. 2017, "Efficient Natural Language Response Suggestion for Smart Reply", Sec. 4.4, on the
    cosines of Reimers and Gurevych 2019, "Sentence-BERT".
    """

    def __init__(self, model: nn.Module, scale: float = 20.0, *, activation_checkpointing: bool = False) -> None:
        super().__init__()
        self.model = model
        self.scale = scale
        self.activation_checkpointing = activation_checkpointing
        if activation_checkpointing:
            checkpoint_layers(model)

    def forward(self, batch: NeighbourBatch) -> LossSum:
        """Returns the summed loss; metrics also count the neighbours that rank first."""
        model: Any = self.model
        first, second = (
            model.embeddings(model.encode(tokens, mask), mask).float()
            for tokens, mask in ((batch.first, batch.first_mask), (batch.second, batch.second_mask))
        )
        cosines = self.scale * first @ second.T
        labels = torch.arange(len(first), device=cosines.device)
        directions = [F.cross_entropy(logits, labels, reduction="sum") for logits in (cosines, cosines.T)]
        n_correct = (cosines.argmax(dim=1) == labels).sum().float()
        loss_sum = (directions[0] + directions[1]) / 2
        return LossSum(loss_sum, batch.scored_tokens, {"nll_sum": loss_sum.detach(), "right": n_correct})

    def flops(self, lengths: NDArray[np.int32]) -> int:
        """Implements `SupportsFlopCount.flops`, without the cosines."""
        encoder, recomputed = self.model.get_submodule("encoder"), self.activation_checkpointing
        return sum(stack_flops(encoder, len(lengths), int(side), recomputed=recomputed) for side in lengths.max(axis=0))
