"""Adam with the paper's settings."""

from typing import Any

import torch
from torch import nn

from transformer.training.optim.state_dict import initialize_adam_state


def make_optimizer(
    model: nn.Module, betas: tuple[float, float] = (0.9, 0.98), eps: float = 1e-9, weight_decay: float = 0.0
) -> torch.optim.Adam:
    """Creates Adam, or AdamW with weight decay, over all parameters; shared ones are updated once.

    The learning rate is 0 until it is set before each step. Weight decay shrinks parameters with two or more axes by
    learning rate x weight decay at each step, but not biases and norms.

    Source: Vaswani et al. 2017, Sec. 5.3 (beta_1 = 0.9, beta_2 = 0.98, epsilon = 1e-9); Loshchilov and Hutter 2019,
    "Decoupled Weight Decay Regularization", Algorithm 2.
    """
    options: dict[str, Any] = {"lr": 0.0, "betas": betas, "eps": eps, "fused": True}
    if not weight_decay:
        optimizer = torch.optim.Adam(model.parameters(), **options)
        initialize_adam_state(optimizer)
        return optimizer
    matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    others = [parameter for parameter in model.parameters() if parameter.dim() < 2]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, **options)
    initialize_adam_state(optimizer)
    return optimizer
