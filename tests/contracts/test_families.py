"""What every family keeps, at each of its presets with prime sizes. A family is found by its folder."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from transformer.blocks import causal_mask, padding_mask
from transformer.bundle import Bundle, load_bundle, save_bundle
from transformer.decoding import GREEDY, Request, search_all
from transformer.models import family, family_names
from transformer.settings import Settings
from transformer.text.pair import TokenizerPair
from transformer.text.settings import TokenizerSettings

B, S, T = 3, 7, 5
VOCABULARY = 263


PRESETS = [(name, preset) for name in family_names() for preset in family(name).presets()]


def small(name: str, preset: str) -> tuple[Settings, nn.Module]:
    """A preset, narrow unless it is `tiny`, with every parameter random, in evaluation mode."""
    torch.manual_seed(11)
    found = family(name)
    sizes = {"src_vocab_size": VOCABULARY, "tgt_vocab_size": VOCABULARY, "dropout": 0.1, "d_ff": 37}
    narrow = {} if preset == "tiny" else {"d_model": 22, "h": 11}
    config = found.config.model_validate({**found.presets()[preset], **sizes, **narrow})
    model = found.build(config)
    for parameter in model.parameters():
        nn.init.normal_(parameter, mean=float(parameter.dim() == 1), std=0.1)
    return config, model.eval()


@pytest.fixture(params=PRESETS, ids="-".join)
def named(request: pytest.FixtureRequest) -> tuple[Settings, nn.Module]:
    return small(*request.param)


@pytest.fixture
def batch() -> tuple[Tensor, Tensor, Tensor]:
    src, tgt = torch.randint(4, VOCABULARY, (B, S)), torch.randint(4, VOCABULARY, (B, T))
    src[1, 5:] = 0
    return src, tgt, padding_mask(src)


def logits(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    src, tgt, src_mask = batch
    return model(src, tgt, src_mask, causal_mask(tgt.size(1)))


@pytest.mark.parametrize("name", family_names())
def test_tiny_has_two_of_everything(name: str) -> None:
    """Catches a preset on which a mix-up of layers or heads would not show."""
    sizes = small(name, "tiny")[0].model_dump()
    assert min(sizes["N"], sizes["h"]) >= 2


def test_save_and_load_give_equal_logits(
    named: tuple[Settings, nn.Module], batch: tuple[Tensor, Tensor, Tensor], tmp_path: Path
) -> None:
    """Catches a parameter or buffer that is not stored, to the bit."""
    config, model = named
    tokenizers = TokenizerPair.train(lambda: ["ab"], lambda: ["cd"], TokenizerSettings(vocab_size=260))
    save_bundle(tmp_path / "m", Bundle(config, model, tokenizers))
    assert torch.equal(logits(load_bundle(tmp_path / "m").model, batch), logits(model, batch))


def test_every_parameter_gets_a_gradient(
    named: tuple[Settings, nn.Module], batch: tuple[Tensor, Tensor, Tensor]
) -> None:
    """Catches a block that is built and not used."""
    logits(named[1], batch).logsumexp(-1).sum().backward()
    assert [name for name, parameter in named[1].named_parameters() if parameter.grad is None] == []


def test_evaluation_is_deterministic_and_training_is_not(
    named: tuple[Settings, nn.Module], batch: tuple[Tensor, Tensor, Tensor]
) -> None:
    """Catches dropout in the wrong mode."""
    model = named[1]
    assert torch.equal(logits(model, batch), logits(model, batch))
    model.train()
    assert not torch.equal(logits(model, batch), logits(model, batch))


def test_padding_and_neighbours_are_neutral(
    named: tuple[Settings, nn.Module], batch: tuple[Tensor, Tensor, Tensor]
) -> None:
    """Catches attention to padding and a batch that changes its rows."""
    src, tgt, src_mask = batch
    together = logits(named[1], batch)
    for row, length in enumerate((S, 5, S)):
        alone = (src[row : row + 1, :length], tgt[row : row + 1], src_mask[row : row + 1, ..., :length])
        torch.testing.assert_close(logits(named[1], alone)[0], together[row], atol=1e-5, rtol=1e-4)


def test_no_causal_leak(named: tuple[Settings, nn.Module], batch: tuple[Tensor, Tensor, Tensor]) -> None:
    """Catches a decoder that sees ahead, to the bit."""
    src, tgt, src_mask = batch
    changed = tgt.clone()
    changed[:, 3:] = 4
    before, after = logits(named[1], batch), logits(named[1], (src, changed, src_mask))
    assert torch.equal(before[:, :3], after[:, :3])


def test_cached_equals_uncached(named: tuple[Settings, nn.Module], batch: tuple[Tensor, Tensor, Tensor]) -> None:
    """Catches a step that differs from the full forward."""
    src, tgt, src_mask = batch
    expected = logits(named[1], batch)
    state = named[1].begin(src, src_mask, T)
    for t in range(T):
        step_logits, state = named[1].step(tgt[:, t], state)
        torch.testing.assert_close(step_logits, expected[:, t], atol=1e-4, rtol=1e-4)


def test_searched_together_equals_one_by_one(
    named: tuple[Settings, nn.Module], batch: tuple[Tensor, Tensor, Tensor]
) -> None:
    """Catches a search whose result depends on the batch."""
    requests = [Request(row[row != 0].tolist(), limit) for row, limit in zip(batch[0], (9, 4, 7), strict=True)]
    together = search_all(named[1], requests, GREEDY)
    for request, (found,) in zip(requests, together, strict=True):
        ((alone,),) = search_all(named[1], [request], GREEDY)
        assert alone.tokens == found.tokens
        assert alone.score == pytest.approx(found.score, abs=1e-3)
