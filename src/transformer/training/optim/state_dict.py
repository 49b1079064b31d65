"""What Adam remembers, as tensors named after the parameters they belong to, and back."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from transformer.errors import CheckpointError
from transformer.training.distributed.data_parallel import shard_like

ADAM_KEYS = ("step", "exp_avg", "exp_avg_sq")


def initialize_adam_state(optimizer: torch.optim.Optimizer) -> None:
    """Gives every parameter its moments, zero, where Adam would do so in its first update.

    They stay for the whole run. Made between the gradients of an update, they would lie scattered among what is freed
    after it, and no activation fits between them: a step of the paper's base model took 5 to 12 % more memory.
    """
    for parameter in _parameters(optimizer):
        optimizer.state[parameter] = {
            "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The state of every parameter: `exp_avg/projection_layer.proj.bias` and so on; a shared one is there once."""
    return {
        f"{key}/{name}": tensor
        for name, parameter in model.named_parameters()
        for key, tensor in optimizer.state[parameter].items()
    }


def restore_optimizer(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    tensors: dict[str, Tensor],
    keys: tuple[str, ...] = ADAM_KEYS,
) -> None:
    """Puts back what `optimizer_tensors` gave: every one of the keys for every parameter.

    Raises:
        CheckpointError: a tensor is missing, too many, or of another size than its parameter.
    """
    shapes = {
        f"{key}/{name}": torch.Size() if key == "step" else parameter.shape
        for name, parameter in model.named_parameters()
        for key in keys
    }
    for name in sorted(shapes.keys() ^ tensors.keys()):
        problem = "lacks" if name in shapes else "holds, for no parameter of this model,"
        raise CheckpointError(f"the optimizer's state {problem} {name}; start anew with --fresh")
    for name, tensor in tensors.items():
        if tensor.shape != shapes[name]:
            raise CheckpointError(
                f"the optimizer's state {name} has shape {tuple(tensor.shape)}, not {tuple(shapes[name])}; start anew "
                "with --fresh"
            )
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for parameter in _parameters(optimizer):
        own = optimizer.state[parameter]
        for key in keys:
            given = shard_like(parameter, tensors[f"{key}/{names[id(parameter)]}"])
            if key in own:
                own[key].copy_(given)
            else:  # tensors from a file are views of it; copies stay when the file goes
                own[key] = given.to(parameter.device, copy=True)


def _parameters(optimizer: torch.optim.Optimizer) -> Iterator[Tensor]:
    return (parameter for group in optimizer.param_groups for parameter in group["params"])
