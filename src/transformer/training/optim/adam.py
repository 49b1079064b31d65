"""Adam with the paper's settings."""

from collections.abc import Collection
from typing import Any

import torch
from torch import nn

from transformer.training.optim.state_dict import initialize_adam_state


def make_optimizer(
    model: nn.Module,
    betas: tuple[float, float] = (0.9, 0.98),
    eps: float = 1e-9,
    weight_decay: float = 0.0,
    undecayed: Collection[nn.Parameter] = (),
) -> torch.optim.Adam:
    """Creates Adam, or AdamW with weight decay, over all parameters that are not frozen; shared ones are updated once.

    The learning rate is 0 until it is set before each step. Weight decay shrinks parameters with two or more axes by
    learning rate x weight decay at each step, but not biases, norms and those that are `undecayed`.

    Source: Vaswani et al. 2017, Sec. 5.3 (beta_1 = 0.9, beta_2 = 0.98, epsilon = 1e-9); Loshchilov and Hutter 2019,
    "Decoupled Weight Decay Regularization", Algorithm 2.
    """
    options: dict[str, Any] = {"lr": 0.0, "betas": betas, "eps": eps, "fused": True}
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not weight_decay:
        optimizer = torch.optim.Adam(trained, **options)
        initialize_adam_state(optimizer)
        return optimizer
    fixed = {id(parameter) for parameter in undecayed}
    matrices = [parameter for parameter in trained if parameter.dim() > 1 and id(parameter) not in fixed]
    others = [parameter for parameter in trained if parameter.dim() < 2 or id(parameter) in fixed]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, **options)
    initialize_adam_state(optimizer)
    return optimizer
