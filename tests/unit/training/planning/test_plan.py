"""The cost of a run: operations by formula, memory by trial."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from samples import training_settings
from substitution import substitute
from transformer import build_transformer
from transformer.data.batch import ImageBatch, NeighbourBatch, PairBatch, TextBatch, WindowBatch
from transformer.data.dataset import pair_batch
from transformer.errors import ConfigError
from transformer.models import family
from transformer.training.objectives.classification import ClassificationObjective, ContrastiveObjective
from transformer.training.objectives.language_modelling import (
    LanguageModelObjective,
    MaskedLanguageModelObjective,
    SpanCorruption,
    SpanCorruptionObjective,
    n_masked,
)
from transformer.training.objectives.translation import TranslationObjective
from transformer.training.optim.adam import make_optimizer
from transformer.training.planning import memory
from transformer.training.planning.memory import (
    MemoryEstimate,
    check_batch_fits,
    check_model_fits,
    fitting_tokens,
    predict_memory,
    worst_batches,
)
from transformer.training.planning.plan import choose_batch_tokens, plan_run
from transformer.training.step import TrainingState, train_step

GIB = 2**30


class Pairs:
    """A dataset of pairs with the given lengths, EOS included."""

    mix = ()

    def __init__(self, lengths: list[tuple[int, int]]) -> None:
        self.lengths = np.array(lengths, dtype=np.int32)

    def fetch(self, ids: np.ndarray) -> PairBatch:
        """Returns the padded batch."""
        sides = [[np.full(n - 1, 5, dtype=np.int32) for n in self.lengths[ids, side]] for side in range(2)]
        return pair_batch(*sides)


def state_of(dropout: float = 0.1, *, checkpointing: bool = False, vocab_size: int = 31, **sizes: int) -> TrainingState:
    model = build_transformer(vocab_size, vocab_size, 40, 40, dropout=dropout, share_embeddings="all", **sizes)
    objective = TranslationObjective(model, 0.1, activation_checkpointing=checkpointing)
    return TrainingState(objective, make_optimizer(objective), 0, 1)


@pytest.mark.usefixtures("_by_torch")
@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("layers", [{"N": 2}, {"N": 1, "encoder_layers": 3}])
def test_operations_are_what_torch_counts(layers: dict[str, int], *, checkpointing: bool) -> None:
    """Catches a product that is left out, or counted with the wrong length or too often."""
    state = state_of(checkpointing=checkpointing, d_model=24, h=2, d_ff=52, **layers)
    dataset = Pairs([(7, 5), (3, 11), (7, 2)])
    with FlopCounterMode(display=False) as counter:
        state.objective(dataset.fetch(np.arange(3))).loss_sum.backward()
    objective = state.objective
    assert isinstance(objective, TranslationObjective)
    assert objective.flops(dataset.lengths) == pytest.approx(counter.get_total_flops(), rel=0.02)


@pytest.fixture
def _by_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disables the compiled kernels, since PyTorch only counts its own products."""
    substitute(monkeypatch, "gemm.library", lambda: None)


TOKENS = torch.randint(4, 31, (3, 21))
MASK = torch.ones(3, 1, 1, 21, dtype=torch.bool)
SIZES = {"d_model": 24, "N": 2, "h": 2, "dropout": 0.1}  # with dropout, whole layers are recomputed


def other_objectives(*, checkpointing: bool) -> dict[str, tuple[Any, Any, list[list[int]]]]:
    """Returns every objective but the translation objective, with a batch and the lengths in its dataset."""

    def model(name: str, **sizes: Any) -> torch.nn.Module:
        text = {} if name == "vit" else {"vocab_size": 31}
        kind = family(name)
        return kind.build(kind.config.model_validate({**SIZES, "d_ff": 52, **text, **sizes}))

    labels = torch.tensor([0, 1, 1])
    images = {"image_size": (12, 12), "patch_size": (4, 4), "labels": ("a", "b")}
    n, options = n_masked(21), {"activation_checkpointing": checkpointing}
    return {
        "next": (LanguageModelObjective(model("gpt", seq_len=20), 0.0, **options), WindowBatch(TOKENS, 60), [[21]] * 3),
        "masked": (
            MaskedLanguageModelObjective(model("bert", masked=True, pooler=False), 3, (4, 31), (0, 0), **options),
            WindowBatch(TOKENS, 3 * n), [[21]] * 3,
        ),
        "spans": (
            SpanCorruptionObjective(model("t5", d_k=7), (29, 30), 1, 2, 0.0, **options),
            WindowBatch(TOKENS, 3 * SpanCorruption().lengths(21)[1]), [[21]] * 3,
        ),
        "labels": (
            ClassificationObjective(model("bert", labels=("a", "b")), 0.0, **options),
            TextBatch(TOKENS, MASK, labels), [[21], [9], [3]],
        ),
        "images": (
            ClassificationObjective(model("vit", **images), 0.0, **options),
            ImageBatch(torch.randn(3, 3, 12, 12), labels), [[10]] * 3,
        ),
        "neighbours": (
            ContrastiveObjective(model("bert", pooler=False), **options),
            NeighbourBatch(TOKENS, MASK, TOKENS[:, :9], MASK[..., :9]), [[21, 9], [7, 8], [3, 3]],
        ),
    }  # fmt: skip


@pytest.mark.usefixtures("_by_torch")
@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("name", ["next", "masked", "spans", "labels", "images", "neighbours"])
def test_operations_of_the_other_tasks_are_what_torch_counts(name: str, *, checkpointing: bool) -> None:
    """Catches attention counted with the width of the model although its heads differ, and an omitted head."""
    objective, batch, lengths = other_objectives(checkpointing=checkpointing)[name]
    with FlopCounterMode(display=False) as counter:
        objective(batch).loss_sum.backward()
    flops = objective.flops(np.array(lengths, np.int32))
    assert flops == pytest.approx(counter.get_total_flops(), rel=0.02)


def test_the_worst_batches_have_the_most_padded_tokens_and_the_most_pairs_of_positions() -> None:
    """Catches a choice by pairs or by one side alone, and long rows whose attention is not tried."""
    dataset = Pairs([(2, 2), (2, 2), (2, 2), (9, 2), (3, 8)])
    batches = [np.array([0, 1, 2]), np.array([3]), np.array([4, 0])]
    assert [ids.tolist() for ids in worst_batches(dataset, batches)] == [[4, 0]]
    dataset = Pairs([(5, 5)] * 40 + [(100, 90), (60, 60), (60, 60)])
    batches = [np.arange(40), np.array([40]), np.array([41, 42])]
    assert [ids.tolist() for ids in worst_batches(dataset, batches)] == [list(range(40)), [40]]


def test_a_run_tries_what_it_will_do_and_is_refused_what_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a plan that is ignored, and a largest batch that is reported but not tried."""
    state, dataset = state_of(d_model=8, N=1, h=2, d_ff=12), Pairs([(5, 4)] * 60 + [(39, 39), (39, 38)])
    settings = training_settings(batch_tokens=200, max_steps=10)
    tried: list[tuple[int, int]] = []
    substitute(
        monkeypatch,
        "plan.try_batch",
        lambda state, dataset, ids: tried.append((len(ids), int(dataset.lengths[ids].max()))),
    )
    plan_run(state, dataset, settings)
    assert tried[:2] == [(40, 5), (2, 39)]
    n_tried = len(tried)
    monkeypatch.setattr(memory, "available_bytes", lambda _: 1000)
    with pytest.raises(ConfigError, match=r"training\.batch_tokens=200 needs about"):
        plan_run(state, dataset, settings)
    assert len(tried) == n_tried


def test_planning_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches gradients left behind, random numbers drawn, parameters moved: a run must not depend on its plan."""
    state = state_of(d_model=8, N=1, h=2, d_ff=12)
    before = [parameter.clone() for parameter in state.objective.parameters()]
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    lines = plan_run(state, Pairs([(5, 4)] * 40), training_settings(batch_tokens=100, max_steps=10))
    assert torch.equal(torch.rand(3), expected)
    for parameter, earlier in zip(state.objective.parameters(), before, strict=True):
        assert torch.equal(parameter, earlier)
        assert parameter.grad is None
    assert not any(tensor.any() for moments in state.optimizer.state.values() for tensor in moments.values())
    assert state.step == 0
    assert [title for title, _ in lines] == ["work", "time", "memory"]
    assert re.fullmatch(r"\d+\.\d\d GFLOP a step in matrix products, \d+\.\d{4} PFLOP in all", lines[0][1])
    assert re.fullmatch(r"about \d+\.\d\d GiB of \d+\.\d GiB for the largest batch or validation", lines[2][1])


def test_the_time_of_the_rest_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches the time of one part of a batch for the whole, of all steps for those left, and of a slow first batch."""
    state, clock = state_of(d_model=8, N=1, h=2, d_ff=12), iter([0.0, 90.0, 100.0, 103.0, 200.0, 203.0])
    state.step = 2000
    substitute(monkeypatch, "plan.perf_counter", lambda: next(clock))
    settings = training_settings(batch_tokens=50, max_steps=10_000, accumulation=4)
    title, text = plan_run(state, Pairs([(5, 4)] * 25), settings)[1]
    assert (title, text) == ("time", "about 26.7 hours at 12 s a step, without validations")


def test_what_is_rehearsed_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a validation that needs more memory than any batch and is not reported."""
    state, rehearsed = state_of(d_model=8, N=1, h=2, d_ff=12), list[int]()

    def peak(run: Callable[[], None]) -> int:
        run()
        return 3 * GIB if rehearsed else GIB

    monkeypatch.setattr(memory, "_peak_meter", lambda _: peak)
    settings = training_settings(batch_tokens=100, max_steps=10)
    assert "about 1.00 GiB" in plan_run(state, Pairs([(5, 4)] * 40), settings)[-1][1]
    line = plan_run(state, Pairs([(5, 4)] * 40), settings, lambda: rehearsed.append(1))[-1][1]
    assert "about 3.00 GiB" in line


def test_a_batch_beyond_memory_is_refused_with_a_budget_that_fits() -> None:
    """Catches a run that is killed for memory hours after it began."""
    plan = MemoryEstimate(rows=100, predicted=6 * GIB, available=4 * GIB, bytes_per_row=0.05 * GIB)
    # 1 GiB is fixed; 0.9 * 4 GiB leaves 2.6 GiB, 52 rows, for 52 % of the tokens in steps of 256.
    assert fitting_tokens(plan, 4096) == 2048
    with pytest.raises(ConfigError, match=r"batch_tokens=4096 needs about 6\.00 GiB, but 4\.00 GiB are available; set"):
        check_batch_fits(plan, 4096)
    with pytest.raises(ConfigError, match="choose a smaller model"):
        check_batch_fits(MemoryEstimate(10, 6 * GIB, GIB, 0.01 * GIB), 4096)
    check_batch_fits(MemoryEstimate(10, GIB, GIB, 1.0), 4096)


def test_auto_takes_what_memory_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a budget beyond the paper's, and no budget at all if memory is scarce."""
    state, dataset = state_of(d_model=8, N=1, h=2, d_ff=12), Pairs([(5, 4)] * 2000)
    for available, expected in ((10**15, 25_000), (1, 1024)):
        monkeypatch.setattr(memory, "available_bytes", lambda _, available=available: available)
        assert choose_batch_tokens(state, dataset, 1) == expected


def test_trials_end_where_the_next_would_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a trial that exhausts the machine's memory before the batch is refused."""
    state, dataset = state_of(d_model=8, N=1, h=2, d_ff=12), Pairs([(512, 4)] * 4000)
    tried: list[int] = []
    monkeypatch.setattr(memory, "available_bytes", lambda _: 100)
    monkeypatch.setattr(memory, "try_batch", lambda state, dataset, ids: tried.append(len(ids)))
    monkeypatch.setattr(memory, "_peak_meter", lambda _: lambda run: (run(), 10 * sum(tried[-1:]))[1])
    plan = predict_memory(state, dataset, np.arange(4000))
    assert tried == [1, 3, 7]  # 10 bytes per row: 7 rows take 70, and twice as many would take 140
    assert plan is not None
    assert plan.rows == 4000
    assert plan.predicted >= 40_000
    with pytest.raises(ConfigError, match=r"batch_tokens=2048000 needs"):
        check_batch_fits(plan, 2_048_000)


def test_a_model_beyond_memory_is_refused_before_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches model sizes in a recipe that exhaust the machine's memory."""
    with pytest.raises(ConfigError, match=r"a model of 32,000,000,000 parameters needs [\d,]+\.\d GiB"):
        check_model_fits(32 * 10**9, 0, torch.device("cpu"))
    # 16 bytes a parameter: value, gradient and two moments; 4 ranks share the last 12 of them.
    small = 1000, 64  # parameters, bytes of buffers
    for ranks, need in ((1, 64 + 16 * 1000), (4, 64 + 7 * 1000)):
        monkeypatch.setattr(memory, "available_bytes", lambda _, need=need: need)
        check_model_fits(*small, torch.device("cpu"), ranks)
        monkeypatch.setattr(memory, "available_bytes", lambda _, need=need: need - 1)
        with pytest.raises(ConfigError, match=r"choose a smaller model\.preset"):
            check_model_fits(*small, torch.device("cpu"), ranks)


@pytest.mark.parametrize("version", [1, 2])
def test_limits_of_the_groups_around_a_process_count(
    version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a limit of the whole machine: the limit is that of the slice above the service of the process."""
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    names = names if version == 1 else ("memory.max", "memory.current", "inactive_file")
    root = tmp_path / ("memory" if version == 1 else "")
    inner = root / "slice" / "service"
    inner.mkdir(parents=True)
    for folder, limit in ((inner.parent, str(2**30)), (inner, str(2**63 - 4096) if version == 1 else "max")):
        (folder / names[0]).write_text(limit + "\n")
        (folder / names[1]).write_text(f"{2**29}\n")
        (folder / "memory.stat").write_text(f"cache 5\n{names[2]} 4096\n")
    groups = tmp_path / "groups"
    groups.write_text(f"7:cpu:/\n{'4:memory' if version == 1 else '0:'}:/slice/service\n")
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    monkeypatch.setattr(memory, "PROCESS_CGROUPS", groups)
    resident = memory.available_bytes(torch.device("cpu")) - 2**29 - 4096
    assert 0 < resident < 2**34  # the memory of the process itself


def test_nothing_is_refused_where_the_system_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches an error on systems without Linux's files."""
    monkeypatch.setattr(memory, "MEMINFO", Path("/none"))
    state = state_of(d_model=8, N=1, h=2, d_ff=12)
    check_model_fits(10**15, 0, torch.device("cpu"))
    assert predict_memory(state, Pairs([(5, 4)] * 8), np.arange(8)) is None


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_few_rows_are_planned_for_too(rows: int) -> None:
    """Catches a batch of a few long pairs that is not reported, tried or refused."""
    plan = predict_memory(state_of(d_model=8, N=1, h=2, d_ff=12), Pairs([(5, 4)] * rows), np.arange(rows))
    assert plan is not None
    assert plan.rows == rows
    assert 2**24 < plan.predicted < plan.available


def ratio_to_peak(state: TrainingState, dataset: Pairs) -> float:
    """Returns the ratio of the predicted memory to the peak of three updates, both in this process."""
    ids = np.arange(len(dataset.lengths))
    tokens = int(dataset.lengths.max()) * len(ids)
    line = plan_run(state, dataset, training_settings(batch_tokens=tokens, max_steps=3))[-1][1]
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # resets the peak to the current usage
    for _ in range(3):
        train_step(state, [dataset.fetch(ids)], 1e-3, 1.0)
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return float(line.split()[1]) * GIB / (1024 * int(peak.split()[1]))


SHAPES: dict[str, tuple[dict[str, Any], list[tuple[int, int]]]] = {
    "many rows": ({"d_model": 128, "N": 3, "h": 4, "d_ff": 512}, [(30, 30)] * 256),
    "long rows": ({"d_model": 64, "N": 2, "h": 4, "d_ff": 128}, [(40, 39)] * 500),
    "layers computed again": ({"d_model": 256, "N": 4, "h": 4, "d_ff": 1024, "checkpointing": True}, [(30, 30)] * 64),
    "a large model": ({"d_model": 512, "N": 3, "h": 8, "d_ff": 2048}, [(30, 30)] * 32),
    "mixed lengths": ({"d_model": 128, "N": 3, "h": 4, "d_ff": 512}, [(n, n - 3) for n in range(8, 40)] * 10),
}
PROCESS = """
from tests_plan import *
sizes, pairs = SHAPES[sys.argv[1]]
print(ratio_to_peak(state_of(**sizes), Pairs(pairs)))
"""


UNFRAGMENTED = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_MMAP_MAX_": "1000000", "MALLOC_ARENA_MAX": "1"}
"""Settings of the GNU C library by which every large tensor has a mapping of its own, which its end returns."""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux lets a process reset its peak")
@pytest.mark.parametrize("shape", SHAPES)
def test_predicted_memory_is_near_the_peak(shape: str, tmp_path: Path) -> None:
    """Catches memory that is not counted: moments, gradients, and rows that were not tried.

    The heap that training retains is fragmented differently in each process, so this process has none.
    """
    (tmp_path / "tests_plan.py").write_text(Path(__file__).read_text(encoding="utf-8"), encoding="utf-8")
    call = [sys.executable, "-c", PROCESS, shape]
    path = os.pathsep.join([str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")])  # for `substitution`
    environment = {**os.environ, **UNFRAGMENTED, "PYTHONPATH": path}
    result = subprocess.run(call, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert float(result.stdout) == pytest.approx(1.0, abs=0.03)
