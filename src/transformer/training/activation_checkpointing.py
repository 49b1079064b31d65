"""Less memory for more arithmetic: layers that are computed again in the backward pass."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from transformer.blocks import DecoderLayer, EncoderLayer
from transformer.training.products import CompiledProducts


def checkpoint_layers(model: nn.Module) -> None:
    """From now on every layer keeps its inputs alone for the backward pass, which computes the rest anew.

    Random numbers are drawn again as they were, so that gradients stay the same to the bit. Of the activations of L
    layers, L inputs and one layer's inside are in memory at a time; the layers' forward pass is done twice.

    Source: Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost", Sec. 4.
    """
    for module in model.modules():
        if isinstance(module, EncoderLayer | DecoderLayer):
            module.forward = partial(_forget, module.forward)  # pyright: ignore[reportAttributeAccessIssue]


def _forget(forward: Callable[..., Tensor], *inputs: Tensor | int | None) -> Tensor:
    if not torch.is_grad_enabled():
        return forward(*inputs)
    again = partial(_compute, forward)
    output: Tensor = checkpoint(again, *inputs, use_reentrant=False)  # pyright: ignore[reportAssignmentType]
    return output


def _compute(forward: Callable[..., Tensor], *inputs: Tensor | int | None) -> Tensor:
    with CompiledProducts():  # the backward pass, which does it again, is outside of the context that trains
        return forward(*inputs)
