"""Blocks, compared with their equations computed element by element in float64."""

import math

import pytest
import torch
from torch import Tensor, nn

from transformer.blocks import (
    FeedForwardBlock,
    InputEmbedding,
    LayerNormalization,
    PositionalEncoding,
    ProjectionLayer,
    ResidualConnection,
    causal_mask,
    initialize_xavier_uniform,
    neighbourhood_mask,
    padding_mask,
    sinusoid,
    target_mask,
)
from transformer.errors import ConfigError
from transformer.transformer import build_transformer


def randomize(module: nn.Module) -> nn.Module:
    """Draws all parameters from a normal distribution: biases of 0 and gains of 1 would hide a swap."""
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    return module


def test_embedding_is_a_scaled_lookup() -> None:
    """Catches a missing sqrt(d_model)."""
    block = randomize(InputEmbedding(13, 29))
    tokens = torch.tensor([[3, 28, 0], [3, 3, 7]])
    vectors = block(tokens)
    assert vectors.shape == (2, 3, 13)
    for b in range(2):
        for t in range(3):
            expected = block.embedding.weight[tokens[b, t]] * math.sqrt(13)
            torch.testing.assert_close(vectors[b, t], expected)


def test_sinusoid_is_the_formula() -> None:
    """Catches halves instead of interleaving, exponents off by one, and large angles in float32."""
    d_model = 10
    table = sinusoid(5001, d_model)
    for pos in (0, 1, 17, 5000):
        for i in range(d_model // 2):
            angle = pos / 10000 ** (2 * i / d_model)
            assert table[pos, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-7)
            assert table[pos, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-7)


def test_positions_relate_by_rotation() -> None:
    """Catches a violation of Sec. 3.5: PE(p + k) is PE(p) rotated by an angle that depends on k alone."""
    d_model, k = 12, 7
    table = sinusoid(200, d_model).double()
    for i in range(d_model // 2):
        turn = k / 10000 ** (2 * i / d_model)
        sin, cos = table[:-k, 2 * i], table[:-k, 2 * i + 1]
        torch.testing.assert_close(table[k:, 2 * i], sin * math.cos(turn) + cos * math.sin(turn), atol=1e-6, rtol=0)
        torch.testing.assert_close(table[k:, 2 * i + 1], cos * math.cos(turn) - sin * math.sin(turn), atol=1e-6, rtol=0)


def test_positional_encoding_adds_and_drops_after_adding() -> None:
    """Catches a saved buffer, positions that do not start at 0, and dropout before the sum."""
    block = PositionalEncoding(6, 11, dropout=0.5)
    x = torch.randn(2, 5, 6)
    assert not block.state_dict()
    torch.testing.assert_close(block.eval()(x), x + sinusoid(11, 6)[:5])
    dropped = block.train()(x)
    keep_mask = dropped != 0
    torch.testing.assert_close(dropped[keep_mask], 2 * (x + sinusoid(11, 6)[:5])[keep_mask])
    assert 0.2 < keep_mask.float().mean() < 0.8


def test_each_row_may_start_at_its_own_position() -> None:
    """Catches rows of different lengths that share one position during decoding."""
    block = PositionalEncoding(6, 11, dropout=0.0)
    x = torch.randn(3, 2, 6)
    shifted = block(x, torch.tensor([0, 4, 9]))
    for row, start in enumerate((0, 4, 9)):
        torch.testing.assert_close(shifted[row], x[row] + sinusoid(11, 6)[start : start + 2])


def test_positional_errors() -> None:
    """Catches a shape error from deep inside torch instead of a clear message."""
    with pytest.raises(ConfigError, match="d_model=7 is odd, but sines and cosines come in pairs"):
        PositionalEncoding(7, 10, 0.0)
    with pytest.raises(ConfigError, match="length=5 exceeds seq_len=4 positions"):
        PositionalEncoding(6, 4, 0.0)(torch.zeros(1, 5, 6))


@torch.no_grad()
def test_feed_forward_is_equation_2() -> None:
    """Catches another activation and swapped layers."""
    block = randomize(FeedForwardBlock(3, 5, dropout=0.0)).double()
    x = torch.randn(2, 2, 3, dtype=torch.float64)
    w1, b1, w2, b2 = block.linear_1.weight, block.linear_1.bias, block.linear_2.weight, block.linear_2.bias
    for b in range(2):
        for t in range(2):
            inner = [max(0.0, sum(float(x[b, t, j] * w1[i, j]) for j in range(3)) + float(b1[i])) for i in range(5)]
            outer = [sum(inner[j] * float(w2[i, j]) for j in range(5)) + float(b2[i]) for i in range(3)]
            assert block(x)[b, t].tolist() == pytest.approx(outer)


def test_feed_forward_dropout_is_inside() -> None:
    """Catches dropout applied to the output: the output bias must always arrive."""
    block = randomize(FeedForwardBlock(3, 1, dropout=0.999)).train()
    outputs = block(torch.randn(1, 50, 3))
    bias_alone = (outputs - block.linear_2.bias).abs().amax(dim=-1) < 1e-6
    assert bias_alone.float().mean() > 0.9


@torch.no_grad()
def test_layer_norm_is_the_reference_formula() -> None:
    """Catches the unbiased variance and eps outside the root."""
    block = randomize(LayerNormalization(7, eps=0.3)).double()
    x = torch.randn(4, 7, dtype=torch.float64)
    for row in range(4):
        values = x[row].tolist()
        mean = sum(values) / 7
        variance = sum((value - mean) ** 2 for value in values) / 7
        expected = [
            float(block.alpha[i]) * (values[i] - mean) / math.sqrt(variance + 0.3) + float(block.beta[i])
            for i in range(7)
        ]
        assert block(x)[row].tolist() == pytest.approx(expected)
    assert LayerNormalization(7).eps == 1e-6


def test_residual_orders() -> None:
    """Catches a swapped order and dropout on the wrong branch."""
    x = torch.randn(2, 3, 5)
    for order in ("pre", "post"):
        block = randomize(ResidualConnection(5, dropout=0.0, order=order))
        expected = x + torch.sin(block.norm(x)) if order == "pre" else block.norm(x + torch.sin(x))
        torch.testing.assert_close(block(x, torch.sin), expected)
    branch_dropped = ResidualConnection(5, dropout=0.999, order="pre").train()
    assert (branch_dropped(x, torch.sin) == x).float().mean() > 0.8


@pytest.mark.parametrize("order", ["post", "pre"])
def test_dropout_of_a_residual_connection_spares_the_input(order: str) -> None:
    """Catches dropout of the sum or of the normalized sum, which at p = 0.999 leaves next to nothing of x."""
    block = ResidualConnection(7, 0.999, order=order).train()
    x, y = torch.randn(11, 13, 7), torch.randn(11, 13, 7)
    dropped = block(x, lambda _: y)
    spared = nn.functional.layer_norm(x, (7,), eps=1e-6) if order == "post" else x
    is_spared = (dropped - spared).abs().amax(dim=-1) < 1e-5
    assert is_spared.float().mean() > 0.95  # 0.999^7 = 0.993 of the rows lose all of y
    block = ResidualConnection(7, 0.4, order=order).train()
    torch.manual_seed(3)
    result = block(x, lambda _: y)
    torch.manual_seed(3)
    total = x + nn.functional.dropout(y, 0.4)
    torch.testing.assert_close(result, nn.functional.layer_norm(total, (7,), eps=1e-6) if order == "post" else total)


def test_residual_takes_another_norm_and_refuses_another_order() -> None:
    """Catches a norm that is built regardless of what is passed in."""
    assert isinstance(ResidualConnection(5, 0.0, norm=nn.RMSNorm).norm, nn.RMSNorm)
    with pytest.raises(ConfigError, match="order='sandwich' is unknown; choose 'pre' or 'post'"):
        ResidualConnection(5, 0.0, order="sandwich")


def test_projection_gives_logits() -> None:
    """Catches a softmax in the layer, and a bias that should not exist."""
    block = randomize(ProjectionLayer(3, 17))
    x = torch.randn(2, 5, 3)
    torch.testing.assert_close(block(x), x @ block.proj.weight.T + block.proj.bias)
    assert ProjectionLayer(3, 17, bias=False).proj.bias is None


def test_masks_by_hand() -> None:
    """Catches an inverted or transposed mask."""
    tokens = torch.tensor([[5, 6, 0], [7, 0, 0]])
    assert padding_mask(tokens)[:, 0, 0].tolist() == [[True, True, False], [True, False, False]]
    assert causal_mask(3)[0, 0].int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert neighbourhood_mask(4, 3)[0, 0].int().tolist() == [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]]
    assert neighbourhood_mask(4, 2)[0, 0].int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
    assert torch.equal(neighbourhood_mask(4, 1)[0, 0], torch.eye(4, dtype=torch.bool))
    with pytest.raises(ConfigError, match="r=0 is below 1"):
        neighbourhood_mask(4, 0)
    assert target_mask(tokens)[1, 0].int().tolist() == [[1, 0, 0], [1, 0, 0], [1, 0, 0]]
    assert padding_mask(tokens, pad_id=6).sum() == 5


def test_embeddings_are_drawn_with_the_variance_of_their_width() -> None:
    """Catches embeddings that the positional encoding dominates, and a shared projection that is reinitialized."""
    model = build_transformer(500, 500, 5, 5, d_model=64, N=1, h=2, d_ff=8, share_embeddings="all")
    assert model.projection_layer.proj.weight.std().item() == pytest.approx(1 / 8, rel=0.03)
    assert model.src_embed(torch.arange(500)[None]).std().item() == pytest.approx(1.0, rel=0.03)
    alone = build_transformer(500, 500, 5, 5, d_model=64, N=1, h=2, d_ff=8)
    assert alone.tgt_embed.embedding.weight.std().item() == pytest.approx(1 / 8, rel=0.03)
    assert alone.projection_layer.proj.weight.std().item() == pytest.approx(math.sqrt(2 / 564), rel=0.03)


def test_fairseq_starts_branches_smaller() -> None:
    """Catches bounds that differ from those of torch's own attention and linear layers, and an unused choice."""
    d_model, d_ff = 128, 320
    model = build_transformer(9, 9, 5, 5, d_model, 2, 4, d_ff=d_ff, initialization="fairseq")
    peers = nn.MultiheadAttention(d_model, 4), nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
    packed, inner, outer = peers[0].in_proj_weight, peers[1].weight, peers[2].weight
    matched = 0
    for name, parameter in model.named_parameters():
        reference = {"W_q.weight": packed, "W_k.weight": packed, "W_v.weight": packed, "linear_1.weight": inner,
                     "linear_2.weight": outer}.get(".".join(name.split(".")[-2:]))  # fmt: skip
        if reference is not None:
            matched += 1
            assert parameter.abs().max().item() == pytest.approx(reference.abs().max().item(), rel=0.01), name
            assert parameter.std().item() == pytest.approx(reference.std().item(), rel=0.02), name
        elif name.endswith("W_o.weight"):
            assert parameter.std().item() == pytest.approx(math.sqrt(1 / d_model), rel=0.02)
        elif name.endswith("W_o.bias"):
            assert not parameter.any()
    assert matched == 2 * (3 + 2) + 2 * (3 + 3 + 2)
    with pytest.raises(ConfigError, match="initialization='kaiming' is unknown; choose 'xavier' or 'fairseq'"):
        build_transformer(9, 9, 5, 5, 4, 1, 2, d_ff=8, initialization="kaiming")


def test_xavier_fills_matrices_within_the_bound() -> None:
    """Catches a normal distribution, wrong fans, and vectors that are initialized too."""
    model = nn.Sequential(nn.Linear(30, 70), nn.LayerNorm(70))
    initialize_xavier_uniform(model)
    bound = math.sqrt(6 / (30 + 70))
    weight: Tensor = model[0].weight
    assert weight.abs().max() <= bound
    assert weight.abs().max() > 0.98 * bound
    assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)
    assert torch.equal(model[1].weight, torch.ones(70))
