"""Token dropout: what a model reads and what it is scored on, and where it is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from conftest import write_lines
from transformer import build_transformer
from transformer.errors import ConfigError
from transformer.protocols import PairBatch
from transformer.recipe import parse_recipe
from transformer.run import train
from transformer.text.control import OURS
from transformer.text.tokenizer import Tokenizer
from transformer.training.objectives import TranslationObjective, drop_tokens

PAD, BOS, EOS, UNK = 0, 1, 2, 3


def batch(n: int = 500) -> PairBatch:
    """Rows of text of equal length, framed by what steers the model, with two pads at the end."""
    text = torch.randint(4, 50, (n, 6))
    frame = [torch.full((n, 1), each) for each in (BOS, EOS, PAD, PAD)]
    return PairBatch(
        src=torch.cat([text, *frame[1:]], dim=1),
        tgt=torch.cat([frame[0], text, *frame[2:]], dim=1),
        labels=torch.cat([text, *frame[1:]], dim=1),
        scored_tokens=7 * n,
    )


def read_by(objective: TranslationObjective, pairs: PairBatch) -> tuple[Tensor, Tensor, Tensor]:
    """Source, its mask, and target, as the model gets them."""
    seen: dict[str, Any] = {}
    model = objective.model
    encode, decode = model.encode, model.decode

    def encoding(src: Tensor, mask: Tensor) -> Tensor:
        seen.update(src=src, mask=mask)
        return encode(src, mask)

    def decoding(encoded: Tensor, src_mask: Tensor, tgt: Tensor, tgt_mask: Tensor) -> Tensor:
        seen.update(tgt=tgt)
        return decode(encoded, src_mask, tgt, tgt_mask)

    with patch.object(model, "encode", encoding), patch.object(model, "decode", decoding):
        objective(pairs)
    return seen["src"], seen["mask"], seen["tgt"]


def objective(p: float) -> TranslationObjective:
    torch.manual_seed(1)
    model = build_transformer(50, 50, 12, 12, d_model=8, N=1, h=2, d_ff=12, dropout=0.0, share_embeddings="all")
    return TranslationObjective(model, 0.1, token_dropout=p)


def test_a_share_of_the_text_is_read_as_unknown() -> None:
    """Catches BOS or EOS dropped, padding that attention sees, one side left out or as the other, a wrong share."""
    pairs = batch()
    src, mask, tgt = read_by(objective(0.2).train(), pairs)
    for read, given in ((src, pairs.src), (tgt, pairs.tgt)):
        is_text = given >= 4
        dropped = read != given
        assert not (dropped & ~is_text).any()
        assert (read[dropped] == UNK).all()
        assert dropped[is_text].float().mean().item() == pytest.approx(0.2, abs=0.03)  # 4 deviations of 3,000 draws
    assert not torch.equal(src[:, :6] == UNK, tgt[:, 1:7] == UNK)
    torch.testing.assert_close(mask[:, 0, 0], pairs.src != PAD)


def test_labels_stay() -> None:
    """Catches a loss of unknown tokens, by the plain loss of a model that is given what was read."""
    pairs, ours = batch(20), objective(0.5)
    torch.manual_seed(4)
    found = ours.train()(pairs)
    torch.manual_seed(4)
    src, _, tgt = read_by(ours, pairs)
    expected = objective(0.0)(replace(pairs, src=src, tgt=tgt))
    torch.testing.assert_close(found.loss_sum, expected.loss_sum)
    assert found.loss_sum.item() != pytest.approx(objective(0.0)(pairs).loss_sum.item())


def test_outside_training_everything_is_read() -> None:
    """Catches validation on texts with holes."""
    pairs = batch(10)
    src, _, tgt = read_by(objective(0.5).eval(), pairs)
    assert torch.equal(src, pairs.src)
    assert torch.equal(tgt, pairs.tgt)


def test_ids_that_a_vocabulary_lacks() -> None:
    """Catches a vocabulary without a beginning, as T5's, whose tokens would be compared with None."""
    tokens = torch.randint(4, 50, (40, 9))
    dropped = drop_tokens(tokens, replace(OURS, bos=None), 0.5)
    assert set((dropped[dropped != tokens]).tolist()) == {UNK}


def test_a_tokenizer_without_an_unknown_token_is_refused(tmp_path: Path) -> None:
    """Catches an id of None in place of tokens."""
    text = [write_lines(tmp_path / side, [f"some words of text {n}" for n in range(60)]) for side in ("a", "b")]
    tree = {
        "data": {"source": str(text[0]), "target": str(text[1])},
        "training": {"max_steps": 1, "token_dropout": 0.1},
    }
    lacking = patch.object(Tokenizer, "control", replace(OURS, unk=None))
    with lacking, pytest.raises(ConfigError, match="needs an unknown token"):
        train(parse_recipe(tree), tmp_path / "run", quiet=True)
