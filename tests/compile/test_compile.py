"""torch.compile on the objective; a process of its own, because the shape checks cannot be traced."""

import numpy as np
import pytest
import torch

from transformer.data.source import pair_batch
from transformer.training.objectives import TranslationObjective
from transformer.transformer import build_transformer


@pytest.mark.filterwarnings("ignore")
def test_compiled_objective_gives_the_same_loss_and_gradients() -> None:
    """Catches code in the model that tracing changes: Python state, data-dependent shapes."""
    torch.manual_seed(3)
    model = build_transformer(17, 17, 12, 12, d_model=16, N=1, h=2, d_ff=24, dropout=0.0, share_embeddings="all")
    objective = TranslationObjective(model, label_smoothing=0.1)
    generator = np.random.default_rng(1)
    rows = [generator.integers(4, 17, n).astype(np.int32) for n in (3, 7, 5)]
    batch = pair_batch(rows, rows[::-1])
    results = []
    for run in (objective, torch.compile(objective, backend="aot_eager")):
        objective.zero_grad()
        result = run(batch)
        result.loss_sum.backward()
        results.append((result.loss_sum.detach(), [parameter.grad for parameter in objective.parameters()]))
    torch.testing.assert_close(results[1], results[0], atol=1e-4, rtol=1e-4)
