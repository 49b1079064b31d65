"""The training step: one update of the parameters."""

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from transformer.errors import NonFiniteError
from transformer.interfaces import Batch
from transformer.kernels.elementwise import sum_of_squares
from transformer.kernels.gemm import supports_tensors
from transformer.runtime.threads import own_cores
from transformer.training.backend import CPU_FLOAT32, Backend
from transformer.training.distributed.data_parallel import full_tensor, is_sharded, local_tensor, no_gradient_sync
from transformer.training.distributed.process_group import SINGLE_PROCESS, DistributedContext
from transformer.training.monitoring.layer_stats import BlockStats, LayerStats
from transformer.training.rng import reseed

GRAD_SCALE: Final = "grad_scale"
"""Attribute of torch's fused optimizers that holds the divisor of gradients."""
FOUND_INF: Final = "found_inf"
"""Attribute of torch's fused optimizers by which they skip an update: 1 if a value is not finite, otherwise 0."""


@dataclass
class TrainingState:
    """Model, optimizer and other state that a training step reads and changes.

    Attributes:
        objective: Model together with its loss.
        optimizer: Optimizer of the model's parameters.
        step: Number of updates done so far.
        seed: Seed of the run.
        backend: Device and precision of the objective.
        layer_stats_every: Updates between statistics of the blocks; 0 for none.
        context: Ranks that take every step together.
        kept_rows: True for each row of a parameter that stays as it is.
        modules: All modules of the objective.
    """

    objective: nn.Module
    optimizer: torch.optim.Optimizer
    step: int
    seed: int
    backend: Backend = CPU_FLOAT32
    layer_stats_every: int = 0
    context: DistributedContext = SINGLE_PROCESS
    kept_rows: Mapping[nn.Parameter, torch.Tensor] = field(default_factory=dict[nn.Parameter, torch.Tensor])
    modules: Sequence[nn.Module] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.modules = tuple(self.objective.modules())  # traversing the tree at each step takes longer


@dataclass(frozen=True)
class StepResult:
    """Metrics of one update.

    Attributes:
        loss: Minimized loss per scored token in nats: the smoothed loss plus the divergence that R-Drop adds.
        nll: Unsmoothed loss per scored token in nats.
        count: Number of scored tokens.
        gradient_norm: L2 norm of the gradient before clipping.
        blocks: Statistics of every block; empty at most steps, see `TrainingState.layer_stats_every`.
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
    """Accumulates the gradients of the micro-batches and updates the parameters once.

    The loss is the sum over all scored tokens divided by their number in all micro-batches of all ranks. Without
    dropout, the gradient therefore does not depend on how a batch is split. Dropout is seeded by (seed, step,
    micro-batch), where micro-batch i belongs to rank i % world size, so it does not depend on the number of ranks.

    Args:
        state: Training state, changed in place.
        micro_batches: This rank's micro-batches of one batch; every rank has the same number.
        learning_rate: Learning rate of this update.
        clip_norm: Largest L2 norm of the gradient; 0 does not clip.
        is_last_counted: False if the last micro-batch is a placeholder with weight 0 for one that the rank lacks.

    Returns:
        The metrics over all ranks; None if no token is scored, in which case nothing is changed.

    Raises:
        NonFiniteError: The loss or the gradient is not finite; parameters, optimizer and step are unchanged.
    """
    if not all(module.training for module in state.modules):  # calling train() at each step takes longer
        state.objective.train()
    counted = micro_batches if is_last_counted else micro_batches[:-1]
    count = int(state.context.all_reduce_sum(sum(batch.scored_tokens for batch in counted))[0])
    if not count:
        return None
    with own_cores() if state.backend.keeps_cores else nullcontext():
        return _update_parameters(state, micro_batches, learning_rate, clip_norm, len(counted), count)


def _update_parameters(
    state: TrainingState,
    micro_batches: Sequence[Batch],
    learning_rate: float,
    clip_norm: float,
    n_counted: int,
    count: int,
) -> StepResult:
    """Updates the parameters once; `count` tokens are scored in the first `n_counted` micro-batches of all ranks."""
    sums = state.context.all_reduce_tensor(_backward(state, micro_batches, n_counted, count))
    for parameter, rows in state.kept_rows.items():
        if parameter.grad is not None:
            parameter.grad[rows] = 0
    has_stats = state.layer_stats_every and (state.step + 1) % state.layer_stats_every == 0
    layer_stats = LayerStats(state.objective) if has_stats else None
    norm = _gradient_norm(state.optimizer)
    metrics = torch.cat([norm.double().view(1), sums])  # read at once, because each reading waits for the GPU
    for group in state.optimizer.param_groups:
        group["lr"] = learning_rate
    if is_update_queued(state):
        _queue_update(state.optimizer, metrics, norm, clip_norm)
        gradient_norm, loss_sum, nll_sum = metrics.tolist()
        _check_finite(state, loss_sum / count, gradient_norm)
    else:
        gradient_norm, loss_sum, nll_sum = metrics.tolist()
        _check_finite(state, loss_sum / count, gradient_norm)
        if clip_norm and gradient_norm > clip_norm:
            _clip_gradient(state, norm, clip_norm)
        _update(state.optimizer)
    state.optimizer.zero_grad()
    state.step += 1
    blocks = layer_stats.block_stats() if layer_stats else {}
    return StepResult(loss_sum / count, nll_sum / count, count, gradient_norm, blocks)


def is_update_queued(state: TrainingState) -> bool:
    """Whether the update is queued before the loss is read, so that a GPU need not wait for the CPU in between."""
    return state.backend.device.type != "cpu" and _is_fused(state.optimizer)


def _is_fused(optimizer: torch.optim.Optimizer) -> bool:
    """Whether the optimizer can scale gradients itself, which it cannot if parameters are sharded."""
    return bool(optimizer.defaults.get("fused")) and not is_sharded(optimizer.param_groups[0]["params"][0])


def _queue_update(optimizer: torch.optim.Optimizer, metrics: Tensor, norm: Tensor, clip_norm: float) -> None:
    """Clips and updates on the device, without reading a value; skips the update if loss or norm is not finite."""
    if clip_norm:
        setattr(optimizer, GRAD_SCALE, (norm / clip_norm).clamp(min=1))
    setattr(optimizer, FOUND_INF, (~metrics[:2].isfinite().all()).float())
    _update(optimizer)


def _update(optimizer: torch.optim.Optimizer) -> None:
    try:
        optimizer.step()
    finally:
        for name in (GRAD_SCALE, FOUND_INF):
            optimizer.__dict__.pop(name, None)


def _check_finite(state: TrainingState, loss: float, gradient_norm: float) -> None:
    """Discards the gradient of a batch whose loss or gradient is not finite.

    Raises:
        NonFiniteError: One of them is not.
    """
    if math.isfinite(loss) and math.isfinite(gradient_norm):
        return
    problem = _describe_nonfinite(state.objective, loss, gradient_norm)
    state.optimizer.zero_grad()
    raise NonFiniteError(problem)


def _backward(state: TrainingState, micro_batches: Sequence[Batch], n_counted: int, count: int) -> Float[Tensor, " 2"]:
    """Accumulates the gradient of the mean loss; returns this rank's sums of the smoothed and the unsmoothed loss."""
    sums = torch.zeros(2, dtype=torch.float64, device=state.backend.device)
    for index, batch in enumerate(micro_batches):
        weight = state.context.size if index < n_counted else 0  # gradients are averaged over ranks, not summed
        reseed(state.seed, state.step, state.context.rank + index * state.context.size)
        is_last = index == len(micro_batches) - 1
        with nullcontext() if is_last else no_gradient_sync(state.objective):
            with state.backend.compute_context(state.step):
                result = state.objective(batch.to(state.backend.device))
            (result.loss_sum * weight / count).backward()
        if weight:
            sums += torch.stack([result.loss_sum.detach(), result.metrics["nll_sum"].detach()])
    return sums


def _gradient_norm(optimizer: torch.optim.Optimizer) -> torch.Tensor:
    parameters = chain.from_iterable(group["params"] for group in optimizer.param_groups)
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if supports_tensors(*gradients) and all(gradient.dtype == torch.float32 for gradient in gradients):
        return torch.tensor(math.sqrt(sum_of_squares(*gradients)), dtype=torch.float32, device="cpu")
    return full_tensor(nn.utils.get_total_norm(gradients))


def _clip_gradient(state: TrainingState, norm: torch.Tensor, clip_norm: float) -> None:
    """Scales the gradient to `clip_norm`; a fused optimizer does it itself while it reads the gradient."""
    if state.context.size == 1 and _is_fused(state.optimizer):
        setattr(state.optimizer, GRAD_SCALE, norm / clip_norm)
    else:
        nn.utils.clip_grads_with_norm_(list(state.objective.parameters()), clip_norm, norm)


def _describe_nonfinite(objective: nn.Module, loss: float, gradient_norm: float) -> str:
    """Describes which of loss and gradients are not finite; names the norm if only the sum of squares overflows."""
    if math.isfinite(gradient_norm):
        return f"the loss is {loss} (the gradient is finite)"
    parameters = objective.named_parameters()
    names = [name.removeprefix("module.") for name, parameter in parameters if _has_nonfinite_gradient(parameter)]
    location = (
        f"in {len(names)} parameters, first in {names[0]}" if names else f"in none, but its norm is {gradient_norm}"
    )
    if not math.isfinite(loss):
        return f"the loss is {loss} (gradient not finite {location})"
    return f"the loss is {loss:.4g}, but the gradient is not finite {location}"


def first_nonfinite_parameter(objective: nn.Module) -> str | None:
    """Returns the name of the first parameter with a non-finite value in the part that this rank holds."""
    for name, parameter in objective.named_parameters():
        if not local_tensor(parameter.detach()).isfinite().all():
            return name.removeprefix("module.")
    return None


def _has_nonfinite_gradient(parameter: nn.Parameter) -> bool:
    return parameter.grad is not None and not full_tensor(parameter.grad).isfinite().all().item()
