"""Statistics of the blocks of a model: norms of gradients, parameters and updates."""

import re
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from transformer.training.distributed.data_parallel import full_tensor

# Names of wrappers, then the block: the path up to a layer number, or the module that owns the parameter.
BLOCK = re.compile(r"(?:module\.|_orig_mod\.|model\.)*(.+?\.\d+|.+)\.")


@dataclass(frozen=True)
class BlockStats:
    """Statistics of one block at one update.

    Attributes:
        gradient_norm: L2 norm of the gradient, before clipping.
        parameter_norm: L2 norm of the parameters, before the update.
        update_ratio: L2 norm of the update divided by parameter_norm. Around 1e-3 is usual; a block far below the
            others hardly learns, and one far above them is unstable.
    """

    gradient_norm: float
    parameter_norm: float
    update_ratio: float


class LayerStats:
    """Measures the blocks of a model across one update, which needs memory for a copy of the parameters.

    Must be created between the backward pass and the update.

    Args:
        model: Model whose gradients are not yet clipped. Blocks have names like `encoder.layers.0`; a shared matrix
            belongs to the first block that contains it.
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
    def block_stats(self) -> dict[str, BlockStats]:
        """Returns the statistics of every block; must be called after the update."""
        stats: dict[str, BlockStats] = {}
        for name, parameters in self._blocks.items():
            before = self._before[name]
            parameter_norm = _norm(before)
            update_norm = _norm([now - then for now, then in zip(parameters, before, strict=True)])
            update_ratio = update_norm / parameter_norm if parameter_norm else 0.0
            stats[name] = BlockStats(self._gradient_norms[name], parameter_norm, update_ratio)
        return stats


def block_of(parameter_name: str) -> str:
    """Returns the block that a parameter belongs to, e.g. `encoder.layers.0`, `encoder.norm`, `src_embed.embedding`."""
    match = BLOCK.match(parameter_name)
    return match[1] if match else parameter_name


def _norm(tensors: list[Tensor]) -> float:
    return full_tensor(nn.utils.get_total_norm(tensors)).item()
