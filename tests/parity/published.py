"""Helpers that make random published models and compare ours with them."""

import json
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from torch import nn

from transformer.bundle import Bundle, load_bundle, save_bundle
from transformer.bundle.huggingface import read_published, write_published


def randomized(model: nn.Module, std: float = 0.2) -> Any:
    """Randomizes every parameter and saved buffer of a model, gains of norms around 1, and returns the model."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point():
                is_gain = tensor.dim() == 1 and name.endswith("weight")
                tensor.copy_(torch.randn(tensor.shape, generator=generator) * std + is_gain)
    return model.eval()


def write_word_level(folder: Path, size: int, special: dict[str, str], template: str = "") -> None:
    """Writes a tokenizer.json whose vocabulary is the special tokens, followed by the words w0, w1, ..."""
    words = [*special.values(), *(f"w{number}" for number in range(size - len(special)))]
    library = Tokenizer(models.WordLevel({word: token for token, word in enumerate(words)}, unk_token=words[0]))
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    library.decoder = decoders.WordPiece()
    library.add_special_tokens(list(special.values()))
    if template:
        pairs = [(word, token) for token, word in enumerate(words) if word in special.values()]
        library.post_processor = processors.TemplateProcessing(single=template, special_tokens=pairs)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(library.to_str(), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(special), encoding="utf-8")


def imported(model: Any, folder: Path, **options: Any) -> Bundle:
    """Saves a model with the transformers package and reads the folder with ours."""
    model.save_pretrained(folder, **options)
    return read_published(folder)


def assert_round_trip(bundle: Bundle, folder: Path, load_model: Callable[[Path], Any]) -> Any:
    """Asserts that both formats round-trip bit for bit; returns the published model as `load_model` reads it."""
    save_bundle(folder / "ours", bundle)
    write_published(load_bundle(folder / "ours"), folder / "again")
    restored = read_published(folder / "again")
    assert restored.config == bundle.config
    assert (restored.text and restored.text.to_files()) == (bundle.text and bundle.text.to_files())
    expected, actual = bundle.model.state_dict(), restored.model.state_dict()
    assert actual.keys() == expected.keys()
    assert all(torch.equal(actual[name], expected[name]) for name in expected)
    write_published(restored, folder / "third")
    for name in ("config.json", "model.safetensors"):
        assert (folder / "third" / name).read_bytes() == (folder / "again" / name).read_bytes()
    assert load_file(folder / "again" / "model.safetensors")
    return load_model(folder / "again").eval()


@contextmanager
def outputs_of(layers: Any) -> Generator[list[torch.Tensor]]:
    """Collects the outputs of the layers while the context is open."""
    outputs: list[torch.Tensor] = []
    hooks = [layer.register_forward_hook(lambda _, __, output: outputs.append(output)) for layer in layers]
    try:
        yield outputs
    finally:
        for hook in hooks:
            hook.remove()


def close_inside(actual: list[torch.Tensor], expected: Sequence[torch.Tensor], mask: Any = ...) -> None:
    """Asserts that the outputs of all layers but the last are within 1e-4; the formats normalize the last differently.

    Args:
        actual: outputs of our layers, from `outputs_of`.
        expected: hidden states of the reference, the embeddings first.
        mask: positions to compare, which are not padding.
    """
    assert len(actual) == len(expected) - 1
    for actual_output, expected_output in list(zip(actual, expected[1:], strict=True))[:-1]:
        close(actual_output[mask], expected_output[mask])


def close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Asserts that two tensors are within 1e-4."""
    torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-4)
