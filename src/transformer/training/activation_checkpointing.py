"""Less memory for more arithmetic: layers that are computed again in the backward pass."""

from collections.abc import Callable
from functools import partial
from typing import Final

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from transformer.blocks import DecoderLayer, EncoderLayer
from transformer.runtime.allocator import trim_heap
from transformer.training.cpu_ops.dispatch import CompiledProducts
from transformer.training.cpu_ops.linear import ROUNDED

LAYERS_A_TIDYING: Final = 3
"""Before every third layer: the memory of doing so before each, at half of its time (`docs/experiments/memory.md`)."""


def checkpoint_layers(model: nn.Module) -> None:
    """From now on every layer keeps its inputs alone for the backward pass, which computes the rest anew.

    Random numbers are drawn again as they were, so that gradients stay the same to the bit. Of the activations of L
    layers, L inputs and one layer's inside are in memory at a time; the layers' forward pass is done twice. On a CPU,
    what lies free between tensors goes back to the system before every few layers, both times.

    Source: Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost", Sec. 4.
    """
    layers = [module for module in model.modules() if isinstance(module, EncoderLayer | DecoderLayer)]
    for number, layer in enumerate(layers):
        is_tidy = number % LAYERS_A_TIDYING == 0
        layer.forward = partial(_forget, partial(_compute, layer.forward, is_tidy))  # pyright: ignore[reportAttributeAccessIssue]


def _forget(again: Callable[..., Tensor], *inputs: Tensor | int | None) -> Tensor:
    if not torch.is_grad_enabled():
        return again(*inputs)
    output: Tensor = checkpoint(again, *inputs, use_reentrant=False)  # pyright: ignore[reportAssignmentType]
    for kept in inputs:
        if isinstance(kept, Tensor):
            vars(kept).pop(ROUNDED, None)  # or half as much again would be kept
    return output


def _compute(forward: Callable[..., Tensor], is_tidy: bool, *inputs: Tensor | int | None) -> Tensor:
    on_cpu = isinstance(inputs[0], Tensor) and inputs[0].device.type == "cpu"
    if is_tidy and on_cpu and torch.is_grad_enabled():
        trim_heap()
    with CompiledProducts():  # the backward pass, which does it again, is outside of the context that trains
        return forward(*inputs)
