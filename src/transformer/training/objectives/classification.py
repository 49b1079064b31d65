"""What models learn that read a text or an image as a whole: its label, or which text means the same."""

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
    """Cross-entropy of the labels, of texts or of images.

    Args:
        model: an encoder with a head over labels.
        label_smoothing: probability spread over all labels.
        changes: what is changed in images in training.
        activation_checkpointing: see `TranslationObjective`.

    Source: Devlin et al. 2019, "BERT", Sec. 4.1 (texts); Dosovitskiy et al. 2021, Sec. 3.1 (images).
    """

    def __init__(
        self,
        model: nn.Module,
        label_smoothing: float,
        changes: nn.Module | None = None,
        *,
        activation_checkpointing: bool = False,
    ) -> None:
        super().__init__()
        self.model = model
        self.label_smoothing = label_smoothing
        self.changes = changes
        self.activation_checkpointing = activation_checkpointing
        if activation_checkpointing:
            checkpoint_layers(model)

    def forward(self, batch: TextBatch | ImageBatch) -> LossSum:
        """The summed loss; metrics also count the labels that are right."""
        logits = self.logits(batch)
        loss_sum = F.cross_entropy(logits, batch.labels, reduction="sum", label_smoothing=self.label_smoothing)
        with torch.no_grad():
            nll_sum = F.cross_entropy(logits, batch.labels, reduction="sum")
            right = (logits.argmax(dim=1) == batch.labels).sum().float()
        return LossSum(loss_sum, batch.scored_tokens, {"nll_sum": nll_sum, "right": right})

    def logits(self, batch: TextBatch | ImageBatch) -> Float[Tensor, "B labels"]:
        """A logit a label, in float32."""
        model = cast(EncoderModel, self.model)
        if isinstance(batch, TextBatch):
            return model.label_logits(batch.tokens, batch.mask).float()
        images = self.changes(batch.images) if self.changes and self.training else batch.images
        return model.label_logits(images).float()

    def operations(self, lengths: NDArray[np.int32]) -> int:
        """As of `SupportsFlopCount`, without the maps that read a text or an image once."""
        rows, length = len(lengths), int(lengths.max())
        layers = stack_flops(
            self.model.get_submodule("encoder"), rows, length,
            first=cast(EncoderModel, self.model).labels_read, twice=self.activation_checkpointing,
        )  # fmt: skip
        return layers + patch_flops(self.model, rows * (length - 1))


class ImageAugmentation(nn.Module):
    """Mirrors, moves and partly blanks images, each in its own way.

    Args:
        flip: mirror half of them, left to right.
        shift: move them by up to so many pixels, what comes in being the pixels at the edge.
        erase: probability of blanking a rectangle of a quarter of an image or less.

    Source: flips and shifts as in Krizhevsky et al. 2012, Sec. 4.1; Zhong et al. 2020, "Random Erasing Data
    Augmentation".
    """

    def __init__(self, *, flip: bool, shift: int, erase: float) -> None:
        super().__init__()
        self.flip, self.shift, self.erase = flip, shift, erase

    def forward(self, images: Float[Tensor, "B C height width"]) -> Float[Tensor, "B C height width"]:
        """Returns changed images."""
        rows, _, height, width = images.shape
        if self.flip:
            images = torch.where(
                (torch.rand(rows) < 0.5).to(images.device)[:, None, None, None], images.flip(3), images
            )
        if self.shift:
            moves = torch.randint(-self.shift, self.shift + 1, (2, rows)).to(images.device)
            down, right = (torch.arange(size, device=images.device) for size in (height, width))
            down, right = (
                (down + moves[0, :, None]).clamp(0, height - 1),
                (right + moves[1, :, None]).clamp(0, width - 1),
            )
            index = torch.arange(rows, device=images.device)[:, None, None]
            images = images.permute(0, 2, 3, 1)[index, down[:, :, None], right[:, None, :]].permute(0, 3, 1, 2)
        if self.erase:
            images = images.masked_fill(self._rectangles(rows, height, width).to(images.device), 0.0)
        return images

    def _rectangles(self, rows: int, height: int, width: int) -> Tensor:
        """True inside each image's rectangle, of up to half of each side."""
        sides: list[Tensor] = []
        for size in (height, width):
            length = 1 + (torch.rand(rows) * (size // 2)).long()
            start = (torch.rand(rows) * (size - length + 1)).long()
            place = torch.arange(size)
            sides.append((place >= start[:, None]) & (place < (start + length)[:, None]))
        erased = torch.rand(rows) < self.erase
        return (sides[0][:, :, None] & sides[1][:, None, :] & erased[:, None, None])[:, None]


class ContrastiveObjective(nn.Module):
    """Each text's neighbour is to be told from those of the other texts of the batch, in both directions.

    Args:
        model: an encoder that gives embeddings of length 1.
        scale: what cosines are multiplied by before the softmax.
        activation_checkpointing: see `TranslationObjective`.

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
        """The summed loss; metrics also count the neighbours that were found."""
        model: Any = self.model
        first, second = (
            model.embeddings(model.encode(tokens, mask), mask).float()
            for tokens, mask in ((batch.first, batch.first_mask), (batch.second, batch.second_mask))
        )
        cosines = self.scale * first @ second.T
        wanted = torch.arange(len(first), device=cosines.device)
        both = [F.cross_entropy(each, wanted, reduction="sum") for each in (cosines, cosines.T)]
        right = (cosines.argmax(dim=1) == wanted).sum().float()
        loss_sum = (both[0] + both[1]) / 2
        return LossSum(loss_sum, batch.scored_tokens, {"nll_sum": loss_sum.detach(), "right": right})

    def operations(self, lengths: NDArray[np.int32]) -> int:
        """As of `SupportsFlopCount`, without the cosines."""
        encoder, twice = self.model.get_submodule("encoder"), self.activation_checkpointing
        return sum(stack_flops(encoder, len(lengths), int(side), twice=twice) for side in lengths.max(axis=0))
