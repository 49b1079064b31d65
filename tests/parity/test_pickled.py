"""Weights as `pytorch_model.bin`: what is imported is what transformers saves of the same weights as safetensors."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    BertConfig,
    BertForPreTraining,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

from commands import Commands
from parity.published import randomized, write_word_level
from samples import fast_first
from transformer.bundle import load_bundle
from transformer.bundle.huggingface import read_published
from transformer.errors import BundleError

SIZE = 53
SPECIAL = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
WIDTHS: dict[str, Any] = {
    "vocab_size": SIZE, "hidden_size": 24, "intermediate_size": 37, "num_hidden_layers": 2, "num_attention_heads": 4
}  # fmt: skip
MODELS: dict[str, Callable[[], Any]] = {
    "T5, tied": lambda: T5ForConditionalGeneration(
        T5Config(vocab_size=SIZE, d_model=24, d_kv=6, num_heads=4, d_ff=37, num_layers=2, decoder_start_token_id=0)
    ),
    "GPT-2, tied": lambda: GPT2LMHeadModel(
        GPT2Config(vocab_size=SIZE, n_embd=24, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=1)
    ),
    "Llama, untied": lambda: LlamaForCausalLM(LlamaConfig(**WIDTHS, bos_token_id=1, eos_token_id=1)),
    "BERT, tied": lambda: BertForPreTraining(BertConfig(**WIDTHS)),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("name", fast_first(MODELS, 1))
def test_pickled_weights_are_imported_like_safetensors(
    name: str, dtype: torch.dtype, commands: Commands, tmp_path: Path
) -> None:
    """Catches a half-precision tensor that is read wrongly, and tied matrices that become two."""
    reference = randomized(MODELS[name]()).to(dtype)
    folder, is_legacy = tmp_path / "hf", dtype == torch.float16
    write_word_level(folder, SIZE, SPECIAL)
    reference.save_pretrained(folder)
    expected = read_published(folder)
    (folder / "model.safetensors").unlink()
    weights = folder / "pytorch_model.bin"
    torch.save(reference.state_dict(), weights, _use_new_zipfile_serialization=not is_legacy)
    with pytest.raises(BundleError, match=f"pickled weights alone .* transformer import {folder} --output MODEL"):
        read_published(folder)
    result = commands("import", folder, "--output", tmp_path / "ours")
    assert f"note: {weights} is pickled; it was read in a process of its own, as tensors alone" in result.stderr
    actual = load_bundle(tmp_path / "ours")
    assert actual.config == expected.config
    state, expected_state = actual.model.state_dict(), expected.model.state_dict()
    assert state.keys() == expected_state.keys()
    assert all(torch.equal(state[key], expected_state[key]) for key in state)
    assert {path.name for path in tmp_path.iterdir()} == {"hf", "ours"}
    assert load_file(tmp_path / "ours" / "model.safetensors")
