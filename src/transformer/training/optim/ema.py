"""Means of parameters: over checkpoints at the end of a run, and over its steps as it goes."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from transformer.errors import ConfigError

EMA_KEY = "average"
"""The key beside Adam's own under which the optimizer keeps a parameter's running mean."""


class ParameterMean:
    """The mean of several models' parameters, added one model at a time.

    Sums are held in float64, so that the mean of equal values is that value, and no order of adding is better than
    another. It needs the memory of two float32 models, however many are added.

    Source: Vaswani et al. 2017, Sec. 6.1 (base: the last 5 checkpoints, big: the last 20).
    """

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._dtypes: dict[str, torch.dtype] = {}
        self.count = 0

    def add(self, tensors: Mapping[str, Tensor]) -> None:
        """Adds one model's tensors by name.

        Raises:
            ConfigError: names or shapes are not those of the models before.
        """
        if not self._sums:
            self._sums = {name: torch.zeros_like(tensor, dtype=torch.float64) for name, tensor in tensors.items()}
            self._dtypes = {name: tensor.dtype for name, tensor in tensors.items()}
        names = tensors.keys() | self._sums.keys()
        shapes = [{name: group[name].shape for name in group} for group in (self._sums, tensors)]
        differing = sorted(name for name in names if shapes[0].get(name) != shapes[1].get(name))
        if differing:
            raise ConfigError(f"parameters differ ({', '.join(differing[:3])}); average models of one architecture")
        for name, tensor in tensors.items():
            self._sums[name] += tensor.detach()
        self.count += 1

    def mean(self) -> dict[str, Tensor]:
        """The mean of each tensor, rounded once to the type it came in.

        Raises:
            ConfigError: nothing was added.
        """
        if not self.count:
            raise ConfigError("there is nothing to average; give at least one model")
        return {name: (total / self.count).to(self._dtypes[name]) for name, total in self._sums.items()}


@torch.no_grad()
def update_ema(optimizer: torch.optim.Optimizer, decay: float, step: int) -> None:
    """Moves the running mean of every parameter towards its value after an update.

    mean <- d * mean + (1 - d) * parameter, with d = min(decay, (1 + step) / (10 + step)): early on, when a long memory
    would be of the random start, it is short. The mean is kept as `average` in the optimizer's state, so whatever
    stores that state, stores it exactly.

    Args:
        optimizer: after its update number `step`.
        decay: of the memory, e.g. 0.999, which reaches back about 1,000 updates.
        step: updates done, from 1.

    Source: Polyak and Juditsky 1992; the growing decay is that of TensorFlow's ExponentialMovingAverage.
    """
    weight = 1 - min(decay, (1 + step) / (10 + step))
    for parameter in _parameters(optimizer):
        state = optimizer.state[parameter]
        if EMA_KEY in state:
            state[EMA_KEY].lerp_(parameter, weight)
        else:
            state[EMA_KEY] = parameter.detach().clone()


@contextmanager
def use_ema_parameters(optimizer: torch.optim.Optimizer) -> Generator[None]:
    """Inside the block the model holds the running means and the optimizer what it trains; without means, nothing.

    So what is validated and saved as the model is the mean, and a checkpoint holds both.
    """
    swap_ema_parameters(optimizer)
    try:
        yield
    finally:
        swap_ema_parameters(optimizer)


@torch.no_grad()
def swap_ema_parameters(optimizer: torch.optim.Optimizer) -> None:
    """Exchanges every parameter with its running mean, where there is one."""
    for parameter in _parameters(optimizer):
        state = optimizer.state.get(parameter, {})
        if EMA_KEY in state:
            trained = parameter.detach().clone()
            parameter.copy_(state[EMA_KEY])
            state[EMA_KEY].copy_(trained)


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
