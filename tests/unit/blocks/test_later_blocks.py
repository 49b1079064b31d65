"""Blocks beyond the paper's, compared with the equations of their papers or with other implementations."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer.blocks import (
    CausalDecoder,
    CausalDecoderLayer,
    FeedForwardBlock,
    FrequencyScaling,
    GatedFeedForward,
    LearnedPositions,
    LinearBias,
    MultiHeadAttention,
    PatchEmbedding,
    ReadoutEncoder,
    ReadoutLayer,
    RelativePositionBias,
    RMSNormalization,
    RotaryAttention,
    RotaryPositions,
    attention,
    causal_mask,
)
from transformer.decoding.incremental_state import join_states
from transformer.errors import ConfigError

B, T, S, D = 3, 5, 7, 12


def test_shared_key_heads_are_those_of_repeated_matrices() -> None:
    """Catches a query head that reads the wrong key head: heads 0 and 1 share one, and 2 and 3 the next."""
    shared, full = MultiHeadAttention(D, 4, kv_heads=2, d_k=5), MultiHeadAttention(D, 4, d_k=5)
    with torch.no_grad():
        for name in ("W_q", "W_o"):
            getattr(full, name).load_state_dict(getattr(shared, name).state_dict())
        for name in ("W_k", "W_v"):
            for kind in ("weight", "bias"):
                parts = getattr(getattr(shared, name), kind).unflatten(0, (2, 5))
                getattr(getattr(full, name), kind).copy_(
                    torch.stack([parts[0], parts[0], parts[1], parts[1]]).flatten(0, 1)
                )
    x, source = torch.randn(B, T, D), torch.randn(B, S, D)
    torch.testing.assert_close(shared(x, source, source), full(x, source, source))
    torch.testing.assert_close(shared.attention_weights(x, source), full.attention_weights(x, source))
    assert shared.keys_values(source, source).keys.shape == (B, 2, S, 5)


@pytest.mark.parametrize("size", [S, 300], ids=["plain", "fused"])
def test_values_have_a_width_of_their_own(size: int) -> None:
    """Catches heads that are split by the width of the keys, a scale by d_v, and an output of h * d_k features."""
    block = MultiHeadAttention(D, 3, d_k=2, d_v=5).double()
    assert [tuple(layer.weight.shape) for layer in (block.W_q, block.W_k, block.W_v, block.W_o)] == [
        (6, D), (6, D), (15, D), (D, 15),
    ]  # fmt: skip
    x, source = torch.randn(B, T, D).double(), torch.randn(B, size, D).double()
    heads = []
    for i in range(3):
        (wq, bq), (wk, bk), (wv, bv) = (
            (layer.weight[i * width : (i + 1) * width], layer.bias[i * width : (i + 1) * width])
            for layer, width in ((block.W_q, 2), (block.W_k, 2), (block.W_v, 5))
        )
        scores = torch.einsum("btd,bsd->bts", x @ wq.T + bq, source @ wk.T + bk) / math.sqrt(2)
        heads.append(scores.softmax(-1) @ (source @ wv.T + bv))
    expected = torch.cat(heads, dim=-1) @ block.W_o.weight.T + block.W_o.bias
    torch.testing.assert_close(block(x, source, source), expected)
    with pytest.raises(ConfigError, match="d_v=0 are widths of heads"):
        MultiHeadAttention(D, 3, d_v=0)


@pytest.mark.parametrize("size", [S, 300], ids=["plain", "fused"])
def test_bias_and_scale_enter_as_in_the_formula(size: int) -> None:
    """Catches a scaled bias, a scale that is ignored, and a mask that a bias overrides, in both implementations."""
    query, key, value = torch.randn(B, 2, T, 4), torch.randn(B, 2, size, 4), torch.randn(B, 2, size, 4)
    bias, mask = torch.randn(1, 2, T, size), torch.rand(B, 1, T, size) > 0.3
    actual = attention(query, key, value, mask, bias=bias, scale=0.3)
    scores = torch.einsum("bhte,bhse->bhts", query.double(), key.double()) * 0.3 + bias.double()
    expected = scores.masked_fill(~mask, -torch.inf).softmax(-1) @ value.double()
    torch.testing.assert_close(actual.double(), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("bias", "count"), [("all", 4), ("output", 1), ("none", 0)])
def test_biases_are_those_asked_for(bias: str, count: int) -> None:
    """Catches a linear layer with a bias that the published model does not have."""
    block = MultiHeadAttention(D, 4, bias=bias)
    assert sum(name.endswith("bias") for name, _ in block.named_parameters()) == count
    x = torch.randn(B, T, D)
    in_two_steps = block.attend(x, block.keys_values(x, x))
    torch.testing.assert_close(block(x, x, x), in_two_steps)


def test_wrong_heads_and_biases_are_refused() -> None:
    """Catches sizes that only fail in a matrix product."""
    with pytest.raises(ConfigError, match="kv_heads=3 does not divide h=4"):
        MultiHeadAttention(D, 4, kv_heads=3)
    with pytest.raises(ConfigError, match="bias='some' is unknown"):
        MultiHeadAttention(D, 4, bias="some")
    with pytest.raises(ConfigError, match=r"low=4.0, high=1.0, .* slows nothing down"):
        FrequencyScaling(8.0, 4.0, 1.0, 10)
    with pytest.raises(ConfigError, match="d_k=3 is odd"):
        RotaryPositions(3, 10)
    with pytest.raises(ConfigError, match="length=11 exceeds seq_len=10"):
        RotaryPositions(4, 10)(torch.zeros(1, 1, 11, 4))
    with pytest.raises(ConfigError, match="length=11 exceeds seq_len=10"):
        LearnedPositions(4, 10, 0.0)(torch.zeros(1, 11, 4))


def test_rotary_positions_are_the_rotations_of_the_paper() -> None:
    """Catches a wrong angle, pairing or sign: each pair is a complex number that is multiplied by e^(i m theta)."""
    x, first = torch.randn(B, 2, T, 6), torch.tensor([0, 4, 11])
    rotated = RotaryPositions(6, 20, base=50.0)(x, first)
    for row in range(B):
        for t in range(T):
            for pair in range(3):
                angle = (int(first[row]) + t) * 50.0 ** (-2 * pair / 6)
                number = torch.complex(x[row, :, t, pair], x[row, :, t, pair + 3]) * complex(
                    math.cos(angle), math.sin(angle)
                )
                torch.testing.assert_close(rotated[row, :, t, pair], number.real)
                torch.testing.assert_close(rotated[row, :, t, pair + 3], number.imag)


def test_rotated_features_keep_their_type() -> None:
    """Catches queries and keys in float32 with values in bfloat16, which no fast attention supports."""
    x = torch.randn(2, 3, 5, 4)
    rotated = RotaryPositions(4, 9)(x.bfloat16())
    assert rotated.dtype == torch.bfloat16
    torch.testing.assert_close(rotated.float(), RotaryPositions(4, 9)(x), atol=0.05, rtol=0.02)


def test_rotary_attention_depends_on_distances_alone() -> None:
    """Catches keys cached unrotated or rotated twice, and absolute positions that leak into the weights."""
    torch.manual_seed(0)
    block = RotaryAttention(D, 2, RotaryPositions(6, 40))
    x = torch.randn(B, T, D)
    expected = block(x, x, x)
    first = torch.tensor([3, 0, 20])
    shifted = block.attend(x, block.keys_values(x, x, first), positions=first)
    torch.testing.assert_close(shifted, expected, atol=1e-5, rtol=1e-4)
    moved = torch.cat([x[:, 1:], x[:, :1]], dim=1)
    assert not torch.allclose(block(moved, moved, moved)[:, :-1], expected[:, 1:], atol=1e-3)


def test_relative_buckets_are_those_of_a_loop() -> None:
    """Catches a bucket that is off by one.

    Half of the buckets are exact, the others are logarithmic and the last is open; later keys have separate ones.
    """

    def bucket(distance: int, *, bidirectional: bool) -> int:
        buckets, first = (4, 4 * (distance > 0)) if bidirectional else (8, 0)
        far = abs(distance) if bidirectional else max(-distance, 0)
        exact = buckets // 2
        if far < exact:
            return first + far
        grown = exact + int(math.log(far / exact) / math.log(20 / exact) * (buckets - exact))
        return first + min(grown, buckets - 1)

    for bidirectional in (True, False):
        block = RelativePositionBias(3, 8, 20, bidirectional=bidirectional)
        queries = torch.tensor([[0, 1, 2, 3, 4, 30], [5, 6, 7, 8, 9, 10]])
        actual = block(queries, 33)
        for row in range(2):
            for column, query in enumerate(queries[row].tolist()):
                expected = [bucket(key - query, bidirectional=bidirectional) for key in range(33)]
                torch.testing.assert_close(actual[row, :, column].T, block.embedding.weight[expected])


def test_max_distance_must_leave_ranges() -> None:
    """Catches the logarithm of 1 or less as a divisor, which gives NaN or negative buckets."""
    with pytest.raises(ConfigError, match="max_distance=16 must be more than half of buckets=32"):
        RelativePositionBias(2, 32, 16, bidirectional=False)


def test_linear_biases_have_the_slopes_of_the_paper() -> None:
    """Catches a wrong slope or sign: 8 heads have the slopes 1/2, 1/4, ..., 1/256 (Sec. 3)."""
    bias = LinearBias(8)(torch.tensor([[0, 5]]), 6)
    assert bias[0, :, 1, 0].tolist() == [-5 / 2**n for n in range(1, 9)]
    assert bias[0, :, 1, 5].tolist() == [0.0] * 8
    assert LinearBias(3)(torch.tensor([[1]]), 1)[0, :, 0, 0].tolist() == [-(2**-4), -(2**-8), -(2**-2)]


@pytest.mark.parametrize("bias", [LinearBias(2), RelativePositionBias(2, 8, 20, bidirectional=False), None])
def test_a_causal_stack_steps_as_it_reads(bias: nn.Module | None) -> None:
    """Catches a bias at the wrong position after rows of different lengths were selected and joined."""
    torch.manual_seed(0)
    layers = (CausalDecoderLayer(D, MultiHeadAttention(D, 2), FeedForwardBlock(D, 13, 0.0), 0.0) for _ in range(2))
    stack = CausalDecoder(nn.ModuleList(layers), position_bias=bias).eval()
    x = torch.randn(B, T, D)
    expected = stack(x, causal_mask(T))
    lengths = torch.tensor([2, 3, 1])
    state = stack.begin(x[:, :3], lengths)
    order = torch.tensor([2, 0, 1])
    state = state.select(order)
    rows = torch.arange(B)
    for _ in range(2):
        positions = state.positions
        actual = stack.step(x[order][rows, positions][:, None], state)
        torch.testing.assert_close(actual[:, 0], expected[order][rows, positions], atol=1e-5, rtol=1e-4)
        state.advance()
    joined = join_states(state.select(torch.tensor([0])), state.select(torch.tensor([0])))
    assert joined.positions.tolist() == [3, 3]


@pytest.mark.parametrize("order", ["pre", "post"])
@pytest.mark.parametrize("bias", [LinearBias(2), None])
def test_the_first_positions_are_those_of_the_whole(order: str, bias: nn.Module | None) -> None:
    """Catches a mask or bias of other positions, keys truncated like queries, and a residual of the wrong rows."""
    layers = (ReadoutLayer(D, MultiHeadAttention(D, 2), FeedForwardBlock(D, 13, 0.0), 0.0, order=order) for _ in "ab")
    stack = ReadoutEncoder(nn.ModuleList(layers), position_bias=bias).eval()
    x, mask = torch.randn(B, T, D), torch.rand(B, 1, T, T) < 0.7
    torch.testing.assert_close(stack(x, mask, 2), stack(x, mask)[:, :2])


def test_gated_network_is_the_equation() -> None:
    """Catches swapped gate and value (Shazeer 2020, Eq. 6)."""
    block, x = GatedFeedForward(D, 13, 0.0), torch.randn(B, T, D)
    w, v, w_2 = block.gate.weight.T, block.linear_1.weight.T, block.linear_2.weight.T
    torch.testing.assert_close(block(x), ((x @ w) * torch.sigmoid(x @ w) * (x @ v)) @ w_2)


def test_rms_norm_is_that_of_torch() -> None:
    """Catches a mean that is subtracted, or eps outside the root."""
    block, x = RMSNormalization(D, eps=0.1), torch.randn(B, T, D)
    nn.init.normal_(block.alpha)
    torch.testing.assert_close(block(x), F.rms_norm(x, (D,), block.alpha, 0.1))


def test_patches_are_cut_row_by_row() -> None:
    """Catches transposed patches: each is a linear function of its pixels."""
    block = PatchEmbedding(D, (2, 3), 3)
    images = torch.randn(B, 3, 5, 9)
    actual = block(images)
    assert actual.shape == (B, 2 * 3, D)
    weight: Tensor = block.projection.weight.flatten(1)
    for row in range(2):
        for column in range(3):
            pixels = images[:, :, 2 * row : 2 * row + 2, 3 * column : 3 * column + 3].flatten(1)
            expected = pixels @ weight.T + block.projection.bias
            torch.testing.assert_close(actual[:, 3 * row + column], expected, atol=1e-5, rtol=1e-4)
