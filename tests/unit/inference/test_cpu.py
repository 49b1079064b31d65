"""Packed models, compared with the models that they were converted from."""

import copy
import random
import weakref
from itertools import chain

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer.blocks import (
    ACTIVATIONS,
    CausalDecoder,
    CausalDecoderLayer,
    FeedForwardBlock,
    GatedFeedForward,
    InputEmbedding,
    LearnedPositions,
    MultiHeadAttention,
    NoPositions,
    ProjectionLayer,
    ReadoutEncoder,
    ReadoutLayer,
    RelativePositionBias,
    RMSNormalization,
    RotaryAttention,
    RotaryPositions,
    causal_mask,
    padding_mask,
)
from transformer.decoding import Request, Search, search_all
from transformer.decoding.incremental_state import join_states
from transformer.errors import ConfigError
from transformer.inference.cpu import choose_precision, chunking, describe_precision, pack, packed_bytes
from transformer.inference.cpu.decoder_state import PackedDecoderState
from transformer.kernels import PRECISIONS, Precision, Weight, unavailable_reason
from transformer.models.language_model import LanguageModel
from transformer.transformer import build_transformer
from unit.inference.random_models import random_model

NEAR = {"float32": 1e-4, "bf16": 0.15, "int8": 0.4}


def sentences() -> tuple[Tensor, Tensor]:
    """Three sources of different lengths, and targets."""
    src = torch.randint(4, 101, (3, 7))
    src[1, 5:] = 0
    src[2, 2:] = 0
    return src, torch.randint(4, 101, (3, 5))


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("order", ["pre", "post"])
@pytest.mark.parametrize("shared", ["none", "target", "all"])
def test_logits_are_those_of_the_model(precision: Precision, order: str, shared: str) -> None:
    """Catches a block that is packed in another order, a bias left out, a norm with another epsilon."""
    model = random_model(norm_order=order, share_embeddings=shared)
    src, tgt = sentences()
    inputs = src, tgt, padding_mask(src), causal_mask(5)
    with torch.inference_mode():
        expected = model(*inputs)
        actual = pack(copy.deepcopy(model), precision)(*inputs)
    spread = expected.std()
    assert ((actual - expected).abs().max() / spread) < NEAR[precision]
    assert (actual.argmax(-1) == expected.argmax(-1)).float().mean() >= (1 if precision == "float32" else 0.8)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_heads_of_two_widths_keep_their_attention(precision: Precision) -> None:
    """Catches values that are split by the width of the keys: the kernels have one width, the block has two."""
    model = random_model(d_k=8, d_v=24)
    requests = [Request([5, 9, 11, 2], limit=6), Request([7, 2], limit=6)]
    packed = pack(copy.deepcopy(model), precision)
    expected, actual = (search_all(one, requests, Search(beam=2)) for one in (model, packed))
    src, tgt = sentences()
    inputs = src, tgt, padding_mask(src), causal_mask(5)
    with torch.inference_mode():
        logits = model(*inputs)
        assert ((packed(*inputs) - logits).abs().max() / logits.std()) < NEAR[precision]
    if precision == "float32":
        assert [line[0].tokens for line in actual] == [line[0].tokens for line in expected]


@pytest.mark.parametrize("first", [None, 1])
@pytest.mark.parametrize("hidden", ["nothing", "padding", "what comes later"])
@torch.inference_mode()
def test_encoding_in_chunks_equals_encoding_at_once(
    hidden: str, first: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches rows under the mask of others, a last chunk that is lost, a bias of some rows alone, keys as values."""
    bias = RelativePositionBias(3, 8, 20, bidirectional=True)
    layers, causal_layers = (
        nn.ModuleList(layer(48, MultiHeadAttention(48, 3), FeedForwardBlock(48, 70, 0.0), 0.0) for _ in range(2))
        for layer in (ReadoutLayer, CausalDecoderLayer)
    )
    encoder = ReadoutEncoder(layers, position_bias=bias)
    stacks = nn.ModuleList([encoder, CausalDecoder(causal_layers, position_bias=bias)]).eval()
    for parameter in stacks.parameters():
        nn.init.normal_(parameter.data, std=0.3)
    src = torch.tensor([[1] * n + [0] * (7 - n) for n in (7, 3, 5, 1, 6)])
    mask = {"nothing": None, "padding": padding_mask(src), "what comes later": causal_mask(7)}[hidden]
    x = torch.randn(5, 7, 48)
    lengths = torch.tensor([7, 3, 5, 1, 6])
    expected, causal, state = encoder(x, mask, first), stacks[1](x, mask), stacks[1].begin(x, lengths)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    monkeypatch.setattr(chunking, "TOKENS_PER_THREAD", 2 * 7)
    packed, rows = pack(stacks, "float32"), list[int]()
    for stack in packed:
        stack.layers[0].register_forward_hook(lambda _, inputs, output: rows.append(len(output)))
    torch.testing.assert_close(packed[0](x, mask, first), expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(packed[1](x, mask), causal, atol=1e-4, rtol=1e-4)
    assert rows == [2, 2, 1] * 2
    for cache, expected_cache in zip(packed[1].begin(x, lengths).layers, state.layers, strict=True):
        torch.testing.assert_close(cache.keys, expected_cache.keys, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(cache.values, expected_cache.values, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("order", ["pre", "post"])
@torch.inference_mode()
def test_whole_encoders_equal_their_layers(precision: Precision, order: str) -> None:
    """Catches padding that is attended to, sentences that are shifted, and a last layer or norm computed twice."""
    layers = (
        ReadoutLayer(48, MultiHeadAttention(48, 3), FeedForwardBlock(48, 70, 0.0), 0.0, order=order) for _ in "abc"
    )
    encoder = ReadoutEncoder(nn.ModuleList(layers), None if order == "pre" else nn.Identity()).eval()
    for parameter in encoder.parameters():
        nn.init.normal_(parameter.data, std=0.3)
    x, is_token = torch.randn(4, 7, 48), torch.tensor([[1] * n + [0] * (7 - n) for n in (7, 3, 1, 6)]).bool()
    masks = [None, is_token[:, None, None], is_token.flip(1)[:, None, None]]
    expected = [(encoder(x, mask), encoder(x, mask, 2)) for mask in masks]
    (packed,) = pack(nn.ModuleList([encoder]), precision)
    assert (packed.compiled is not None) == (unavailable_reason() is None)
    for mask, (whole, first) in zip(masks, expected, strict=True):
        seen = is_token if mask is None else mask[:, 0, 0]
        kept = torch.ones_like(seen) if mask is None else seen
        assert ((packed(x, mask) - whole)[kept].abs().max() / whole.std()) < NEAR[precision]
        kept = kept[:, :2]
        assert ((packed(x, mask, 2) - first)[kept].abs().max() / whole.std()) < NEAR[precision]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(("order", "h"), [("post", 3), ("pre", 3), ("post", 4)])
@torch.inference_mode()
def test_steps_equal_the_full_forward(precision: Precision, order: str, h: int) -> None:
    """Catches keys at the wrong place, rows lost on reordering, a cache that forgets when it grows, odd heads."""
    model = pack(random_model(norm_order=order, h=h), precision)
    src, _ = sentences()
    tgt = torch.randint(4, 101, (3, 40))
    expected = model(src, tgt, padding_mask(src), causal_mask(40))
    state = model.begin(src, padding_mask(src), limit=40)
    near = 0.1 if precision != "float32" else 1e-4  # cached keys and values are rounded to bfloat16
    for t in range(40):
        logits, state = model.step(tgt[:, t], state)
        assert ((logits - expected[:, t]).abs().max() / expected.std()) < near
        if t in (1, 2, 37):
            rows = torch.tensor({1: [2, 0, 0, 1], 2: [3, 1, 1], 37: [2, 1, 0]}[t])
            state, tgt, expected = state.select(rows), tgt[rows], expected[rows]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(
    ("activation", "gated", "biased"),
    [("gelu", False, False), ("gelu_tanh", False, False), ("gelu_tanh", True, False), ("gelu", False, True)],
)
@torch.inference_mode()
def test_steps_of_a_decoder_alone_equal_its_full_forward(
    precision: Precision, activation: str, gated: bool, biased: bool
) -> None:
    """Catches a step that looks for a source, takes the norm of another place, or leaves the activation out."""

    def layer() -> CausalDecoderLayer:
        network = (GatedFeedForward if gated else FeedForwardBlock)(48, 70, 0.0, activation=ACTIVATIONS[activation])
        return CausalDecoderLayer(48, MultiHeadAttention(48, 3), network, 0.0)

    embed, projection = InputEmbedding(48, 101), ProjectionLayer(48, 101)
    bias = RelativePositionBias(3, 8, 20, bidirectional=False) if biased else None
    decoder = CausalDecoder(nn.ModuleList(layer() for _ in range(2)), position_bias=bias)
    model = LanguageModel(embed, LearnedPositions(48, 50, 0.0), decoder, projection).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter.data, std=0.3)
    tokens = torch.randint(4, 101, (3, 45))
    expected = model(tokens)
    packed = pack(model, precision)
    assert ((packed(tokens) - expected).abs().max() / expected.std()) < NEAR[precision]
    state = packed.begin(tokens[:, :4], torch.ones(3, 1, 1, 4, dtype=torch.bool), limit=41)
    is_compiled = unavailable_reason() is None and not biased
    assert isinstance(state, PackedDecoderState) == is_compiled
    for t in range(4, 45):
        logits, state = packed.step(tokens[:, t], state)
        assert ((logits - expected[:, t]).abs().max() / expected.std()) < NEAR[precision]
        if t == 9:
            rows = torch.tensor([2, 0, 0])
            state, tokens, expected = state.select(rows), tokens[rows], expected[rows]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@torch.inference_mode()
def test_steps_of_a_llama_equal_its_full_forward(precision: Precision, kv_heads: int, gated: bool) -> None:
    """Catches rotations at the wrong position or of values, and query heads that read the keys of others."""
    rotation = RotaryPositions(12, 50)

    def layer() -> CausalDecoderLayer:
        attention = RotaryAttention(40, 4, rotation, d_k=12, kv_heads=kv_heads, bias="none")
        network = (GatedFeedForward if gated else FeedForwardBlock)(40, 70, 0.0, activation=F.silu)
        return CausalDecoderLayer(40, attention, network, 0.0, norm=RMSNormalization)

    decoder = CausalDecoder(nn.ModuleList(layer() for _ in range(2)), RMSNormalization(40))
    model = LanguageModel(InputEmbedding(40, 101), NoPositions(50, 0.0), decoder, ProjectionLayer(40, 101)).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter.data, std=0.3)
    tokens, lengths = torch.randint(4, 101, (3, 45)), torch.tensor([4, 0, 2])
    expected = model(tokens)
    packed = pack(model, precision)
    assert ((packed(tokens) - expected).abs().max() / expected.std()) < NEAR[precision]
    state = packed.begin(tokens[:, :4], (torch.arange(4) < lengths[:, None])[:, None, None], limit=41)
    assert isinstance(state, PackedDecoderState) == (unavailable_reason() is None)
    for t in range(41):
        rows = torch.arange(len(lengths))
        logits, state = packed.step(tokens[rows, lengths + t], state)
        assert ((logits - expected[rows, lengths + t]).abs().max() / expected.std()) < NEAR[precision]
        if t == 9:
            rows = torch.tensor([2, 0, 0])
            state, tokens, expected, lengths = state.select(rows), tokens[rows], expected[rows], lengths[rows]


@pytest.mark.parametrize("beam", [1, 4, 12])
def test_searches_find_what_the_model_finds(beam: int) -> None:
    """Catches a search whose float32 kernels lead to other translations, hypotheses that read what others wrote."""
    model = random_model()
    requests = [Request([*torch.randint(4, 101, (n,)).tolist(), 2], 38) for n in (3, 9, 1, 6, 7)]
    expected = search_all(model, requests, Search(beam=beam))
    actual = search_all(pack(model, "float32"), requests, Search(beam=beam))
    for (hypothesis,), (reference,) in zip(actual, expected, strict=True):
        assert hypothesis.tokens == reference.tokens
        assert hypothesis.score == pytest.approx(reference.score, abs=1e-3)


@pytest.mark.parametrize("seed", range(12))
@torch.inference_mode()
def test_rows_that_share_a_cache_step_as_if_each_had_its_own(seed: int) -> None:
    """Catches a position overwritten that another row still reads: when rows leave, meet others, or stand elsewhere."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    model = random_model()
    packed = pack(copy.deepcopy(model), "float32")
    src, _ = sentences()
    mask = padding_mask(src)
    expected, actual = model.begin(src, mask, 50), packed.begin(src, mask, 50)
    while expected.longest < 49:
        tokens = torch.randint(4, 101, (len(expected.positions),))
        logits, expected = model.step(tokens, expected)
        packed_logits, actual = packed.step(tokens, actual)
        torch.testing.assert_close(packed_logits, logits, atol=1e-4 * float(logits.std()), rtol=1e-3)
        n = len(expected.positions)
        action = draw.random()
        if action < 0.6:  # hypotheses continue others; sometimes there are fewer, or more
            rows = torch.tensor(draw.choices(range(n), k=draw.choice([n, n, n, max(1, n - 1), min(9, n + 2)])))
            expected, actual = expected.select(rows), actual.select(rows)
        elif action < 0.65 and expected.width == actual.width == 1 and n < 6:
            expected, actual = (
                join_states(state, of.begin(src, mask, 50)) for of, state in ((model, expected), (packed, actual))
            )


@pytest.mark.slow
def test_steps_of_a_base_model_are_its_forward_pass() -> None:
    """Catches what shows in long sums and many layers alone: padding, reordered caches, 32,000 tokens."""
    model = build_transformer(32000, 32000, 64, 64, norm_order="post", share_embeddings="all").eval()
    batch, length = 32, 8
    src = torch.randint(4, 32000, (batch, 20))
    for row in range(batch):
        src[row, 20 - row % 15 :] = 0
    tgt = torch.randint(4, 32000, (batch, length))
    with torch.inference_mode():
        whole = model(src, tgt, padding_mask(src), causal_mask(length))
        for stepped in (model, pack(copy.deepcopy(model), "float32")):
            state, order = stepped.begin(src, padding_mask(src), length), torch.arange(batch)
            for place in range(length):
                logits, state = stepped.step(tgt[order, place], state)
                torch.testing.assert_close(logits, whole[order, place], atol=1e-4, rtol=0)
                if place % 3 == 2:
                    rows = torch.randperm(batch)
                    state, order = state.select(rows), order[rows]


@pytest.mark.skipif(unavailable_reason() is not None, reason=f"no compiled kernels: {unavailable_reason()}")
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("beam", [1, 3])
def test_a_translation_does_not_depend_on_its_batch(precision: Precision, beam: int) -> None:
    """Catches a sum in another order, or a scale of a whole batch: equal to the last bit, scores too.

    Only float32 may sum many rows in another order than few.
    """
    model = pack(random_model(), precision)
    requests = [Request([*torch.randint(4, 101, (n,)).tolist(), 2], 12) for n in (3, 9, 1, 6, 7, 9, 2)]
    together = search_all(model, requests, Search(beam=beam))
    alone = [search_all(model, [request], Search(beam=beam))[0] for request in requests]
    if precision != "float32":
        assert together == alone
    for actual, expected in zip(chain(*together), chain(*alone), strict=True):
        assert actual.tokens == expected.tokens
        assert actual.score == pytest.approx(expected.score, abs=1e-4 * actual.length)


def test_memory_is_that_of_the_precision() -> None:
    """Catches a float32 copy that stays beside the packed weight, and a shared matrix that is kept twice."""
    model = random_model(d_model=128, d_ff=512, h=2, share_embeddings="all")
    whole = sum(parameter.nbytes for parameter in model.parameters())
    weights = [weakref.ref(parameter) for parameter in model.parameters() if parameter.dim() == 2]
    packed = pack(model, "int8")
    assert packed_bytes(packed) <= 0.3 * whole
    assert packed_bytes(pack(random_model(d_model=128, d_ff=512, h=2, share_embeddings="all"), "bf16")) <= 0.55 * whole
    assert not list(packed.parameters())
    assert all(weight() is None for weight in weights)


def test_numbers_that_are_int8_already_are_not_rounded_again() -> None:
    """Catches a quantized model whose stored numbers are ignored."""
    model = random_model()
    stored = {
        id(parameter): Weight.from_tensor(parameter, "int8") for parameter in model.parameters() if parameter.dim() == 2
    }
    other = copy.deepcopy(model)
    src, tgt = sentences()
    with torch.inference_mode():
        expected = pack(other, "int8")(src, tgt)
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.data.zero_()
        assert torch.equal(pack(model, "int8", lambda parameter: stored[id(parameter)])(src, tgt), expected)


def test_precisions_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches int8 as the default where only torch can compute it, slowly, and a silent choice."""
    module = "transformer.inference.cpu.precision"
    monkeypatch.setattr(f"{module}.unavailable_reason", lambda: None)
    monkeypatch.setattr(f"{module}.instruction_set", lambda: "avx2")
    assert [choose_precision("auto", fastest) for fastest in ("int8", "bf16")] == ["int8", "float32"]
    assert choose_precision("bf16", "bf16") == "bf16"
    monkeypatch.setattr(f"{module}.instruction_set", lambda: "avx512")
    assert [choose_precision(wanted) for wanted in ("auto", "bf16")] == ["int8", "bf16"]
    assert choose_precision("auto", "bf16") == "bf16"
    assert describe_precision("int8", 1) == "int8 on 1 thread"
    monkeypatch.setattr(f"{module}.unavailable_reason", lambda: "not compiled")
    monkeypatch.setattr(f"{module}.instruction_set", lambda: None)
    assert choose_precision("auto") == "float32"
    assert describe_precision("float32", 1) == "float32 on 1 thread, without compiled kernels"
    with pytest.raises(ConfigError, match="precision='int4' is unknown; choose one of auto, float32, bf16, int8"):
        choose_precision("int4")
