"""Random published models, and what is compared with them."""

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
    """The model with every parameter and saved buffer random, gains of norms around 1."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point():
                is_gain = tensor.dim() == 1 and name.endswith("weight")
                tensor.copy_(torch.randn(tensor.shape, generator=generator) * std + is_gain)
    return model.eval()


def write_word_level(folder: Path, size: int, special: dict[str, str], template: str = "") -> None:
    """A tokenizer.json of words w0, w1, ... that begins with the special tokens."""
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
    """A model of transformers, written as it writes it and read by us."""
    model.save_pretrained(folder, **options)
    return read_published(folder)


def assert_round_trip(bundle: Bundle, folder: Path, reads: Callable[[Path], Any]) -> Any:
    """Through our own format and the published one and back, to the bit; returns what transformers then reads."""
    save_bundle(folder / "ours", bundle)
    write_published(load_bundle(folder / "ours"), folder / "again")
    back = read_published(folder / "again")
    assert back.config == bundle.config
    assert (back.text and back.text.to_files()) == (bundle.text and bundle.text.to_files())
    ours, theirs = bundle.model.state_dict(), back.model.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    write_published(back, folder / "third")
    for name in ("config.json", "model.safetensors"):
        assert (folder / "third" / name).read_bytes() == (folder / "again" / name).read_bytes()
    assert load_file(folder / "again" / "model.safetensors")
    return reads(folder / "again").eval()


@contextmanager
def outputs_of(layers: Any) -> Generator[list[torch.Tensor]]:
    """Collects what each layer gives, while it is open."""
    found: list[torch.Tensor] = []
    hooks = [layer.register_forward_hook(lambda _, __, output: found.append(output)) for layer in layers]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def close_inside(ours: list[torch.Tensor], theirs: Sequence[torch.Tensor], kept: Any = ...) -> None:
    """The outputs of all layers but the last, of whose norm the formats have their own ways, are within 1e-4.

    Args:
        ours: of `outputs_of`.
        theirs: hidden states, the embeddings' first.
        kept: positions that are no padding.
    """
    assert len(ours) == len(theirs) - 1
    for found, expected in list(zip(ours, theirs[1:], strict=True))[:-1]:
        close(found[kept], expected[kept])


def close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    """Within 1e-4."""
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
