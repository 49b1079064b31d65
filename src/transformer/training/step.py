"""One update of the parameters."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from transformer.errors import TrainingError
from transformer.protocols import Batch
from transformer.training.randomness import reseed


@dataclass
class TrainingState:
    """What a step reads and changes.

    Attributes:
        objective: model and loss.
        optimizer: over the model's parameters.
        step: updates done so far.
        seed: of the run.
    """

    objective: nn.Module
    optimizer: torch.optim.Optimizer
    step: int
    seed: int


@dataclass(frozen=True)
class StepResult:
    """Figures of one update.

    Attributes:
        loss: smoothed loss a scored token, in nats.
        nll: unsmoothed loss a scored token, in nats.
        count: scored tokens.
        gradient_norm: before clipping.
    """

    loss: float
    nll: float
    count: int
    gradient_norm: float


def train_step(
    state: TrainingState, micro_batches: Sequence[Batch], learning_rate: float, clip_norm: float
) -> StepResult:
    """Adds up the gradients of the micro-batches and updates the parameters once.

    The loss is the sum over all scored tokens divided by their number in all micro-batches, so that without dropout
    the gradient does not depend on how a batch is cut. Dropout is drawn from (seed, step, micro-batch).

    Args:
        state: changed in place.
        micro_batches: the parts of one batch.
        learning_rate: of this update.
        clip_norm: largest L2 norm of the gradient; 0 does not clip.

    Raises:
        TrainingError: loss or gradient is not finite; the parameters are as before the step.
    """
    state.objective.train()
    count = sum(batch.scored_tokens for batch in micro_batches)
    loss_sum = nll_sum = 0.0
    for index, batch in enumerate(micro_batches):
        reseed(state.seed, state.step, index)
        result = state.objective(batch)
        (result.loss_sum / count).backward()
        loss_sum += result.loss_sum.item()
        nll_sum += result.metrics["nll_sum"].item()
    gradient_norm = nn.utils.clip_grad_norm_(state.objective.parameters(), clip_norm or math.inf).item()
    if not (math.isfinite(loss_sum) and math.isfinite(gradient_norm)):
        state.optimizer.zero_grad()
        raise TrainingError(
            f"step {state.step + 1}: loss {loss_sum / count:.4g}, gradient norm {gradient_norm:.4g}: not finite; the "
            "parameters are as before the step; lower training.learning_rate or set training.clip_norm"
        )
    for group in state.optimizer.param_groups:
        group["lr"] = learning_rate
    state.optimizer.step()
    state.optimizer.zero_grad()
    state.step += 1
    return StepResult(loss_sum / count, nll_sum / count, count, gradient_norm)
