"""R-Drop: its loss and gradient compared with `kl_div` and autograd in float64, and its use by objectives."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from samples import write_lines
from transformer import build_transformer
from transformer.data.batch import PairBatch
from transformer.errors import ConfigError
from transformer.kernels import unavailable_reason
from transformer.kernels.cross_entropy import to_gradient
from transformer.run.recipe import parse_recipe
from transformer.run.train import train
from transformer.training.backend import CPU_FLOAT32
from transformer.training.objectives import cross_entropy as loss_module
from transformer.training.objectives.cross_entropy import smoothed_cross_entropy
from transformer.training.objectives.translation import TranslationObjective


def r_drop(logits: Tensor, labels: Tensor, epsilon: float, alpha: float) -> Tensor:
    """Computes Liang et al. 2021, Eqs. 2 to 4, for rows 2i and 2i + 1, summed over all pairs."""
    log_p, log_q = (logits[first::2].log_softmax(dim=-1) for first in (0, 1))
    divergence = F.kl_div(log_q, log_p, reduction="sum", log_target=True)
    divergence = divergence + F.kl_div(log_p, log_q, reduction="sum", log_target=True)
    return F.cross_entropy(logits, labels, reduction="sum", label_smoothing=epsilon) + alpha * divergence / 2


@pytest.mark.parametrize("bias", [True, False])
def test_chunked_loss_is_the_formula(bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a pair split between chunks or blocks, a divergence of one direction, and a wrong gradient."""
    monkeypatch.setattr(loss_module, "CHUNK_ELEMENTS", 5 * 11)
    monkeypatch.setattr(loss_module, "BLOCK_ELEMENTS", 3 * 11)
    labels = torch.randint(0, 11, (9,)).repeat_interleave(2)
    tensors = [torch.randn(*shape, dtype=torch.float64) for shape in ((18, 5), (11, 5), (11,))]
    inputs, reference_inputs = (
        [tensor.clone().requires_grad_() for tensor in tensors[: 3 if bias else 2]] for _ in range(2)
    )
    total, nll = smoothed_cross_entropy(inputs[0], inputs[1], inputs[2] if bias else None, labels, 0.1, 5.0)
    expected = r_drop(F.linear(*reference_inputs), labels, 0.1, 5.0)
    torch.testing.assert_close(total, expected)
    torch.testing.assert_close(nll, F.cross_entropy(F.linear(*reference_inputs), labels, reduction="sum").detach())
    for gradient, reference in zip(
        torch.autograd.grad(total, inputs), torch.autograd.grad(expected, reference_inputs), strict=True
    ):
        torch.testing.assert_close(gradient, reference, atol=1e-12, rtol=1e-12)


@pytest.mark.skipif(unavailable_reason() is not None, reason=f"no compiled kernels: {unavailable_reason()}")
@pytest.mark.parametrize("size", [2, 64, 1001])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_kernel_is_the_formula(size: int, dtype: torch.dtype) -> None:
    """Catches lanes beyond the last token in a divergence, and a row that is overwritten before its pair is read."""
    logits = (torch.randn(14, size) * 3).to(dtype)
    labels = torch.randint(0, size, (7,)).repeat_interleave(2)
    exact = logits.double().requires_grad_()
    expected = r_drop(exact, labels, 0.1, 5.0)
    expected.backward()
    losses = to_gradient(logits, labels, 0.1, 5.0)
    assert losses[:, 0].sum().item() == pytest.approx(expected.item(), rel=1e-5)
    plain = F.cross_entropy(exact, labels, reduction="none").detach()
    torch.testing.assert_close(losses[:, 1], plain, atol=1e-4, rtol=1e-5)
    tolerance = 1e-4 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(logits.double(), exact.grad, atol=tolerance, rtol=tolerance)
    with pytest.raises(ValueError, match="do not match logits"):
        to_gradient(logits[:13], labels[:13], 0.1, 5.0)


def objective(dropout: float, alpha: float, **settings: bool) -> TranslationObjective:
    """Returns the objective of a tiny model, whose weights are the same in each call."""
    torch.manual_seed(3)
    model = build_transformer(13, 13, 12, 12, d_model=8, N=1, h=2, d_ff=12, dropout=dropout, share_embeddings="all")
    return TranslationObjective(model, 0.1, r_drop=alpha, **settings)


PAIRS = PairBatch(
    src=torch.tensor([[5, 6, 2], [7, 2, 0]]),
    tgt=torch.tensor([[1, 8, 9, 4], [1, 5, 0, 0]]),
    labels=torch.tensor([[8, 9, 4, 2], [5, 2, 0, 0]]),
    scored_tokens=6,
)


def test_every_pair_is_seen_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches pairs of positions of different sentences, one dropout mask for both, and a doubled count."""
    r_drop_objective = objective(0.4, 5.0).train()
    decoder_outputs: list[Tensor] = []
    decode = r_drop_objective.model.decode
    monkeypatch.setattr(
        r_drop_objective.model, "decode", lambda *args: decoder_outputs.append(decode(*args)) or decoder_outputs[0]
    )
    result = r_drop_objective(PAIRS)
    logits = r_drop_objective.model.projection_layer.proj(decoder_outputs[0])
    assert not torch.equal(logits[0], logits[1])
    scored = PAIRS.labels != 0
    expected = sum(
        r_drop(logits[2 * row : 2 * row + 2, column], PAIRS.labels[row, column].repeat(2), 0.1, 5.0)
        for row, column in scored.nonzero().tolist()
    )
    torch.testing.assert_close(result.loss_sum, expected / 2)
    assert result.count == 6


def test_without_dropout_or_training_it_is_the_plain_loss() -> None:
    """Catches two passes or a divergence in validation, and a divergence of equal passes."""
    plain = objective(0.0, 0.0)(PAIRS)
    torch.testing.assert_close(objective(0.0, 5.0)(PAIRS).loss_sum, plain.loss_sum)
    torch.testing.assert_close(objective(0.4, 5.0).eval()(PAIRS).loss_sum, plain.loss_sum)
    torch.testing.assert_close(objective(0.0, 5.0)(PAIRS).metrics["nll_sum"], plain.metrics["nll_sum"])


def test_layers_computed_again_draw_the_same() -> None:
    """Catches copies of a pair whose dropout masks differ between the forward and the backward pass."""
    gradients = []
    for checkpointing in (False, True):
        r_drop_objective = objective(0.4, 5.0, activation_checkpointing=checkpointing).train()
        torch.manual_seed(8)
        with CPU_FLOAT32.compute_context():
            loss = r_drop_objective(PAIRS).loss_sum
        loss.backward()
        gradients.append([parameter.grad for parameter in r_drop_objective.parameters()])
    for expected, actual in zip(*gradients, strict=True):
        torch.testing.assert_close(expected, actual)


def test_rows_of_other_labels_are_no_pairs() -> None:
    """Catches rows in another order, whose divergence would compare two positions."""
    for labels in ([1, 2], [1, 1, 2]):
        with pytest.raises(ValueError, match="must have one label"):
            smoothed_cross_entropy(torch.randn(len(labels), 4), torch.randn(5, 4), None, torch.tensor(labels), 0.1, 5.0)


def test_two_passes_are_counted_in_the_plan() -> None:
    """Catches a plan with half of the operations."""
    lengths = np.array([[3, 4], [2, 2]], dtype=np.int32)
    assert objective(0.4, 5.0).flops(lengths) == 2 * objective(0.4, 0.0).flops(lengths)


def test_other_tasks_refuse_it(tmp_path: Path) -> None:
    """Catches a setting that is accepted but has no effect."""
    text = write_lines(tmp_path / "text.txt", ["some words of a text"] * 50)
    tree = {"data": {"task": "language-model", "text": str(text)}, "training": {"max_steps": 1, "r_drop": 5.0}}
    with pytest.raises(ConfigError, match=r"training\.r_drop works with data\.task=.translation. only"):
        train(parse_recipe(tree), tmp_path / "run", quiet=True)


def test_without_dropout_it_is_refused(tmp_path: Path) -> None:
    """Catches a run that computes everything twice without effect."""
    text = [write_lines(tmp_path / side, [f"some words of text {n}" for n in range(60)]) for side in ("a", "b")]
    tree = {
        "data": {"source": str(text[0]), "target": str(text[1])},
        "model": {"dropout": 0.0},
        "training": {"max_steps": 1, "r_drop": 5.0},
    }
    with pytest.raises(ConfigError, match=r"the dropout is 0; set model\.dropout"):
        train(parse_recipe(tree), tmp_path / "run", quiet=True)
