"""One update of the parameters."""

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

import torch
from torch import nn

from transformer.errors import NonFiniteError
from transformer.interfaces import Batch
from transformer.kernels.elementwise import sum_of_squares
from transformer.kernels.gemm import multiplies
from transformer.training.backend import CPU_FLOAT32, Backend
from transformer.training.distributed.data_parallel import full_tensor, local_tensor, no_gradient_sync
from transformer.training.distributed.process_group import ALONE, DistributedContext
from transformer.training.monitoring.layer_stats import BlockStats, LayerStats
from transformer.training.rng import reseed

GRAD_SCALE: Final = "grad_scale"
"""The attribute of torch's fused optimizers that says what gradients are divided by before they are used."""


@dataclass
class TrainingState:
    """What a step reads and changes.

    Attributes:
        objective: model and loss.
        optimizer: over the model's parameters.
        step: updates done so far.
        seed: of the run.
        backend: where and in which precision the objective computes.
        layer_stats_every: updates between figures of every block; 0 never observes.
        context: the ranks that take every step together.
        modules: of the objective.
    """

    objective: nn.Module
    optimizer: torch.optim.Optimizer
    step: int
    seed: int
    backend: Backend = CPU_FLOAT32
    layer_stats_every: int = 0
    context: DistributedContext = ALONE
    modules: Sequence[nn.Module] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.modules = tuple(self.objective.modules())  # to find them again takes longer than to look at each


@dataclass(frozen=True)
class StepResult:
    """Figures of one update.

    Attributes:
        loss: what is minimized, a scored token, in nats: the smoothed loss, and the divergence that R-Drop adds.
        nll: unsmoothed loss a scored token, in nats.
        count: scored tokens.
        gradient_norm: before clipping.
        blocks: figures of every block, where the step was observed.
    """

    loss: float
    nll: float
    count: int
    gradient_norm: float
    blocks: dict[str, BlockStats] = field(default_factory=dict)


def train_step(
    state: TrainingState,
    micro_batches: Sequence[Batch],
    learning_rate: float,
    clip_norm: float,
    *,
    is_last_counted: bool = True,
) -> StepResult | None:
    """Adds up the gradients of the micro-batches and updates the parameters once.

    The loss is the sum over all scored tokens divided by their number in all micro-batches of all ranks, so that
    without dropout the gradient does not depend on how a batch is cut. Dropout is drawn from (seed, step, micro-batch),
    where micro-batch i is the one of rank i % world size, so that it does not depend on the number of ranks.

    Args:
        state: changed in place.
        micro_batches: the parts of one batch that are this rank's, as many as every other rank has.
        learning_rate: of this update.
        clip_norm: largest L2 norm of the gradient; 0 does not clip.
        is_last_counted: False where the last micro-batch only stands in, with weight 0, for one that the rank lacks.

    Returns:
        The figures, of all ranks; None, with nothing changed, where no token is scored.

    Raises:
        NonFiniteError: loss or gradient is not finite; parameters, optimizer and step are as before.
    """
    if not all(module.training for module in state.modules):  # telling each again takes longer
        state.objective.train()
    counted = micro_batches if is_last_counted else micro_batches[:-1]
    count = int(state.context.all_reduce_sum(sum(batch.scored_tokens for batch in counted))[0])
    if not count:
        return None
    loss_sum, nll_sum = state.context.all_reduce_sum(*_backward(state, micro_batches, len(counted), count))
    is_observed = state.layer_stats_every and (state.step + 1) % state.layer_stats_every == 0
    observation = LayerStats(state.objective) if is_observed else None
    norm = _gradient_norm(state.optimizer)
    gradient_norm = norm.item()
    if not (math.isfinite(loss_sum) and math.isfinite(gradient_norm)):
        problem = _what_is_not_finite(state.objective, loss_sum / count, gradient_norm)
        state.optimizer.zero_grad()
        raise NonFiniteError(problem)
    if clip_norm and gradient_norm > clip_norm:  # a shorter gradient would be multiplied by 1
        _shorten(state, norm, clip_norm)
    for group in state.optimizer.param_groups:
        group["lr"] = learning_rate
    try:
        state.optimizer.step()
    finally:
        state.optimizer.__dict__.pop(GRAD_SCALE, None)
    state.optimizer.zero_grad()
    state.step += 1
    blocks = observation.figures() if observation else {}
    return StepResult(loss_sum / count, nll_sum / count, count, gradient_norm, blocks)


def _backward(state: TrainingState, micro_batches: Sequence[Batch], n_counted: int, count: int) -> tuple[float, float]:
    """Leaves the gradient of the mean loss in the parameters; returns the rank's sums, smoothed and not."""
    loss_sum = nll_sum = 0.0
    for index, batch in enumerate(micro_batches):
        weight = state.context.size if index < n_counted else 0  # ranks' gradients are averaged, not summed
        reseed(state.seed, state.step, state.context.rank + index * state.context.size)
        is_last = index == len(micro_batches) - 1
        with nullcontext() if is_last else no_gradient_sync(state.objective):
            with state.backend.compute_context():
                result = state.objective(batch.to(state.backend.device))
            (result.loss_sum * weight / count).backward()
        if weight:
            loss_sum += result.loss_sum.item()
            nll_sum += result.metrics["nll_sum"].item()
    return loss_sum, nll_sum


def _gradient_norm(optimizer: torch.optim.Optimizer) -> torch.Tensor:
    parameters = chain.from_iterable(group["params"] for group in optimizer.param_groups)
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if multiplies(*gradients) and all(each.dtype == torch.float32 for each in gradients):
        return torch.tensor(math.sqrt(sum_of_squares(*gradients)), dtype=torch.float32, device="cpu")
    return full_tensor(nn.utils.get_total_norm(gradients))


def _shorten(state: TrainingState, norm: torch.Tensor, clip_norm: float) -> None:
    """Brings the gradient to `clip_norm`; a fused optimizer divides it itself, while it reads it anyway."""
    if state.context.size == 1 and state.optimizer.defaults.get("fused"):
        setattr(state.optimizer, GRAD_SCALE, norm / clip_norm)
    else:
        nn.utils.clip_grads_with_norm_(list(state.objective.parameters()), clip_norm, norm)


def _what_is_not_finite(objective: nn.Module, loss: float, gradient_norm: float) -> str:
    """The loss, the first parameter whose gradient is not finite, or the norm where only their sum overflows."""
    if math.isfinite(gradient_norm):
        return f"the loss is {loss} (the gradient is finite)"
    parameters = objective.named_parameters()
    names = [name.removeprefix("module.") for name, parameter in parameters if _has_nonfinite_gradient(parameter)]
    place = f"in {len(names)} parameters, first in {names[0]}" if names else f"in none, but its norm is {gradient_norm}"
    if not math.isfinite(loss):
        return f"the loss is {loss} (gradient not finite {place})"
    return f"the loss is {loss:.4g}, but the gradient is not finite {place}"


def first_nonfinite_parameter(objective: nn.Module) -> str | None:
    """The name of the first parameter that holds a number that is not finite, of what this rank has of it."""
    for name, parameter in objective.named_parameters():
        if not local_tensor(parameter.detach()).isfinite().all():
            return name.removeprefix("module.")
    return None


def _has_nonfinite_gradient(parameter: nn.Parameter) -> bool:
    return parameter.grad is not None and not full_tensor(parameter.grad).isfinite().all().item()
