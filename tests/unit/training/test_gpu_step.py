"""Training steps as on a GPU, tried on a CPU: the update is queued before any value is read."""

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from substitution import substitute
from transformer.data.batch import ImageBatch, NeighbourBatch, PairBatch, TextBatch, WindowBatch
from transformer.data.dataset import pair_batch
from transformer.errors import NonFiniteError
from transformer.interfaces import LossSum
from transformer.training.backend import CPU_FLOAT32, Backend
from transformer.training.distributed.data_parallel import distribute_model, is_sharded
from transformer.training.distributed.process_group import DistributedContext
from transformer.training.monitoring.progress import Position
from transformer.training.objectives.translation import TranslationObjective
from transformer.training.optim.adam import make_optimizer
from transformer.training.optim.ema import EMA_KEY, update_ema
from transformer.training.step import TrainingState, train_step
from transformer.training.update import BatchPlan, prepare_batch
from transformer.transformer import build_transformer

PAIRS = pair_batch(
    [np.array(row, np.int32) for row in ([5, 6, 7], [8, 9, 10, 11, 12])],
    [np.array(row, np.int32) for row in ([7, 6], [12, 11, 10, 5])],
)


def translation_state(backend: Backend = CPU_FLOAT32) -> TrainingState:
    """Returns the state of a tiny model without dropout, the same at each call."""
    torch.manual_seed(3)
    model = build_transformer(13, 13, 12, 12, d_model=8, N=1, h=2, d_ff=12, dropout=0.0, share_embeddings="all")
    objective = TranslationObjective(model, 0.1)
    return TrainingState(objective, make_optimizer(objective), 0, 1, backend)


def values_of(state: TrainingState) -> list[Tensor]:
    """Returns copies of all parameters and of all tensors of the optimizer."""
    entries = [entry for slot in state.optimizer.state.values() for entry in slot.values()]
    return [x.detach().clone() for x in (*state.objective.parameters(), *entries)]


@pytest.fixture
def _queued(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes updates as on a GPU."""
    substitute(monkeypatch, "step.is_update_queued", lambda _: True)


@pytest.mark.parametrize("clip_norm", [0.0, 0.1, 1e6])
def test_a_queued_update_is_the_update(clip_norm: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a gradient that is clipped by another factor, or although its norm is small enough."""
    states = [translation_state(), translation_state()]
    for number, state in enumerate(states):
        substitute(monkeypatch, "step.is_update_queued", lambda _, number=number: number == 1)
        results = [train_step(state, [PAIRS], 0.01, clip_norm) for _ in range(3)]
        assert len({result.loss for result in results if result}) == 3
        assert not {"grad_scale", "found_inf"} & vars(state.optimizer).keys()
    for actual, expected in zip(*map(values_of, reversed(states)), strict=True):
        assert torch.equal(actual, expected)


class Broken(nn.Module):
    """A parameter whose loss or gradient is not finite on request."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.factor, self.slope = 1.0, 1.0

    def forward(self, batch: PairBatch) -> LossSum:
        """Returns the sum, times a factor, with another slope."""
        loss = self.weight.sum() * self.factor
        loss = loss + self.slope * (self.weight - self.weight.detach()).sum()
        return LossSum(loss, batch.scored_tokens, {"nll_sum": loss.detach()})


@pytest.mark.usefixtures("_queued")
@pytest.mark.parametrize(("factor", "slope"), [(math.nan, 1.0), (1.0, math.inf)])
def test_a_queued_update_is_skipped_if_a_value_is_not_finite(factor: float, slope: float) -> None:
    """Catches NaN parameters, moments or counters after a batch that must change nothing."""
    state = TrainingState(objective := Broken(), make_optimizer(objective), 0, 1)
    assert train_step(state, [PAIRS], 0.1, 1.0)
    before = values_of(state)
    objective.factor, objective.slope = factor, slope
    with pytest.raises(NonFiniteError, match="not finite in 1 parameters, first in weight"):
        train_step(state, [PAIRS], 0.1, 1.0)
    assert all(map(torch.equal, values_of(state), before))
    assert (state.step, objective.weight.grad) == (1, None)
    objective.factor, objective.slope = 1.0, 1.0
    assert train_step(state, [PAIRS], 0.1, 1.0)
    assert not torch.equal(objective.weight, before[0])


class Readings(TorchDispatchMode):
    """Records the operations that would wait for a GPU, because their result or its shape is needed on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Calls the operation."""
        aten = torch.ops.aten
        reads = (
            aten._local_scalar_dense,
            aten.nonzero,
            aten.equal,
            aten.is_nonzero,
            aten.masked_select,
            aten.unique_dim,
        )
        is_boolean = func.overloadpacket in (
            aten.index,
            aten.index_put,
            aten.index_put_,
            aten._index_put_impl_,
        ) and any(index is not None and index.dtype == torch.bool for index in args[1])
        if func.overloadpacket in reads or is_boolean:
            self.found.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.fixture
def _without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves the loss and the norm of the gradient to torch, as on a GPU."""
    for module in ("step", "cross_entropy"):
        substitute(monkeypatch, f"{module}.supports_tensors", lambda *_: False)


@pytest.mark.usefixtures("_queued", "_without_kernels")
def test_a_step_reads_nothing_before_its_end() -> None:
    """Catches a step that waits for the GPU between its parts: `.item()`, a boolean index, a comparison."""
    state = translation_state(Backend(torch.device("cpu"), "float32", is_compiled=True))  # without kernels
    with Readings() as recorded:
        assert train_step(state, [PAIRS, PAIRS], 0.01, 1.0)
    assert recorded.found == []
    with Readings() as recorded:  # the test would notice
        assert PAIRS.labels[PAIRS.labels != 0].sum().item()
    assert len(recorded.found) == 2


BATCHES = [
    PAIRS, WindowBatch(torch.ones(2, 3, dtype=torch.long), 4),
    TextBatch(torch.ones(2, 3, dtype=torch.long), torch.ones(2, 1, 1, 3, dtype=torch.bool), torch.zeros(2).long()),
    NeighbourBatch(*(x for n in (3, 5) for x in (torch.ones(2, n).long(), torch.ones(2, 1, 1, n).bool()))),
    ImageBatch(torch.zeros(2, 1, 3, 5), torch.zeros(2).long()),
]  # fmt: skip


@pytest.mark.parametrize("batch", BATCHES, ids=lambda batch: type(batch).__name__)
def test_a_batch_moves_with_all_of_its_tensors(batch: Any) -> None:
    """Catches a mask or labels that stay on the CPU, and a count that is lost."""
    moved = batch.to(torch.device("meta"))
    tensors = {name: value for name, value in vars(batch).items() if isinstance(value, Tensor)}
    assert len(tensors) >= 1
    for name, tensor in tensors.items():
        assert (getattr(moved, name).device.type, getattr(moved, name).shape) == ("meta", tensor.shape)
    assert moved.scored_tokens == batch.scored_tokens


def test_batches_for_a_gpu_are_read_into_pinned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches copies to the GPU that wait, and page-locked memory that runs on CPUs would waste."""
    pinned: list[Tensor] = []
    monkeypatch.setattr(Tensor, "pin_memory", lambda x: pinned.append(x) or x)

    class Pairs:
        lengths, mix = np.full((4, 2), 3, np.int32), ()

        def fetch(self, ids: np.ndarray) -> PairBatch:
            """Returns the same batch for all examples."""
            del ids
            return PAIRS

    plan = BatchPlan(np.arange(4), 0, Position())
    for pin_memory, expected in ((False, 0), (True, 6)):
        batch = prepare_batch(Pairs(), DistributedContext(), 2, plan, pin_memory=pin_memory)
        assert (len(batch.micro_batches), len(pinned)) == (2, expected)


def test_moving_averages_are_those_of_a_loop() -> None:
    """Catches a weight that is applied to the wrong side, and averages that are mixed up."""
    state = translation_state()
    expected: list[Tensor] = []
    for step in range(1, 4):
        assert train_step(state, [PAIRS], 0.05, 0.0)
        update_ema(state.optimizer, 0.9, step)
        current = [parameter.detach().double() for parameter in state.objective.parameters()]
        decay = min(0.9, (1 + step) / (10 + step))
        expected = [decay * mean + (1 - decay) * x for mean, x in zip(expected or current, current, strict=True)]
    actual = [state.optimizer.state[parameter][EMA_KEY].double() for parameter in state.objective.parameters()]
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-6)


def test_fsdp_of_one_rank_computes_the_same_updates() -> None:
    """Catches a step that cannot take sharded parameters, which one GPU suffices to try."""
    state = translation_state()
    objective = copy.deepcopy(state.objective)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        context = DistributedContext(0, 1, torch.device("cpu"), "fsdp")
        distributed = distribute_model(objective, objective.model, context)  # pyright: ignore[reportArgumentType]
        sharded = TrainingState(distributed.objective, make_optimizer(distributed.objective), 0, 1, context=context)
        assert all(map(is_sharded, objective.parameters()))
        for _ in range(3):
            expected, actual = (train_step(each, [PAIRS], 0.01, 0.5) for each in (state, sharded))
            assert expected is not None
            assert actual is not None
            assert actual.loss == pytest.approx(expected.loss, rel=1e-5)
        distributed.gather()
        pairs = zip(state.objective.named_parameters(), distributed.whole.parameters(), strict=True)
        for (name, parameter), other in pairs:
            if not name.endswith("W_k.bias"):  # its gradient is rounding alone
                torch.testing.assert_close(other, parameter, rtol=0, atol=1e-4)
    finally:
        dist.destroy_process_group()
