"""The contract of every model family, checked for each preset with prime sizes; families are discovered by folder.

Tests of generation (causality, caches, search) cover only the families that generate text, `KINDS_THAT_WRITE`: encoders
read a whole text or image and do not predict a next token.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from transformer.blocks import causal_mask, padding_mask
from transformer.bundle import Bundle, load_bundle, save_bundle
from transformer.config import Config
from transformer.decoding import GREEDY, Request, search_all
from transformer.decoding.search_model import without_projection
from transformer.inference.cpu import pack
from transformer.models import family, family_names
from transformer.tokenizers.config import TokenizerConfig
from transformer.tokenizers.pair import TokenizerPair

B, S, T = 3, 7, 5
VOCABULARY = 263
PRESETS = [(name, preset) for name in family_names() for preset in family(name).presets()]
KINDS_THAT_WRITE = ("encoder-decoder", "language model")
WRITING_PRESETS = [(name, preset) for name, preset in PRESETS if family(name).kind in KINDS_THAT_WRITE]

SIZES: dict[str, dict[str, Any]] = {
    "encoder-decoder": {"src_vocab_size": VOCABULARY, "tgt_vocab_size": VOCABULARY, "vocab_size": VOCABULARY},
    "language model": {"vocab_size": VOCABULARY},
    "encoder": {"vocab_size": VOCABULARY, "labels": ("a", "b", "c"), "next_sentence": True},
    "image encoder": {"image_size": (9, 10), "patch_size": (3, 5), "pooler_size": 7, "labels": ("a", "b", "c")},
}


def small(name: str, preset: str) -> tuple[Config, nn.Module]:
    """Returns a preset with random parameters, in evaluation mode; presets other than `tiny` are made narrow."""
    torch.manual_seed(11)
    model_family = family(name)
    fields = model_family.config.model_fields
    sizes = {key: value for key, value in SIZES[model_family.kind].items() if key in fields} | {
        "dropout": 0.1,
        "d_ff": 37,
    }
    narrow = {} if preset == "tiny" else {"d_model": 22, "h": 11, **({"d_k": 2} if "d_k" in fields else {})}
    config = model_family.config.model_validate({**model_family.presets()[preset], **sizes, **narrow})
    model = model_family.build(config)
    for parameter in model.parameters():
        nn.init.normal_(parameter, mean=float(parameter.dim() == 1), std=0.1)
    return config, model.eval()


Named = tuple[Config, nn.Module]


@pytest.fixture
def named(request: pytest.FixtureRequest) -> Named:
    return small(*request.param)


every_preset = pytest.mark.parametrize("named", PRESETS, indirect=True, ids="-".join)
writing_presets = pytest.mark.parametrize("named", WRITING_PRESETS, indirect=True, ids="-".join)


def batch() -> tuple[Tensor, Tensor, Tensor]:
    """Returns random source tokens, target tokens and the padding mask of the source."""
    generator = torch.Generator().manual_seed(3)
    src, tgt = (torch.randint(4, VOCABULARY, (B, length), generator=generator) for length in (S, T))
    src[1, 5:] = 0
    return src, tgt, padding_mask(src)


def outputs(named: Named, inputs: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """Returns the outputs of the model at every position, with all of its heads concatenated."""
    config, model = named
    src, tgt, mask = inputs
    kind: str = family(config.model_dump()["family"]).kind
    if kind == "encoder-decoder":
        return model(src, tgt, mask, causal_mask(tgt.size(1)))
    if kind == "language model":
        return model(tgt)
    if kind == "image encoder":
        images = torch.nn.functional.one_hot(src[:, :1] % 90, 90).float().view(len(src), 1, 9, 10)
        images = images.expand(-1, config.model_dump()["channels"], -1, -1)
        return torch.cat([model.label_logits(images), model.pooled(model.encode(images))], dim=1)
    encoded = model.encode(src, mask, torch.zeros_like(src))
    heads = [
        model.label_logits(src, mask, torch.zeros_like(src)),
        model.next_sentence_head(model.pooled(encoded)),
        model.embeddings(encoded, mask),
    ]
    concatenated = torch.cat(
        [model.masked_head(encoded), *(head[:, None].expand(-1, src.size(1), -1) for head in heads)], dim=2
    )
    return concatenated.masked_fill(~mask[:, 0, 0, :, None], 0.0)


@pytest.mark.parametrize("name", family_names())
def test_tiny_has_two_of_everything(name: str) -> None:
    """Catches a preset that is too small to show that layers or heads are mixed up."""
    sizes = small(name, "tiny")[0].model_dump()
    assert min(sizes["N"], sizes["h"]) >= 2


@every_preset
def test_save_and_load_give_equal_outputs(named: Named, tmp_path: Path) -> None:
    """Catches a parameter or buffer that is not saved, or not bit for bit."""
    config, model = named
    tokenizers = TokenizerPair.train(lambda: ["ab"], lambda: ["cd"], TokenizerConfig(vocab_size=260))
    reads_text = family(config.model_dump()["family"]).reads_text
    save_bundle(tmp_path / "m", Bundle(config, model, tokenizers if reads_text else None))
    loaded = load_bundle(tmp_path / "m")
    assert torch.equal(outputs((loaded.config, loaded.model), batch()), outputs(named, batch()))


@pytest.mark.parametrize(
    "named",
    [(name, preset) for name, preset in PRESETS if name not in ("transformer", "marian")],
    indirect=True,
    ids="-".join,
)
def test_published_and_back_is_the_identity(named: Named) -> None:
    """Catches a setting or a parameter that the export drops.

    The paper's model is read back as a Marian model, and Marian needs its vocabulary: tests/parity covers both.
    """
    config, model = named
    rates = [name for name in type(config).model_fields if name.endswith("dropout")]
    config = config.model_copy(update={name: 0.11 + index / 100 for index, name in enumerate(rates)})
    converter = family(config.model_dump()["family"]).weights()
    state = model.state_dict()
    tensors = converter.write_weights(config, state)
    files = {name: json.dumps(content).encode() for name, content in converter.write_files(config).items()}
    restored_config = converter.read_config(type(config), converter.write_config(config), files, tensors.keys())
    # The configs themselves may differ, because sizes that are not set are read back as numbers.
    assert converter.write_config(restored_config) == converter.write_config(config)
    assert [getattr(restored_config, name) for name in rates] == [getattr(config, name) for name in rates]
    restored = converter.read_weights(config, tensors)
    assert all(torch.equal(tensor, state[name]) for name, tensor in restored.items())
    addresses = {tensor.data_ptr() for name, tensor in state.items() if name in restored}
    assert {tensor.data_ptr() for _, tensor in model.named_parameters()} <= addresses


@every_preset
def test_every_parameter_gets_a_gradient(named: Named) -> None:
    """Catches a block that is built but not used."""
    outputs(named, batch()).logsumexp(-1).sum().backward()
    assert [name for name, parameter in named[1].named_parameters() if parameter.grad is None] == []


@every_preset
def test_evaluation_is_deterministic_and_training_is_not(named: Named) -> None:
    """Catches dropout in the wrong mode."""
    model = named[1]
    assert torch.equal(outputs(named, batch()), outputs(named, batch()))
    model.train()
    assert not torch.equal(outputs(named, batch()), outputs(named, batch()))


@every_preset
def test_padding_and_neighbours_are_neutral(named: Named) -> None:
    """Catches attention to padding, and rows whose output depends on the rest of the batch."""
    src, tgt, mask = batch()
    together = outputs(named, (src, tgt, mask))
    for row, length in enumerate((S, 5, S)):
        alone = outputs(named, (src[row : row + 1, :length], tgt[row : row + 1], mask[row : row + 1, ..., :length]))[0]
        torch.testing.assert_close(alone, together[row][: len(alone)], atol=1e-5, rtol=1e-4)


@every_preset
def test_packed_outputs_are_close(named: Named) -> None:
    """Catches a packed block that does not compute the same as the block that it replaces."""
    expected = outputs(named, batch())
    pack(named[1], "float32")
    torch.testing.assert_close(outputs(named, batch()), expected, atol=1e-4, rtol=1e-4)


@writing_presets
def test_no_causal_leak(named: Named) -> None:
    """Catches a decoder that attends to later positions; the outputs must be equal bit for bit."""
    src, tgt, mask = batch()
    changed = tgt.clone()
    changed[:, 3:] = 4
    before, after = outputs(named, (src, tgt, mask)), outputs(named, (src, changed, mask))
    assert torch.equal(before[:, :3], after[:, :3])


prepared = pytest.mark.parametrize(
    "prepare", [lambda model: model, lambda model: pack(model, "float32")], ids=["plain", "packed"]
)


@prepared
@writing_presets
def test_cached_equals_uncached(named: Named, prepare: Callable[[nn.Module], nn.Module]) -> None:
    """Catches a step that differs from the full forward pass; a language model gets part of the text as its prompt."""
    src, tgt, mask = batch()
    expected = outputs(named, (src, tgt, mask))
    model, n_prompt = prepare(named[1]), 0
    if family(named[0].model_dump()["family"]).kind == "language model":
        n_prompt = 2
        src, mask = tgt[:, :n_prompt], torch.ones(B, 1, 1, n_prompt, dtype=torch.bool)
    state = model.begin(src, mask, T)
    for t in range(n_prompt, T):
        step_logits, state = model.step(tgt[:, t], state)
        torch.testing.assert_close(step_logits, expected[:, t], atol=1e-4, rtol=1e-4)


@prepared
@writing_presets
def test_a_step_is_its_hidden_state_projected(named: Named, prepare: Callable[[nn.Module], nn.Module]) -> None:
    """Catches logits that are changed after the projection, since plain search ranks the unchanged ones."""
    src, tgt, mask = batch()
    model = prepare(named[1])
    logits, _ = model.step(tgt[:, 0], model.begin(src, mask, T))
    hidden, _ = without_projection(model).step(tgt[:, 0], model.begin(src, mask, T))
    torch.testing.assert_close(model.projection_layer.proj(hidden), logits, atol=1e-5, rtol=1e-5)


@writing_presets
def test_searched_together_equals_one_by_one(named: Named) -> None:
    """Catches a search whose result depends on the batch."""
    requests = [Request(row[row != 0].tolist(), limit) for row, limit in zip(batch()[0], (9, 4, 7), strict=True)]
    together = search_all(named[1], requests, GREEDY)
    for request, (batched,) in zip(requests, together, strict=True):
        ((alone,),) = search_all(named[1], [request], GREEDY)
        assert alone.tokens == batched.tokens
        assert alone.score == pytest.approx(batched.score, abs=1e-3)
