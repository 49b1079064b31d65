"""Averages of parameters: over checkpoints, and exponential moving averages over the steps of a run."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from transformer.errors import ConfigError

EMA_KEY = "average"
"""Key of the moving average in the optimizer's state of a parameter."""


class ParameterMean:
    """Averages the parameters of several models, which are added one at a time.

    Sums are kept in float64, so that the mean of equal values is that value and the order of adding has no effect on
    the quality. The memory is that of two float32 models, for any number of models.

    Source: Vaswani et al. 2017, Sec. 6.1 (base: the last 5 checkpoints, big: the last 20).
    """

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._dtypes: dict[str, torch.dtype] = {}
        self.count = 0

    def add(self, tensors: Mapping[str, Tensor]) -> None:
        """Adds one model's tensors by name.

        Raises:
            ConfigError: Names or shapes differ from those of earlier models.
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
        """Returns the mean of each tensor, rounded once to its original dtype.

        Raises:
            ConfigError: No model was added.
        """
        if not self.count:
            raise ConfigError("no models to average; add at least one")
        return {name: (total / self.count).to(self._dtypes[name]) for name, total in self._sums.items()}


@torch.no_grad()
def update_ema(optimizer: torch.optim.Optimizer, decay: float, step: int) -> None:
    """Updates the exponential moving average of every parameter.

    Computes mean <- d * mean + (1 - d) * parameter, with d = min(decay, (1 + step) / (10 + step)). The decay is small
    at first, so that the average soon forgets the random initialization. The mean is kept as `average` in the
    optimizer's state, so it is stored exactly wherever that state is stored.

    Args:
        optimizer: Optimizer after its update number `step`.
        decay: Decay of the average, e.g. 0.999, which averages over about 1,000 updates.
        step: Number of updates done, from 1.

    Source: Polyak and Juditsky 1992; the growing decay is that of TensorFlow's ExponentialMovingAverage.
    """
    weight = 1 - min(decay, (1 + step) / (10 + step))
    parameters = _parameters(optimizer)
    for parameter in parameters:
        if EMA_KEY not in optimizer.state[parameter]:
            optimizer.state[parameter][EMA_KEY] = parameter.detach().clone()
    averages = [optimizer.state[parameter][EMA_KEY] for parameter in parameters]
    # A few kernels for all parameters on a GPU
    torch._foreach_lerp_(averages, parameters, weight)  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]


@contextmanager
def use_ema_parameters(optimizer: torch.optim.Optimizer) -> Generator[None]:
    """Swaps parameters and moving averages inside the block; the optimizer's state then holds the parameters.

    The averages are thus validated and saved as the model, and a checkpoint contains both. Has no effect without moving
    averages.
    """
    swap_ema_parameters(optimizer)
    try:
        yield
    finally:
        swap_ema_parameters(optimizer)


@torch.no_grad()
def swap_ema_parameters(optimizer: torch.optim.Optimizer) -> None:
    """Swaps every parameter with its moving average, if it has one."""
    for parameter in _parameters(optimizer):
        state = optimizer.state.get(parameter, {})
        if EMA_KEY in state:
            trained = parameter.detach().clone()
            parameter.copy_(state[EMA_KEY])
            state[EMA_KEY].copy_(trained)


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
