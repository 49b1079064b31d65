"""How the blocks of a model learn: sizes of gradients, parameters and updates."""

import re
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transformer.training.distributed.data_parallel import full_tensor

# Wrappers' names, then the block: up to a layer's number, or the module that owns the parameter.
BLOCK = re.compile(r"(?:module\.|_orig_mod\.|model\.)*(.+?\.\d+|.+)\.")


@dataclass(frozen=True)
class BlockStats:
    """Figures of one block at one update.

    Attributes:
        gradient_norm: L2 norm of its gradient, before clipping.
        parameter_norm: L2 norm of its parameters, before the update.
        update_ratio: L2 norm of what the update changed / parameter_norm. Around 1e-3 is usual; a block far below the
            others hardly learns, one far above them is restless.
    """

    gradient_norm: float
    parameter_norm: float
    update_ratio: float


class LayerStats:
    """Remembers a model between its backward pass and its update; costs a copy of the parameters.

    Args:
        model: with gradients, not yet clipped. Layers are `encoder.layers.0`; a matrix that stands in several places
            counts for the first.
    """

    @torch.no_grad()
    def __init__(self, model: nn.Module) -> None:
        self._blocks: dict[str, list[Tensor]] = {}
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                self._blocks.setdefault(block_of(name), []).append(parameter)
        self._gradient_norms = {
            name: _norm([parameter.grad for parameter in parameters if parameter.grad is not None])
            for name, parameters in self._blocks.items()
        }
        self._before = {name: [p.detach().clone() for p in parameters] for name, parameters in self._blocks.items()}

    @torch.no_grad()
    def figures(self) -> dict[str, BlockStats]:
        """The figures of every block, once the update is done."""
        figures: dict[str, BlockStats] = {}
        for name, parameters in self._blocks.items():
            before = self._before[name]
            size = _norm(before)
            change = _norm([now - then for now, then in zip(parameters, before, strict=True)])
            figures[name] = BlockStats(self._gradient_norms[name], size, change / size if size else 0.0)
        return figures


def block_of(parameter_name: str) -> str:
    """The block that a parameter belongs to: `encoder.layers.0`, `encoder.norm`, `src_embed.embedding`."""
    match = BLOCK.match(parameter_name)
    return match[1] if match else parameter_name


def _norm(tensors: list[Tensor]) -> float:
    return full_tensor(nn.utils.get_total_norm(tensors)).item()
