"""Training on a GPU, if there is one, beside training on the CPU."""

import copy

import pytest
import torch

from transformer.data.batch import PairBatch
from transformer.training.backend import Backend
from transformer.training.objectives.translation import TranslationObjective
from transformer.training.optim.adam import make_optimizer
from transformer.training.step import TrainingState, train_step
from transformer.transformer import build_transformer

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")]


@pytest.mark.parametrize("r_drop", [0.0, 2.0])
def test_a_gpu_trains_as_a_cpu_does(r_drop: float) -> None:
    """Catches a loss or gradient that differs on a GPU: masks, padding, shared weights, chunks of the loss.

    With Adam's usual epsilon, gradients that are zero but for rounding would move weights as far as others.
    """
    torch.manual_seed(1)
    model = build_transformer(50, 50, 16, 16, d_model=32, N=2, h=2, d_ff=48, dropout=0.0, share_embeddings="all")
    src, tgt, labels = (torch.randint(4, 50, (6, 9)) for _ in range(3))
    src[:3, 6:] = labels[2:, 5:] = tgt[2:, 5:] = 0
    batch = PairBatch(src, tgt, labels, int((labels != 0).sum()))
    norms, losses, weights = [], [], []
    for device in ("cpu", "cuda"):
        objective = TranslationObjective(copy.deepcopy(model).to(device), 0.1, r_drop=r_drop)
        backend = Backend(torch.device(device), "float32")
        state = TrainingState(objective, make_optimizer(objective, eps=1e-3), step=0, seed=1, backend=backend)
        for _ in range(3):
            result = train_step(state, [batch], 1e-3, 1.0)
            assert result is not None
            losses.append(result.loss)
            norms.append(result.gradient_norm)
        weights.append(torch.cat([parameter.detach().flatten().cpu() for parameter in objective.parameters()]))
    assert losses[3:] == pytest.approx(losses[:3], rel=1e-5)
    assert norms[3:] == pytest.approx(norms[:3], rel=1e-4)
    torch.testing.assert_close(weights[1], weights[0], rtol=0, atol=1e-5)
