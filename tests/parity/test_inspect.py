"""Published folders in the inspector: what it shows of them, and what it refuses."""

from pathlib import Path

from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel

from commands import run
from parity.published import randomized, write_word_level

SPECIAL = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}


def test_an_encoder_without_a_head_is_refused_in_one_line(tmp_path: Path) -> None:
    """Catches a traceback or an unclear error for a model that computes vectors alone."""
    sizes = {"vocab_size": 40, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    write_word_level(tmp_path / "model", 40, SPECIAL, "[CLS] $A [SEP]")
    randomized(BertModel(BertConfig(**sizes, intermediate_size=8))).save_pretrained(tmp_path / "model")
    result = run("inspect", tmp_path / "model", "w1 w2", "--output", tmp_path / "page.html")
    assert result.returncode == 2
    assert "no head for masked words or labels" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_published_model_is_shown_as_it_is(tmp_path: Path) -> None:
    """Catches a published folder that must be imported first."""
    write_word_level(tmp_path / "model", 40, {"unk_token": "[UNK]", "bos_token": "[BOS]", "eos_token": "[EOS]"})
    config = GPT2Config(vocab_size=40, n_positions=16, n_embd=8, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=2)
    randomized(GPT2LMHeadModel(config)).save_pretrained(tmp_path / "model")
    result = run("inspect", tmp_path / "model", "w1 w2 w3", "--output", tmp_path / "page.html")
    assert result.returncode == 0, result.stderr
    assert "Add learned positions" in (tmp_path / "page.html").read_text(encoding="utf-8")
