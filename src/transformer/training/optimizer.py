"""Adam with the paper's settings."""

import torch
from torch import nn

from transformer.training.settings import TrainingSettings


def make_optimizer(model: nn.Module, settings: TrainingSettings) -> torch.optim.Adam:
    """Adam over all parameters, a shared one counted once; the learning rate is set before each step.

    Source: Vaswani et al. 2017, Sec. 5.3 (beta_1 = 0.9, beta_2 = 0.98, epsilon = 1e-9).
    """
    return torch.optim.Adam(model.parameters(), lr=0.0, betas=settings.adam_betas, eps=settings.adam_eps, fused=True)
