"""A small model learns tasks that any Transformer must learn: to copy, to reverse and to sort."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from transformer.data.dataset import pair_batch
from transformer.decoding import GREEDY, Request, search_all
from transformer.tokenizers.special_tokens import EOS_ID
from transformer.training.objectives.translation import TranslationObjective
from transformer.training.optim.adam import make_optimizer
from transformer.training.optim.schedule import make_schedule
from transformer.training.step import TrainingState, train_step
from transformer.transformer import build_transformer

VOCABULARY, LENGTH, STEPS = 14, 7, 350
Task = Callable[[np.ndarray], np.ndarray]


def examples(task: Task, n: int, generator: np.random.Generator) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Returns random sources and the targets of the task."""
    sources = [generator.integers(4, VOCABULARY, generator.integers(1, LENGTH + 1)).astype(np.int32) for _ in range(n)]
    return sources, [task(source).astype(np.int32) for source in sources]


@pytest.mark.parametrize(
    ("name", "task", "order"),
    [("copy", lambda x: x, "pre"), ("reverse", lambda x: x[::-1], "post"), ("sort", np.sort, "pre")],
)
def test_learns(name: str, task: Task, order: str) -> None:
    """Catches what tests of shapes and gradients cannot show: a model, loss or search that does not learn."""
    torch.manual_seed(1)
    model = build_transformer(
        VOCABULARY, VOCABULARY, 16, 16, d_model=48, N=2, h=4, d_ff=96, dropout=0.0, norm_order=order,
        share_embeddings="all",
    )  # fmt: skip
    objective = TranslationObjective(model, label_smoothing=0.1)
    state = TrainingState(objective, make_optimizer(objective), 0, 1)
    schedule = make_schedule("cosine", d_model=48, peak=0.004, warmup_steps=60, decay_steps=STEPS)
    generator = np.random.default_rng(5)
    for step in range(STEPS):
        train_step(state, [pair_batch(*examples(task, 96, generator))], schedule(step + 1), clip_norm=1.0)
    sources, targets = examples(task, 200, generator)
    requests = [Request([*source.tolist(), EOS_ID], LENGTH + 2) for source in sources]
    hypotheses = search_all(model.eval(), requests, GREEDY)
    is_correct = [best.tokens == target.tolist() for (best,), target in zip(hypotheses, targets, strict=True)]
    assert sum(is_correct) / len(is_correct) >= 0.95, name
