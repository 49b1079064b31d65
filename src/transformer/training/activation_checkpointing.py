"""Activation (gradient) checkpointing: layers are recomputed in the backward pass to save memory, at a cost in time."""

from collections.abc import Callable
from functools import partial
from typing import Final

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from transformer.blocks import DecoderLayer, EncoderLayer
from transformer.runtime.allocator import trim_heap
from transformer.training.cpu_ops.dispatch import CpuKernelMode

LAYERS_PER_TRIM: Final = 3
"""Layers per call of `trim_heap`: 3 needs no more memory than 1, in half of its time (`docs/experiments/memory.md`)."""


def checkpoint_layers(model: nn.Module) -> None:
    """Makes every layer save only its inputs for the backward pass, which recomputes the other activations.

    The random state is restored for the recomputation, so gradients are bitwise identical. For L layers, memory holds
    L layer inputs and the activations of one layer at a time, and the forward pass of the layers runs twice. On a CPU,
    free heap pages are returned to the system before every few layers, in both passes.

    Source: Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost", Sec. 4.
    """
    layers = [module for module in model.modules() if isinstance(module, EncoderLayer | DecoderLayer)]
    for index, layer in enumerate(layers):
        trims_heap = index % LAYERS_PER_TRIM == 0
        layer.forward = partial(_checkpointed, partial(_forward, layer.forward, trims_heap))  # pyright: ignore[reportAttributeAccessIssue]


def _checkpointed(forward: Callable[..., Tensor], *inputs: Tensor | int | None) -> Tensor:
    if not torch.is_grad_enabled():
        return forward(*inputs)
    return checkpoint(forward, *inputs, use_reentrant=False)  # pyright: ignore[reportReturnType]


def _forward(forward: Callable[..., Tensor], trims_heap: bool, *inputs: Tensor | int | None) -> Tensor:
    on_cpu = isinstance(inputs[0], Tensor) and inputs[0].device.type == "cpu"
    if trims_heap and on_cpu and torch.is_grad_enabled():
        trim_heap()
    with CpuKernelMode():  # the recomputation in the backward pass runs outside the context of the training step
        return forward(*inputs)
