"""Blocks called as other descriptions of the model call them, compared with what these describe, in float64."""

import inspect
import math

import pytest
import torch
from torch import Tensor, nn

from samples import randomize
from transformer.blocks import (
    Decoder,
    DecoderBlock,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForwardBlock,
    InputEmbedding,
    LayerNormalization,
    MultiHeadAttention,
    MultiHeadAttentionBlock,
    PositionalEncoding,
    ProjectionLayer,
    ResidualConnection,
    RotaryAttention,
    RotaryPositions,
    causal_mask,
    padding_mask,
    sinusoid,
)
from transformer.transformer import Transformer, build_transformer

D, H, F, S, T, V = 12, 3, 17, 7, 5, 31


def linear(x: Tensor, layer: nn.Linear) -> Tensor:
    """Computes a linear layer element by element of the sum, in float64."""
    return (x[..., None, :] * layer.weight.double()).sum(-1) + layer.bias.double()


def attention_there(block: MultiHeadAttention, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Computes multi-head attention head by head in float64, with masked scores of -1e9."""
    q, k, v = linear(q, block.W_q), linear(k, block.W_k), linear(v, block.W_v)
    heads: list[Tensor] = []
    for head in range(H):
        part = slice(head * (D // H), (head + 1) * (D // H))
        scores = torch.einsum("btd,bsd->bts", q[..., part], k[..., part]) / math.sqrt(D / H)
        if mask is not None:
            scores[~mask.expand(len(q), 1, *scores.shape[1:])[:, 0]] = -1e9
        weights = scores.exp() / scores.exp().sum(-1, keepdim=True) if mask is None else scores.softmax(-1)
        heads.append(torch.einsum("bts,bsd->btd", weights, v[..., part]))
    return linear(torch.cat(heads, -1), block.W_o)


def norm_there(x: Tensor, alpha: Tensor, beta: Tensor, eps: float) -> Tensor:
    """Computes alpha (x - mean) / (standard deviation + eps) + beta in float64."""
    centred = x.double() - x.double().mean(-1, keepdim=True)
    return alpha.double() * centred / (centred.square().mean(-1, keepdim=True).sqrt() + eps) + beta.double()


def feed_forward_there(block: FeedForwardBlock, x: Tensor) -> Tensor:
    """Computes max(0, x W_1 + b_1) W_2 + b_2 in float64."""
    return linear(linear(x, block.linear_1).clamp(min=0), block.linear_2)


def encoder_layer(d_model: int = D) -> EncoderLayer:
    return EncoderLayer(
        d_model=d_model,
        self_attention_block=MultiHeadAttentionBlock(d_model, H),
        feed_forward_block=FeedForwardBlock(d_model, F, 0.1),
        dropout=0.1,
    )


def decoder_layer() -> DecoderLayer:
    attention = MultiHeadAttentionBlock(D, H, 0.1), MultiHeadAttentionBlock(D, H, dropout=0.1)
    return DecoderBlock(D, *attention, FeedForwardBlock(D, F, 0.1), 0.1)


def tokens() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    src, tgt = torch.randint(1, V, (2, S)), torch.randint(1, V, (2, T))
    src[1, 4:] = 0
    return src, tgt, padding_mask(src), causal_mask(T)


def test_other_keywords_and_attributes() -> None:
    """Catches a lost alias, and two names of one argument of which one is ignored."""
    assert MultiHeadAttentionBlock is MultiHeadAttention
    assert DecoderBlock is DecoderLayer
    block = MultiHeadAttention(d_model=512, num_heads=8)
    assert (block.d_model, block.num_heads, block.h, block.d_k, block.dropout) == (512, 8, 8, 64, 0.0)
    block.num_heads = 4  # as a subclass may do
    assert block.h == 4
    assert RotaryAttention(D, num_heads=H, rotation=RotaryPositions(D // H, 9)).h == H
    assert set(block.state_dict()) == {f"W_{x}.{kind}" for x in "qkvo" for kind in ("weight", "bias")}
    assert (PositionalEncoding(D).seq_len, PositionalEncoding(D, max_seq_length=S).seq_len) == (5000, S)
    assert PositionalEncoding(D, 9).dropout.p == 0.0
    for arguments in ({"h": 3}, {"h": 4}):
        with pytest.raises(TypeError, match="num_heads=3 is another name of h, which is also passed"):
            MultiHeadAttention(D, num_heads=3, **arguments)
    with pytest.raises(TypeError, match="max_seq_length=9 is another name of seq_len, which is also passed"):
        PositionalEncoding(D, 9, max_seq_length=9)
    with pytest.raises(TypeError, match="'d_model'"):
        LayerNormalization()
    assert "num_heads" not in str(inspect.signature(MultiHeadAttention)), "help shows the names of the block"


def test_numbers_of_the_base_model() -> None:
    """Catches a size that does not reach its block: d_model 512, N 6, 8 heads of 64, d_ff 2048, dropout 0.1."""
    model = build_transformer(V, V, S, T, d_model=8, d_ff=8)
    assert (len(model.encoder.layers), len(model.decoder.layers)) == (6, 6)
    layer = build_transformer(V, V, S, T, N=1).decoder.layers[0]
    assert (layer.d_model, layer.cross_attention_block.h, layer.cross_attention_block.d_k) == (512, 8, 64)
    assert layer.feed_forward_block.linear_1.weight.shape == (2048, 512)
    assert (layer.residual_connections[2].dropout.p, model.tgt_pos.dropout.p) == (0.1, 0.1)
    assert (model.src_pos.seq_len, model.tgt_pos.seq_len) == (S, T)


@torch.no_grad()
def test_attention_is_the_formula_and_minus_infinity_differs_in_masked_rows_alone() -> None:
    """Catches scores divided or masked otherwise, and a row without sources that attends to everything."""
    block = randomize(MultiHeadAttention(D, num_heads=H))
    query, key, value = torch.randn(2, T, D), torch.randn(2, S, D), torch.randn(2, S, D)
    mask = torch.rand(2, 1, T, S) < 0.5
    mask[:, :, :, 0], mask[1, 0, 2] = True, False
    ours = block(query, key, value, mask)
    there = attention_there(block, query, key, value, mask)
    rows_with_sources = mask.any(-1)[:, 0]
    torch.testing.assert_close(ours[rows_with_sources].double(), there[rows_with_sources], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours[1, 2], block.W_o.bias)
    assert (there[1, 2] - block.W_o.bias).abs().max() > 0.1
    unmasked = block(query=query, key=key, value=value, mask=None)
    torch.testing.assert_close(unmasked.double(), attention_there(block, query, key, value, None), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(block(query, key, value, mask.int()), ours)


@torch.no_grad()
def test_layer_norm_differs_only_near_a_constant_row() -> None:
    """Catches eps at another place: the two formulas agree for usual rows, and not for nearly constant ones."""
    block = randomize(LayerNormalization(D))
    x = torch.randn(T, D)
    there = norm_there(x, block.alpha, block.beta, 1e-6)
    torch.testing.assert_close(block(x).double(), there, atol=1e-4, rtol=0)
    flat = 1e-3 * x
    assert (block(flat) - norm_there(flat, block.alpha, block.beta, 1e-6)).abs().max() > 0.05


@torch.no_grad()
def test_positional_encoding_adds_a_row_per_position() -> None:
    """Catches a table that is not the formula, and one that is saved or has an axis for the batch."""
    block = PositionalEncoding(D, max_seq_length=40).train()
    x = torch.randn(2, S, D)
    angle = [[pos / 10000 ** (2 * i / D) for i in range(D // 2)] for pos in range(S)]
    table = torch.tensor([[f(a) for a in row for f in (math.sin, math.cos)] for row in angle])
    torch.testing.assert_close(block(x), x + table)
    assert (block.pe.shape, block.state_dict()) == ((40, D), {})
    frequency = torch.exp(torch.arange(0, 512, 2) * (-math.log(10000.0) / 512))
    single = torch.sin(torch.arange(5000.0)[:, None] * frequency)
    assert 1e-4 < (single - sinusoid(5000, 512)[:, 0::2]).abs().max() < 4.5e-4


@torch.no_grad()
def test_layers_are_their_residual_connections_in_order() -> None:
    """Catches a sub-layer that is lost or fed with something else; the norm comes before each, or after with "post"."""
    x, source, mask, source_mask = torch.randn(2, T, D), torch.randn(2, S, D), causal_mask(T), tokens()[2]
    layer = randomize(decoder_layer())

    def norm(i: int, x: Tensor) -> Tensor:
        gain = layer.residual_connections[i].norm
        return norm_there(x, gain.alpha, gain.beta, 0.0)

    y, memory = x.double(), source.double()
    y = y + attention_there(layer.self_attention_block, *[norm(0, y)] * 3, mask)
    y = y + attention_there(layer.cross_attention_block, norm(1, y), memory, memory, source_mask)
    y = y + feed_forward_there(layer.feed_forward_block, norm(2, y))
    ours = layer(x, encoder_output=source, src_mask=source_mask, tgt_mask=mask)
    torch.testing.assert_close(ours.double(), y, atol=1e-4, rtol=1e-4)
    layer = randomize(encoder_layer())
    z = source.double()
    z = z + attention_there(layer.self_attention_block, *[norm(0, z)] * 3, source_mask)
    z = z + feed_forward_there(layer.feed_forward_block, norm(1, z))
    torch.testing.assert_close(layer(source, src_mask=source_mask).double(), z, atol=1e-4, rtol=1e-4)
    stack = randomize(Encoder(nn.ModuleList([layer])))
    end = norm_there(layer(source, source_mask), stack.norm.alpha, stack.norm.beta, 0.0)
    torch.testing.assert_close(stack(source, source_mask).double(), end, atol=1e-4, rtol=1e-4)
    post = randomize(ResidualConnection(D, 0.1, order="post"))
    after = norm_there(x + torch.sin(x), post.norm.alpha, post.norm.beta, 0.0)
    torch.testing.assert_close(post(x, torch.sin).double(), after, atol=1e-4, rtol=1e-4)


def test_the_steps_of_construction() -> None:
    """Catches a constructor that a description calls otherwise: the parts, joined by hand, are `build_transformer`."""
    src_embed, tgt_embed = InputEmbedding(D, V), InputEmbedding(d_model=D, vocab_size=V)
    src_pos, tgt_pos = PositionalEncoding(D, S, 0.1), PositionalEncoding(D, seq_len=T, dropout=0.1)
    encoder = Encoder(layers=nn.ModuleList([encoder_layer() for _ in range(2)]))
    decoder = Decoder(nn.ModuleList([decoder_layer() for _ in range(2)]))
    parts = encoder, decoder, src_embed, tgt_embed, src_pos, tgt_pos, ProjectionLayer(D, V)
    names = ("encoder", "decoder", "src_embed", "tgt_embed", "src_pos", "tgt_pos", "projection_layer")
    by_hand = Transformer(**dict(zip(names, parts, strict=True)))
    assert all(getattr(Transformer(*parts), name) is part for name, part in zip(names, parts, strict=True))
    built = build_transformer(V, V, S, T, D, 2, H, 0.1, F)
    by_hand.load_state_dict(built.state_dict())
    src, tgt, src_mask, tgt_mask = tokens()
    torch.testing.assert_close(by_hand.eval()(src, tgt, src_mask, tgt_mask), built.eval()(src, tgt, src_mask, tgt_mask))


@torch.no_grad()
def test_the_forward_pass_is_its_three_phases_and_the_greedy_loop_runs() -> None:
    """Catches masks that are exchanged, and a step that gives other tokens than the loop over all tokens so far."""
    model = randomize(build_transformer(V, V, S, T, D, 2, H, d_ff=F))
    src, tgt, src_mask, tgt_mask = tokens()
    encoder_output = model.encode(src, src_mask)
    logits = model.project(model.decode(encoder_output, src_mask, tgt, tgt_mask))
    torch.testing.assert_close(model(src, tgt, src_mask, tgt_mask), logits)
    tgt = torch.ones(2, 1, dtype=torch.long)
    state = model.begin(src, src_mask, limit=T)
    for _ in range(T - 1):
        output = model.decode(encoder_output, src_mask, tgt, causal_mask(tgt.size(1)))
        scores, state = model.step(tgt[:, -1], state)
        tgt = torch.cat([tgt, model.project(output[:, -1]).argmax(-1)[:, None]], dim=1)
        assert torch.equal(scores.argmax(-1), tgt[:, -1])


@torch.no_grad()
def test_shapes_along_the_model() -> None:
    """Catches an axis that is lost or exchanged, and heads or scores of another shape than the page says."""
    model = build_transformer(V, V, S, T, N=1).eval()
    seen: dict[str, tuple[int, ...]] = {}
    for name, module in model.named_modules():
        module.register_forward_hook(lambda _, __, output, name=name: seen.update({name: tuple(output.shape)}))
    model(*tokens())
    for side, stack, length in (("src", "encoder", S), ("tgt", "decoder", T)):
        width, layer = (2, length, 512), f"{stack}.layers.0"
        names = [f"{side}_embed", f"{side}_pos", f"{layer}.self_attention_block", f"{layer}.feed_forward_block", stack]
        assert {seen[name] for name in names} == {width}
        assert all(seen[f"{layer}.residual_connections.{i}"] == width for i in range(2))
        block, x = model.get_submodule(layer).self_attention_block, torch.zeros(width)
        assert {heads.shape for heads in block.queries_keys_values(x)} == {(2, 8, length, 64)}
        assert block.attention_weights(x, x).shape == (2, 8, length, length)
    source, target = torch.zeros(seen["encoder"]), torch.zeros(seen["decoder"])
    cross = model.decoder.layers[0].cross_attention_block
    heads = cross.keys_values(source, source)
    assert (cross.queries(target).shape, heads.keys.shape, heads.values.shape) == ((2, 8, T, 64), *[(2, 8, S, 64)] * 2)
    assert cross.attention_weights(target, source).shape == (2, 8, T, S)
    probabilities = model.log_probabilities(torch.randn(2, T, 512)).exp()
    assert (model.project(target).shape, probabilities.shape) == ((2, T, V), (2, T, V))
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(2, T))
    assert model.src_pos.pe.shape == (S, 512)
