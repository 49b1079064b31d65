"""Compares the whole model with torch.nn.Transformer, both with the same random weights."""

import math

import pytest
import torch
from torch import Tensor, nn

from transformer.blocks import causal_mask, padding_mask
from transformer.transformer import Transformer, build_transformer


def reference_stacks(model: Transformer, d_model: int, N: int, h: int, d_ff: int, *, pre: bool) -> nn.Transformer:
    """Returns torch's Transformer with the weights of our model; its stacks end in a norm only if ours do."""
    layer = {"d_model": d_model, "nhead": h, "dim_feedforward": d_ff, "dropout": 0.0, "layer_norm_eps": 1e-6,
             "batch_first": True, "norm_first": pre}  # fmt: skip
    norms = [nn.LayerNorm(d_model, eps=1e-6) if pre else None for _ in range(2)]
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(**layer), N, norms[0], enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**layer), N, norms[1])
    reference = nn.Transformer(d_model, h, custom_encoder=encoder, custom_decoder=decoder, batch_first=True)
    with torch.no_grad():
        for source, target in zip(model.encoder.layers, encoder.layers, strict=True):
            copy_layer(source, target, {"self_attention_block": "self_attn"})
        for source, target in zip(model.decoder.layers, decoder.layers, strict=True):
            copy_layer(source, target, {"self_attention_block": "self_attn", "cross_attention_block": "multihead_attn"})
        if pre:
            copy_norm(model.encoder.norm, norms[0])
            copy_norm(model.decoder.norm, norms[1])
    return reference.eval()


def copy_layer(source: nn.Module, target: nn.Module, attention_names: dict[str, str]) -> None:
    for source_name, target_name in attention_names.items():
        attention, reference = getattr(source, source_name), getattr(target, target_name)
        reference.in_proj_weight.copy_(torch.cat([attention.W_q.weight, attention.W_k.weight, attention.W_v.weight]))
        reference.in_proj_bias.copy_(torch.cat([attention.W_q.bias, attention.W_k.bias, attention.W_v.bias]))
        reference.out_proj.load_state_dict(attention.W_o.state_dict())
    target.linear1.load_state_dict(source.feed_forward_block.linear_1.state_dict())
    target.linear2.load_state_dict(source.feed_forward_block.linear_2.state_dict())
    for index, connection in enumerate(source.residual_connections, start=1):
        copy_norm(connection.norm, getattr(target, f"norm{index}"))


def copy_norm(source: nn.Module, target: nn.Module) -> None:
    target.weight.copy_(source.alpha)
    target.bias.copy_(source.beta)


def embed(embedding: nn.Embedding, tokens: Tensor, positions: Tensor) -> Tensor:
    return embedding(tokens) * math.sqrt(positions.size(1)) + positions


@pytest.mark.parametrize("order", ["pre", "post"])
@pytest.mark.parametrize(
    ("d_model", "N", "h", "d_ff", "vocabulary", "shape"),
    [(22, 2, 11, 29, 53, (3, 7, 5)), pytest.param(512, 6, 8, 2048, 997, (2, 13, 11), marks=pytest.mark.slow)],
    ids=["prime", "base"],
)
@torch.no_grad()
def test_same_logits_as_torch(
    order: str, d_model: int, N: int, h: int, d_ff: int, vocabulary: int, shape: tuple[int, int, int]
) -> None:
    """Catches any difference in the wiring: order of norms, sources of keys, masks, scaling."""
    B, S, T = shape
    model = build_transformer(
        vocabulary, vocabulary + 2, S, T, d_model=d_model, N=N, h=h, d_ff=d_ff, dropout=0.0, norm_order=order
    ).eval()
    for parameter in model.parameters():
        fan = parameter.size(-1) if parameter.dim() > 1 else 25
        parameter.normal_(std=fan**-0.5).add_(1.0 if parameter.dim() == 1 and parameter.numel() == d_model else 0.0)
    for encoding in (model.src_pos, model.tgt_pos):
        encoding.pe.normal_()
    reference = reference_stacks(model, d_model, N, h, d_ff, pre=order == "pre")
    src, tgt = torch.randint(1, vocabulary, (B, S)), torch.randint(1, vocabulary, (B, T))
    src[1, S - 3 :] = 0
    src_mask = padding_mask(src)
    hidden = reference(
        embed(model.src_embed.embedding, src, model.src_pos.pe),
        embed(model.tgt_embed.embedding, tgt, model.tgt_pos.pe),
        tgt_mask=~causal_mask(T)[0, 0],
        src_key_padding_mask=src == 0,
        memory_key_padding_mask=src == 0,
    )
    actual = model.decode(model.encode(src, src_mask), src_mask, tgt, causal_mask(T))
    torch.testing.assert_close(actual, hidden, atol=1e-5, rtol=0)
    expected = model.projection_layer.proj(hidden)
    torch.testing.assert_close(model(src, tgt, src_mask, causal_mask(T)), expected, atol=1e-5, rtol=0)
