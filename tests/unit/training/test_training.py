"""Schedules, losses, training steps, the training loop and its checkpoints."""

import copy
import json
import math
import os
import re
import signal
import threading
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain, cycle
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from samples import tiny_recipe, training_settings
from substitution import substitute
from transformer.data.batch import PairBatch
from transformer.errors import ConfigError, NonFiniteError, TrainingError
from transformer.interfaces import LossSum
from transformer.kernels.library import library
from transformer.pipelines.translation.results import EMPTY_ALTERNATIVE, Translation
from transformer.pipelines.translation.translator import Translator
from transformer.run.recipe import parse_recipe
from transformer.run.train import train as train_by_recipe
from transformer.training.interruption import watch_signals
from transformer.training.loop import Callbacks, iterate_batches, train
from transformer.training.monitoring.layer_stats import BlockStats, block_of
from transformer.training.monitoring.progress import Position, Progress, Window
from transformer.training.monitoring.reporter import Reporter
from transformer.training.monitoring.tensorboard import TensorBoard
from transformer.training.objectives import cross_entropy as loss_module
from transformer.training.objectives.cross_entropy import smoothed_cross_entropy
from transformer.training.objectives.translation import TranslationObjective
from transformer.training.optim.adam import make_optimizer
from transformer.training.optim.schedule import make_schedule
from transformer.training.rng import derive_seed, reseed
from transformer.training.step import StepResult, TrainingState, train_step
from transformer.training.validation import validation_loss
from transformer.transformer import build_transformer


def test_paper_schedule_by_hand() -> None:
    """Catches a wrong exponent: base at 4,000 warm-up steps peaks at 6.99e-4 and halves at four times as many."""
    rate = make_schedule("paper", d_model=512, peak=None, warmup_steps=4000, decay_steps=9)
    assert rate(4000) == pytest.approx(6.9877e-4, rel=1e-4)
    assert rate(1) == pytest.approx(6.9877e-4 / 4000, rel=1e-4)
    assert rate(16000) == pytest.approx(6.9877e-4 / 2, rel=1e-4)
    with pytest.raises(ConfigError, match=r"training.learning_rate=0.1 has no meaning for schedule='paper'"):
        make_schedule("paper", d_model=512, peak=0.1, warmup_steps=4000, decay_steps=9)


@pytest.mark.parametrize(
    ("name", "at_peak_times"), [("inverse_sqrt", (0.5, 1, 0.5)), ("cosine", (0.5, 1, 0.5)), ("constant", (0.5, 1, 1))]
)
def test_schedules_rise_to_the_peak(name: str, at_peak_times: tuple[float, ...]) -> None:
    """Catches a warm-up that misses the peak, and a decay of the wrong shape."""
    rate = make_schedule(name, d_model=8, peak=0.3, warmup_steps=10, decay_steps=70)
    steps = (5, 10, 40)
    assert [rate(step) / 0.3 for step in steps] == pytest.approx(list(at_peak_times))
    if name == "cosine":
        assert rate(70) == pytest.approx(0, abs=1e-12)
    default = make_schedule(name, d_model=8, peak=None, warmup_steps=10, decay_steps=70)
    assert default(10) == pytest.approx((8 * 10) ** -0.5)


def test_unknown_schedule() -> None:
    """Catches a silent default."""
    with pytest.raises(ConfigError, match=r"training.schedule='linear' is unknown"):
        make_schedule("linear", d_model=8, peak=None, warmup_steps=1, decay_steps=1)


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
@pytest.mark.parametrize("bias", [True, False])
def test_chunked_loss_is_cross_entropy(epsilon: float, bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a wrong smoothing mass, a chunk that is lost or counted twice, and a wrong gradient (in float64)."""
    monkeypatch.setattr(loss_module, "CHUNK_ELEMENTS", 5 * 11)
    monkeypatch.setattr(loss_module, "BLOCK_ELEMENTS", 2 * 11)
    tensors = [torch.randn(*shape, dtype=torch.float64) for shape in ((17, 5), (11, 5), (11,))]
    labels = torch.randint(0, 11, (17,))
    results = []
    for is_chunked in (True, False):
        hidden, weight, offset = (tensor.clone().requires_grad_() for tensor in tensors)
        bias_or_none = offset if bias else None
        if is_chunked:
            total, nll = smoothed_cross_entropy(hidden, weight, bias_or_none, labels, epsilon)
        else:
            logits = F.linear(hidden, weight, bias_or_none)
            total = F.cross_entropy(logits, labels, reduction="sum", label_smoothing=epsilon)
            nll = F.cross_entropy(logits, labels, reduction="sum").detach()
        (total / 7).backward()
        results.append([total.detach(), nll, hidden.grad, weight.grad, offset.grad if bias else torch.zeros(1)])
    for actual, expected in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected, atol=1e-12, rtol=1e-12)


def test_loss_under_autocast_sums_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches sums of the loss or of the weight's gradient in bfloat16, where the last of 400 rows would be lost."""
    monkeypatch.setattr(loss_module, "CHUNK_ELEMENTS", 13)
    hidden = torch.full((400, 5), 0.5, requires_grad=True)
    weight = torch.zeros(13, 5, requires_grad=True)
    labels = torch.arange(400) % 13
    with torch.autocast("cpu", torch.bfloat16):
        total, nll = smoothed_cross_entropy(hidden, weight, None, labels, 0.0)
    total.backward()
    counts = torch.bincount(labels, minlength=13)
    assert total.item() == nll.item() == pytest.approx(400 * math.log(13), rel=1e-5)
    torch.testing.assert_close(weight.grad, ((400 / 13 - counts) * 0.5)[:, None].expand(13, 5), atol=0.15, rtol=0)
    assert hidden.grad.dtype == weight.grad.dtype == torch.float32


def test_a_weight_is_rounded_once_or_as_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches gradients that depend on when the weight is rounded, or that go to the rounded copy."""
    monkeypatch.setattr(loss_module, "CHUNK_ELEMENTS", 5 * 31)
    hidden, weight = torch.randn(17, 64, requires_grad=True), torch.randn(31, 64, requires_grad=True)
    labels, results = torch.randint(0, 31, (17,)), list[list[Tensor]]()
    for max_chunks in (0, 17):
        monkeypatch.setattr(loss_module, "MAX_CHUNKS_WITHOUT_COPY", max_chunks)
        with torch.autocast("cpu", torch.bfloat16):
            total, _ = smoothed_cross_entropy(hidden, weight, None, labels, 0.1)
        results.append([total.detach(), *torch.autograd.grad(total, (hidden, weight))])
    assert all(torch.equal(*pair) for pair in zip(*results, strict=True))


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
def test_loss_under_autocast_is_near_the_plain_formula(epsilon: float) -> None:
    """Catches products of the wrong rows, and errors beyond bfloat16's rounding, compared with float64."""
    hidden, weight = torch.randn(17, 64, requires_grad=True), torch.randn(31, 64, requires_grad=True)
    labels = torch.randint(0, 31, (17,))
    with torch.autocast("cpu", torch.bfloat16):
        total, _ = smoothed_cross_entropy(hidden, weight, None, labels, epsilon)
    total.backward()
    exact = [tensor.detach().double().requires_grad_() for tensor in (hidden, weight)]
    expected = F.cross_entropy(exact[0] @ exact[1].T, labels, reduction="sum", label_smoothing=epsilon)
    expected.backward()
    assert total.item() == pytest.approx(expected.item(), rel=1e-2)
    for tensor, reference in zip((hidden, weight), exact, strict=True):
        error = (tensor.grad.double() - reference.grad).norm() / reference.grad.norm()
        assert error < 2e-2


def test_loss_of_a_tied_matrix_reaches_it_from_both_sides() -> None:
    """Catches the projection's gradient overwriting the embedding's."""
    weight = torch.randn(11, 5, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([1, 2, 3])

    def total(embedding: torch.Tensor, projection: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(embedding[[4, 5, 6]] @ projection.T, labels, reduction="sum")

    smoothed_cross_entropy(weight[[4, 5, 6]], weight, None, labels, 0.0)[0].backward()
    (expected,) = torch.autograd.grad(total(weight, weight), weight)
    torch.testing.assert_close(weight.grad, expected)


def tiny_objective(dropout: float = 0.0, smoothing: float = 0.1) -> TranslationObjective:
    model = build_transformer(13, 13, 12, 12, d_model=8, N=1, h=2, d_ff=12, dropout=dropout, share_embeddings="all")
    return TranslationObjective(model, smoothing)


def pair_rows(rows: list[tuple[int, int]], pad_to: int = 0) -> PairBatch:
    """Returns random pairs of the given lengths, padded to at least `pad_to`."""
    generator = np.random.default_rng(sum(s * 31 + t for s, t in rows))
    S, T = (max(max(row[side] for row in rows) + 1, pad_to) for side in (0, 1))
    src, tgt, labels = np.zeros((len(rows), S), int), np.zeros((len(rows), T), int), np.zeros((len(rows), T), int)
    for index, (s, t) in enumerate(rows):
        draw = generator.integers(4, 13, s + t)
        src[index, : s + 1] = [*draw[:s], 2]
        tgt[index, : t + 1] = [1, *draw[s:]]
        labels[index, : t + 1] = [*draw[s:], 2]
    return PairBatch(*map(torch.from_numpy, (src, tgt, labels)), scored_tokens=sum(t + 1 for _, t in rows))


def part(batch: PairBatch, rows: slice, scored: int) -> PairBatch:
    return PairBatch(batch.src[rows], batch.tgt[rows], batch.labels[rows], scored)


def test_objective_scores_what_is_not_padding() -> None:
    """Catches padding in the loss, labels shifted by one, and a count without EOS; the oracle is F.cross_entropy."""
    objective = tiny_objective().eval()
    batch = pair_rows([(3, 4), (5, 1)])
    result = objective(batch)
    logits = objective.model(
        batch.src, batch.tgt, (batch.src != 0)[:, None, None], torch.ones(5, 5).tril().bool()[None, None]
    )
    expected = F.cross_entropy(
        logits.flatten(0, 1), batch.labels.flatten(), ignore_index=0, reduction="sum", label_smoothing=0.1
    )
    assert result.count == 7
    torch.testing.assert_close(result.loss_sum, expected)
    wider = objective(pair_rows([(3, 4), (5, 1)], pad_to=9))
    torch.testing.assert_close(wider.loss_sum, result.loss_sum)


def state_of(objective: nn.Module, seed: int = 1) -> TrainingState:
    return TrainingState(objective, make_optimizer(objective), step=0, seed=seed)


@pytest.mark.skipif(library() is None or len(os.sched_getaffinity(0)) < 2, reason="needs the kernels and two cores")
@pytest.mark.parametrize(("is_compiled", "n_cores"), [(False, 1), (True, len(os.sched_getaffinity(0)))])
def test_the_main_thread_keeps_a_core_in_an_update_alone(is_compiled: bool, n_cores: int) -> None:
    """Catches updates that are not bound, cores that are kept, and threads of a compiler that inherit one core."""
    state, seen = state_of(tiny_objective()), list[int]()
    state.backend = replace(state.backend, is_compiled=is_compiled)
    state.objective.register_forward_hook(lambda *_: seen.append(len(os.sched_getaffinity(0))))
    threads, free = torch.get_num_threads(), os.sched_getaffinity(0)
    torch.set_num_threads(len(free))
    try:
        train_step(state, [pair_rows([(3, 9)])], 0.01, clip_norm=0.0)
    finally:
        torch.set_num_threads(threads)
    assert seen == [n_cores]
    assert os.sched_getaffinity(0) == free


def test_accumulation_gives_the_same_update() -> None:
    """Catches a mean of means: micro-batches of unequal token counts must weigh by their tokens."""
    weights = []
    for cut in (False, True):
        torch.manual_seed(5)
        state = state_of(tiny_objective())
        whole = pair_rows([(3, 9), (5, 1), (2, 2)])
        batches = [part(whole, slice(0, 1), 10), part(whole, slice(1, 3), 5)] if cut else [whole]
        result = train_step(state, batches, 0.01, clip_norm=0.0)
        assert result.count == 15
        weights.append((result.loss, result.gradient_norm, state.objective.model.projection_layer.proj.weight))
    assert weights[0][0] == pytest.approx(weights[1][0], rel=1e-5)
    assert weights[0][1] == pytest.approx(weights[1][1], rel=1e-4)


def test_clipping_bounds_the_gradient_and_reports_it_before() -> None:
    """Catches a norm reported after clipping, and clipping that is not applied: SGD at rate 1 moves by the norm."""
    objective = tiny_objective()
    state = TrainingState(objective, torch.optim.SGD(objective.parameters(), lr=0.0), 0, 1)
    before = [parameter.detach().clone() for parameter in objective.parameters()]
    result = train_step(state, [pair_rows([(3, 4)])], 1.0, clip_norm=0.01)
    moved = math.sqrt(sum((a - b).square().sum().item() for a, b in zip(objective.parameters(), before, strict=True)))
    assert result.gradient_norm > 0.02
    assert moved == pytest.approx(0.01, rel=1e-3)


def test_a_fused_optimizer_clips_as_the_formula_does() -> None:
    """Catches a divisor that is inverted, applied twice, or applied to a gradient below the limit."""
    objectives = [tiny_objective() for _ in range(2)]
    objectives[1].load_state_dict(objectives[0].state_dict())
    optimizers = [
        torch.optim.Adam(objective.parameters(), lr=0.0, fused=i == 0) for i, objective in enumerate(objectives)
    ]
    states = [TrainingState(*pair, 0, 1) for pair in zip(objectives, optimizers, strict=True)]
    for clip_norm in (0.01, 100.0, 0.01):
        for state in states:
            train_step(state, [pair_rows([(3, 4)])], 0.01, clip_norm=clip_norm)
    for fused, unfused in zip(*(objective.parameters() for objective in objectives), strict=True):
        for name in ("exp_avg", "exp_avg_sq"):
            torch.testing.assert_close(optimizers[0].state[fused][name], optimizers[1].state[unfused][name])


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("share", [0.99, 1.01])
def test_a_gradient_barely_above_the_limit_is_scaled(share: float, fused: bool) -> None:
    """Catches a limit that holds only far above it, and one that scales what is below it."""
    objective, batch = tiny_objective(), pair_rows([(3, 4)])
    probe = TrainingState(objective, torch.optim.SGD(objective.parameters(), lr=0.0), 0, 1)
    norm = train_step(probe, [batch], 0.0, clip_norm=0.0).gradient_norm
    optimizer = torch.optim.Adam(objective.parameters(), lr=0.0, fused=fused)
    result = train_step(TrainingState(objective, optimizer, 0, 1), [batch], 0.0, clip_norm=norm * share)
    means = [optimizer.state[parameter]["exp_avg"].double() for parameter in objective.parameters()]
    used = 10 * math.sqrt(sum(mean.square().sum().item() for mean in means))  # 1 - beta_1 = 0.1 of the gradient
    assert result.gradient_norm == pytest.approx(norm, rel=1e-5)
    assert used == pytest.approx(norm * min(share, 1.0), rel=1e-4)


class InfiniteLoss(torch.nn.Module):
    """An infinite loss with a finite gradient."""

    def __init__(self, objective: TranslationObjective) -> None:
        super().__init__()
        self.objective = objective

    def forward(self, batch: PairBatch) -> LossSum:
        """Returns the infinite loss of a batch."""
        result = self.objective(batch)
        return LossSum(result.loss_sum + math.inf, result.count, result.metrics)


def test_a_batch_that_is_left_out_does_not_shorten_the_next() -> None:
    """Catches a divisor that was set for a gradient which was then discarded."""
    objective = tiny_objective()
    optimizer = torch.optim.Adam(objective.parameters(), lr=0.0, fused=True)
    batch = pair_rows([(3, 4)])
    with pytest.raises(NonFiniteError, match=r"the loss is inf \(the gradient is finite\)"):
        train_step(TrainingState(InfiniteLoss(objective), optimizer, 0, 1), [batch], 0.01, clip_norm=0.01)
    result = train_step(TrainingState(objective, optimizer, 0, 1), [batch], 0.01, clip_norm=100.0)
    moments = [optimizer.state[parameter]["exp_avg"] for parameter in objective.parameters()]
    assert torch.nn.utils.get_total_norm(moments).item() == pytest.approx(0.1 * result.gradient_norm, rel=1e-4)


def test_dropout_depends_on_seed_step_and_micro_batch_alone() -> None:
    """Catches one seed for all micro-batches, and randomness that depends on what ran before, such as a validation."""
    batch = pair_rows([(3, 4), (5, 1)])

    def losses(seed: int, step: int, n_batches: int, noise: bool = False) -> list[float]:
        """Returns the loss of each of several equal micro-batches of one step."""
        torch.manual_seed(5)
        state, sums = state_of(tiny_objective(dropout=0.4), seed), list[float]()
        state.step = step
        state.objective.register_forward_hook(lambda *call: sums.append(call[2].loss_sum.item()))
        if noise:
            torch.rand(17)
        result = train_step(state, [batch] * n_batches, 0.0, 0.0)
        assert result.loss == pytest.approx(sum(sums) / (n_batches * batch.scored_tokens), rel=1e-6)
        return sums

    three = losses(1, 3, 3)
    assert losses(1, 3, 3, noise=True) == three
    assert losses(1, 3, 2) == three[:2]
    assert len({*three, *losses(1, 4, 3), *losses(2, 3, 3)}) == 9
    assert derive_seed(1, 23) != derive_seed(12, 3)
    reseed(1, 2)
    first = torch.rand(1)
    reseed(1, 2)
    assert torch.equal(first, torch.rand(1))


class Explodes(nn.Module):
    """A loss that is not a number."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))

    def forward(self, batch: PairBatch) -> LossSum:
        """NaN, with a gradient."""
        loss = (self.weight * math.nan).sum()
        return LossSum(loss, 1, {"nll_sum": loss.detach()})


def test_a_loss_that_is_not_finite_stops_before_the_update() -> None:
    """Catches NaN written into the parameters."""
    objective = Explodes()
    with pytest.raises(NonFiniteError, match=r"the loss is nan \(gradient not finite in 1 parameters, first in weight"):
        train_step(state_of(objective), [pair_rows([(1, 1)])], 0.1, 0.0)
    assert torch.equal(objective.weight, torch.ones(2))
    assert objective.weight.grad is None


def test_adam_has_the_papers_settings() -> None:
    """Catches torch's defaults, and a shared matrix that is updated twice."""
    objective = tiny_objective()
    optimizer = make_optimizer(objective)
    (group,) = optimizer.param_groups
    assert (group["betas"], group["eps"]) == ((0.9, 0.98), 1e-9)
    assert len(group["params"]) == len(set(map(id, objective.parameters())))


def test_adams_memory_is_there_before_the_first_update_and_changes_none() -> None:
    """Catches moments allocated during the first update, which fragments memory, and updates that differ.

    The reference is PyTorch's Adam, which allocates its moments in the first update.
    """
    objective = tiny_objective()
    optimizer = make_optimizer(objective)
    assert all({"step", "exp_avg", "exp_avg_sq"} == optimizer.state[p].keys() for p in objective.parameters())
    reference_objective = copy.deepcopy(objective)
    reference_optimizer = torch.optim.Adam(
        reference_objective.parameters(), lr=0.1, betas=(0.9, 0.98), eps=1e-9, fused=True
    )
    optimizer.param_groups[0]["lr"] = 0.1
    for _ in range(3):
        for parameter, reference in zip(objective.parameters(), reference_objective.parameters(), strict=True):
            parameter.grad = torch.randn_like(parameter)
            reference.grad = parameter.grad.clone()
        optimizer.step()
        reference_optimizer.step()
    for parameter, reference in zip(objective.parameters(), reference_objective.parameters(), strict=True):
        assert torch.equal(parameter, reference)


def test_weight_decay_is_that_of_matrices_alone() -> None:
    """Catches decay of biases and norms, decay of nothing, and decay that is added to the gradient as in plain L2."""
    objective = tiny_objective()
    for parameter in objective.parameters():
        nn.init.normal_(parameter)
    before = copy.deepcopy(objective)
    optimizer = make_optimizer(objective, weight_decay=0.3)
    for group in optimizer.param_groups:
        group["lr"] = 0.1
    for parameter in objective.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    kinds = {parameter.dim() for parameter in objective.parameters()}
    assert kinds == {1, 2}
    for parameter, old in zip(objective.parameters(), before.parameters(), strict=True):
        torch.testing.assert_close(parameter, old * (1 - 0.1 * 0.3) if parameter.dim() == 2 else old)


def test_adam_with_weight_decay_is_torchs_adamw() -> None:
    """Catches other betas or another epsilon where weight decay is on; the reference has a loop per parameter."""
    objective = tiny_objective()
    reference = copy.deepcopy(objective)
    optimizer = make_optimizer(objective, weight_decay=0.3)
    settings = {"lr": 0.1, "betas": (0.9, 0.98), "eps": 1e-9, "foreach": False, "fused": False}
    references = [
        torch.optim.AdamW([parameter], weight_decay=0.3 if parameter.dim() == 2 else 0.0, **settings)
        for parameter in reference.parameters()
    ]
    for group in optimizer.param_groups:
        group["lr"] = 0.1
    for _ in range(5):
        for parameter, expected in zip(objective.parameters(), reference.parameters(), strict=True):
            parameter.grad = torch.randn_like(parameter)
            expected.grad = parameter.grad.clone()
        for stepped in (optimizer, *references):
            stepped.step()
    for parameter, expected in zip(objective.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(parameter, expected, atol=1e-5, rtol=1e-5)


class Digits:
    """A dataset of twelve pairs of equal length."""

    lengths = np.full((12, 2), 4, dtype=np.int32)
    mix = ()

    def fetch(self, ids: np.ndarray) -> PairBatch:
        """Returns the pairs with the given ids; the first token depends on the id."""
        rows = torch.tensor([[int(n) % 9 + 4, 5, 6] for n in ids])
        labels = torch.cat([rows, torch.full((len(ids), 1), 2)], dim=1)
        bos = torch.full((len(ids), 1), 1)
        return PairBatch(labels, torch.cat([bos, rows], dim=1), labels, scored_tokens=labels.numel())


def run_loop(
    tmp_path: Path,
    scores: list[float],
    progress: Progress | None = None,
    losses: Sequence[float] = (1.0,),
    rate: float = 1e-3,
    **config: object,
) -> tuple[Progress, list[int]]:
    """Runs the loop with made-up validation scores; returns progress and the steps at which it saved."""
    saved: list[int] = []
    remaining_scores, remaining_losses = iter(scores), cycle(losses)
    settings = training_settings(batch_tokens=16, best_metric="bleu", **config)
    reporter = Reporter(tmp_path / "metrics.jsonl", settings.max_steps, 1, quiet=True)
    with closing(reporter), watch_signals() as interruption:

        def validate() -> dict[str, float]:
            value = next(remaining_scores)
            if value == -1:
                os.kill(os.getpid(), signal.SIGTERM)
            return {"bleu": float(value), "loss": next(remaining_losses)}

        callbacks = Callbacks(validate, lambda progress: saved.append(progress.step), reporter, interruption)
        schedule = make_schedule("constant", d_model=8, peak=rate, warmup_steps=1, decay_steps=99)
        state = state_of(tiny_objective())
        state.step = progress.step if progress else 0
        result = train(state, Digits(), settings, schedule, progress or Progress(), callbacks)
    return result, saved


def test_loop_validates_saves_and_stops_at_max_steps(tmp_path: Path) -> None:
    """Catches intervals that are off by one, a missing last checkpoint, and a best step that is the last."""
    progress, saved = run_loop(tmp_path, [3, 9, 5, 4], max_steps=7, validate_every=2, save_every=3)
    assert (progress.best_step, progress.best_score, progress.stale) == (4, 9, 2)
    assert (progress.step, progress.finished) == (7, "max_steps")
    assert saved == [2, 3, 4, 6, 7]
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if row["kind"] == "train"] == list(range(1, 8))
    assert [row["bleu"] for row in rows if row["kind"] == "validation"] == [3, 9, 5, 4]


@pytest.mark.parametrize("first", [0, 5])
def test_update_n_has_the_learning_rate_of_step_n(first: int, tmp_path: Path) -> None:
    """Catches a schedule that is one step ahead or behind, also after resuming, and a logged rate that is not used."""
    rates: list[float] = []
    state = state_of(tiny_objective())
    state.step = first
    state.optimizer.register_step_pre_hook(lambda optimizer, *_: rates.append(optimizer.param_groups[0]["lr"]))
    settings = training_settings(max_steps=first + 4, batch_tokens=16, best_metric="bleu")
    reporter = Reporter(tmp_path / "metrics.jsonl", settings.max_steps, 1, quiet=True)
    with closing(reporter), watch_signals() as interruption:
        callbacks = Callbacks(lambda: {"bleu": 1.0, "loss": 1.0}, lambda progress: None, reporter, interruption)
        train(state, Digits(), settings, lambda step: step / 1024, Progress(step=first), callbacks)
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    expected = [step / 1024 for step in range(first + 1, first + 5)]
    assert rates == expected
    assert [row["learning_rate"] for row in rows if row["kind"] == "train"] == expected


def test_epoch_intervals_and_patience(tmp_path: Path) -> None:
    """Catches patience that never runs out; a NaN score is never best, but patience counts it."""
    progress, saved = run_loop(tmp_path, [5, math.nan, 4], max_steps=99, patience=2)
    assert (progress.best_step, progress.finished, progress.step) == (3, "patience", 9)
    assert saved == [3, 6, 9]


def test_a_model_of_nan_is_not_the_best_for_its_bleu(tmp_path: Path) -> None:
    """Catches a first BLEU of 0.0 that counts as the best although the loss of the model is NaN."""
    progress, saved = run_loop(tmp_path, [0, 0, 0], max_steps=3, validate_every=1, save_every=9, losses=[math.nan] * 3)
    assert (progress.best_step, progress.best_score, progress.leaders, saved) == (None, None, [], [3])
    progress, _ = run_loop(tmp_path, [7, 9, 8], max_steps=3, validate_every=1, losses=[1.0, math.inf, 1.0])
    assert progress.best_step == 3


def test_ruined_parameters_are_not_saved(tmp_path: Path) -> None:
    """Catches a checkpoint of an update that overflowed, which replaces intact ones."""
    with pytest.raises(
        TrainingError, match=r"step 1: model\..* is not finite after the update; checkpoints are unchanged"
    ):
        run_loop(tmp_path, [1], max_steps=2, save_every=1, rate=1e39, precision="float32")


def test_a_signal_finishes_the_step_and_saves(tmp_path: Path) -> None:
    """Catches a run that ends in the middle of a step, and one that ignores the signal."""
    progress, saved = run_loop(tmp_path, [5, -1, 7, 8], max_steps=99, validate_every=2, save_every=50)
    assert (progress.step, progress.finished, saved[-1]) == (4, None, 4)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_nothing_is_trained_beyond_the_end(tmp_path: Path) -> None:
    """Catches an extra update when a finished run is resumed, and patience that cannot be raised."""
    done, saved = run_loop(tmp_path, [], Progress(step=7), max_steps=7)
    assert (done.step, done.finished, saved) == (7, "max_steps", [])
    stale = Progress(step=6, stale=2, best_score=9.0)
    assert run_loop(tmp_path, [], stale, max_steps=99, patience=2)[0].finished == "patience"
    assert run_loop(tmp_path, [1, 1], stale, max_steps=99, patience=4)[0].step == 12


def test_patience_counts_after_the_warm_up(tmp_path: Path) -> None:
    """Catches runs that stop because nothing improved while the learning rate was still rising."""
    progress, _ = run_loop(tmp_path, [0, 0, 0, 0, 0], max_steps=99, patience=2, validate_every=2, warmup_steps=6)
    assert progress.step == 10


def test_signals_are_left_alone_off_the_main_thread() -> None:
    """Catches `signal.signal` raising when training is called from a worker thread."""
    seen: list[bool] = []

    def work() -> None:
        with watch_signals() as interruption:
            seen.append(interruption.requested)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [False]


def test_lines_of_steps_to_be_done_again_are_removed(tmp_path: Path) -> None:
    """Catches a curve that zigzags after a kill, and NaN written as invalid JSON."""
    path = tmp_path / "m.jsonl"
    path.write_text('{"kind": "train", "step": 4, "loss": 1}\n{"kind": "train", "step": 8, "loss": 2}\n')
    reporter = Reporter(path, 9, 1, start=Progress(step=5), quiet=True)
    ruined = StepResult(1.0, 1.0, 1, math.inf, {"encoder.layers.0": BlockStats(math.nan, math.inf, 1.0)})
    reporter.step(Progress(step=6, window=Window(seconds=1.0)), ruined, 1e-3)
    reporter.validation(6, {"loss": math.nan}, is_best=False)
    reporter.close()
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [4, 6, 6, 6]
    assert not {"NaN", "Infinity"} & set(re.findall(r"\w+", path.read_text()))


def test_batches_left_out_before_the_next_update_stay_told(tmp_path: Path) -> None:
    """Catches the removal of lines that no run writes again: data resumes after that batch."""
    path = tmp_path / "m.jsonl"
    entries = [("train", 5), ("skipped", 6), ("skipped", 6), ("train", 6), ("skipped", 7)]
    path.write_text("".join(json.dumps({"kind": kind, "step": step}) + "\n" for kind, step in entries))
    Reporter(path, 9, 1, start=Progress(step=5, skipped_nonfinite=1), quiet=True).close()
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["kind"], line["step"]) for line in rows] == entries[:2]


def test_a_continued_run_sees_the_batches_it_would_have_seen() -> None:
    """Catches a data position that restarts at the beginning of the epoch, or of the data."""
    settings = training_settings(batch_tokens=16)
    unbroken = iterate_batches(Digits(), settings, Position())
    batches = [next(unbroken) for _ in range(9)]
    expected = [batch.ids.tolist() for batch in batches]
    for step in (1, 2, 3, 4, 7):
        batch = next(iterate_batches(Digits(), settings, batches[step - 1].after))
        assert (batch.ids.tolist(), batch.after) == (expected[step], batches[step].after)
    positions = [Position(0, 1), Position(0, 2), Position(1, 0), Position(1, 1)]
    assert [batch.after for batch in batches[:4]] == positions
    assert [batch.epoch for batch in batches[:7]] == [0, 0, 0, 1, 1, 1, 2]
    assert sorted(chain(*expected[:3])) == sorted(chain(*expected[3:6])) == list(range(12))


@pytest.mark.slow
def test_validation_takes_no_more_at_once_than_training(
    digit_corpus: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a validation of whole batches, which needs the memory that accumulation saves."""
    forward, tokens = TranslationObjective.forward, list[int]()

    def recorded_forward(self: TranslationObjective, batch: PairBatch) -> LossSum:
        if not self.training:
            tokens.append(max(batch.src.numel(), batch.labels.numel()))
        return forward(self, batch)

    monkeypatch.setattr(TranslationObjective, "forward", recorded_forward)
    recipe = parse_recipe(tiny_recipe(digit_corpus, batch_tokens=256, accumulation=4, max_steps=1))
    train_by_recipe(recipe, tmp_path / "run", quiet=True)
    assert tokens
    assert max(tokens) <= 256 // 4


def test_validation_rehearses_its_largest_batch_and_keeps_lines_in_order(
    digit_corpus: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a first validation that needs more memory than was predicted, and outputs in the order of batches."""
    batches: list[list[str]] = []
    limits: list[tuple[int, int]] = []
    substitute(monkeypatch, "translation.BATCH_TOKENS", 64)

    def echo(self: Translator, lines: Sequence[str]) -> list[Translation]:
        batches.append(list(lines))
        limits.append((self.search.min_tokens, self.max_target_tokens))
        return [Translation((replace(EMPTY_ALTERNATIVE, text=line.upper()),)) for line in lines]

    monkeypatch.setattr(Translator, "translations", echo)
    recipe = parse_recipe(tiny_recipe(digit_corpus, batch_tokens=256, max_steps=1, seed=1))  # it draws these lines
    train_by_recipe(recipe, tmp_path / "run", quiet=True)
    warm_up, *validated = batches
    (min_tokens, max_tokens), *others = limits
    assert min_tokens == max_tokens - 1  # all translations of the warm-up have the maximum length
    assert 50 < max_tokens < 64
    assert others == [(0, 96)] * len(validated)
    assert len(validated) > 1
    assert warm_up in validated
    assert len(warm_up) == max(map(len, validated))
    rows = [json.loads(line) for line in (tmp_path / "run" / "translations.jsonl").read_text().splitlines()]
    assert len(rows) == sum(map(len, validated)) == 20
    assert all(row["output"] == row["source"].upper() for row in rows)


def test_validation_loss_is_over_all_tokens() -> None:
    """Catches a mean of batch means, dropout left on, and perplexity of the smoothed loss."""
    objective = tiny_objective(dropout=0.5)
    scores = validation_loss(objective, Digits(), batch_tokens=20)
    whole = objective(Digits().fetch(np.arange(12)))
    assert not objective.training
    assert scores["loss"] == pytest.approx(whole.loss_sum.item() / 48, rel=1e-5)
    assert scores["perplexity"] == pytest.approx(math.exp(whole.metrics["nll_sum"].item() / 48), rel=1e-5)


def test_reporter_prints_plain_lines_without_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches control characters in a log file."""
    settings = training_settings(max_steps=4, batch_tokens=48, validate_every=4, save_every=4, best_metric="bleu")
    reporter = Reporter(tmp_path / "m.jsonl", 4, 2)
    with watch_signals() as interruption:
        callbacks = Callbacks(lambda: {"bleu": 1.0, "loss": 2.0}, lambda progress: None, reporter, interruption)
        schedule = make_schedule("constant", d_model=8, peak=1e-3, warmup_steps=1, decay_steps=4)
        train(state_of(tiny_objective()), Digits(), settings, schedule, Progress(), callbacks)
    reporter.close()
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["step 2/4", "step 4/4", "step 4"]
    assert "tokens/s" in lines[0]
    assert not any("\x1b" in line for line in lines)


def test_figures_of_blocks_by_hand() -> None:
    """Catches norms after clipping, ratios to the wrong norm, and layers that are merged: SGD at rate 1."""
    objective = tiny_objective()
    state = TrainingState(objective, torch.optim.SGD(objective.parameters(), lr=0.0), 0, 1, layer_stats_every=2)
    assert train_step(state, [pair_rows([(3, 4)])], 1.0, clip_norm=0.5).blocks == {}
    before = {name: parameter.detach().clone() for name, parameter in objective.named_parameters()}
    result = train_step(state, [pair_rows([(3, 4)])], 1.0, clip_norm=0.01)
    layer = [name for name in before if name.startswith("model.encoder.layers.0.")]
    assert {"encoder.layers.0", "encoder.norm", "decoder.layers.0", "src_embed.embedding"} < result.blocks.keys()
    figures = result.blocks["encoder.layers.0"]
    size = math.sqrt(sum(before[name].square().sum().item() for name in layer))
    moved = math.sqrt(sum((objective.get_parameter(name) - before[name]).square().sum().item() for name in layer))
    assert figures.parameter_norm == pytest.approx(size, rel=1e-5)
    assert figures.update_ratio == pytest.approx(moved / size, rel=1e-4)
    assert figures.gradient_norm == pytest.approx(moved * result.gradient_norm / 0.01, rel=1e-3)
    total = math.sqrt(sum(block.gradient_norm**2 for block in result.blocks.values()))
    assert total == pytest.approx(result.gradient_norm, rel=1e-5)


def test_blocks_are_named_whatever_wraps_the_model() -> None:
    """Catches a name that changes when the model is compiled or distributed."""
    for prefix in ("", "model.", "module.model.", "_orig_mod.module.model."):
        assert block_of(f"{prefix}decoder.layers.11.cross_attention_block.W_q.weight") == "decoder.layers.11"
        assert block_of(f"{prefix}projection_layer.proj.bias") == "projection_layer.proj"
    assert block_of("weight") == "weight"


def test_tensorboard_is_told_every_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches figures at the wrong step, and a traceback where the package is missing."""
    with monkeypatch.context() as patch:
        patch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(ConfigError, match=r"training.tensorboard=true needs the package tensorboard; pip install"):
            TensorBoard(tmp_path / "none")
    pytest.importorskip("tensorboard", reason="tensorboard is not installed; pip install 'transformer[tensorboard]'")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reporter = Reporter(tmp_path / "m.jsonl", 9, 1, quiet=True, tensorboard=TensorBoard(tmp_path / "board"))
    block = BlockStats(gradient_norm=3.0, parameter_norm=2.0, update_ratio=0.5)
    result = StepResult(1.5, 1.25, 7, 0.5, {"encoder.norm": block})
    reporter.step(Progress(step=5, window=Window(seconds=1.0)), result, 1e-3)
    reporter.validation(6, {"bleu": 12.5, "loss": math.nan}, is_best=True)
    reporter.close()
    events = EventAccumulator(str(tmp_path / "board")).Reload()
    expected = {"train/loss": (5, 1.5), "blocks/update_ratio/encoder.norm": (5, 0.5), "validation/bleu": (6, 12.5)}
    assert {name: (events.Scalars(name)[0].step, events.Scalars(name)[0].value) for name in expected} == expected
    assert "validation/loss" not in events.Tags()["scalars"]
    rows = [json.loads(line) for line in (tmp_path / "m.jsonl").read_text().splitlines()]
    assert rows[1] == {
        "kind": "blocks", "step": 5, "gradient_norm": {"encoder.norm": 3.0}, "parameter_norm": {"encoder.norm": 2.0},
        "update_ratio": {"encoder.norm": 0.5},
    }  # fmt: skip
