"""The whole model: sizes, sharing, gradients, masks, and decoding step by step."""

import pytest
import torch
from torch import Tensor, nn

from transformer.blocks import causal_mask, padding_mask
from transformer.blocks.cache import KeyValueCache
from transformer.errors import ConfigError
from transformer.transformer import Transformer, build_transformer

SOURCE_VOCABULARY, TARGET_VOCABULARY = 37, 41
B, S, T = 3, 7, 5


def tiny(**changes: object) -> Transformer:
    sizes = {"d_model": 12, "N": 2, "h": 3, "d_ff": 17, "dropout": 0.0} | changes
    model = build_transformer(SOURCE_VOCABULARY, TARGET_VOCABULARY, 19, 23, **sizes)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model.eval()


@pytest.fixture
def batch() -> tuple[Tensor, Tensor, Tensor]:
    src, tgt = torch.randint(1, SOURCE_VOCABULARY, (B, S)), torch.randint(1, TARGET_VOCABULARY, (B, T))
    src[1, 4:] = 0
    return src, tgt, padding_mask(src)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ({}, 63_082_496),
        ({"d_model": 1024, "h": 16, "d_ff": 4096}, 214_245_376),
        ({"d_k": 16, "d_v": 64}, 63_082_496 - 18 * 2 * (512 + 1) * (512 - 128)),
        ({"positions": "learned"}, 63_082_496 + 2 * 8 * 512),
    ],
)
def test_parameter_counts_of_base_and_big(sizes: dict[str, int], expected: int) -> None:
    """Catches a stray bias, a final norm in post-norm, an unshared matrix (37,000 shared tokens; base, big, row B)."""
    with torch.device("meta"):
        model = build_transformer(37_000, 37_000, 8, 8, norm_order="post", share_embeddings="all", **sizes)
    assert sum(parameter.numel() for parameter in model.parameters()) == expected


def test_separate_depths() -> None:
    """Catches encoder and decoder depths that are swapped, and a wrong default."""
    model = tiny(encoder_layers=5, decoder_layers=3)
    assert (len(model.encoder.layers), len(model.decoder.layers)) == (5, 3)
    model = tiny(N=4, decoder_layers=1)
    assert (len(model.encoder.layers), len(model.decoder.layers)) == (4, 1)
    with pytest.raises(ConfigError, match="decoder_layers=0 is below 1; choose a positive number"):
        tiny(decoder_layers=0)


def test_shapes_at_every_step() -> None:
    """The (corrected) table of the base model: catches a transposed or missing axis between any two blocks."""
    model = build_transformer(SOURCE_VOCABULARY, TARGET_VOCABULARY, 11, 11, N=1)
    shapes: dict[str, tuple[int, ...]] = {}
    for name, module in model.named_modules():
        module.register_forward_hook(lambda _, __, output, name=name: shapes.update({name: tuple(output.shape)}))
    src, tgt = torch.ones(2, 7, dtype=torch.long), torch.ones(2, 5, dtype=torch.long)
    model(src, tgt, padding_mask(src), causal_mask(5))
    source, target = (2, 7, 512), (2, 5, 512)
    layer = "decoder.layers.0"
    expected = {
        "src_embed": source, "src_pos": source, "tgt_embed": target, "tgt_pos": target,
        "encoder.layers.0.self_attention_block.W_o": source, "encoder.layers.0.self_attention_block": source,
        "encoder.layers.0.feed_forward_block.linear_1": (2, 7, 2048), "encoder.layers.0": source, "encoder": source,
        f"{layer}.self_attention_block": target, f"{layer}.cross_attention_block.W_q": target,
        f"{layer}.cross_attention_block.W_k": source, f"{layer}.cross_attention_block.W_v": source,
        f"{layer}.cross_attention_block": target, f"{layer}.feed_forward_block.linear_1": (2, 5, 2048),
        "decoder": target, "projection_layer": (2, 5, TARGET_VOCABULARY),
    }  # fmt: skip
    assert {name: shapes[name] for name in expected} == expected
    cross = model.decoder.layers[0].cross_attention_block
    assert cross.attention_weights(torch.zeros(target), torch.zeros(source)).shape == (2, 8, 5, 7)
    assert cross.keys_values(torch.zeros(source), torch.zeros(source)).keys.shape == (2, 8, 7, 64)


@pytest.mark.parametrize("share", ["none", "target", "all"])
def test_sharing_is_one_tensor_and_stays_one(share: str) -> None:
    """Catches copies instead of sharing, and a shared matrix that is drawn or counted twice."""
    model = build_transformer(31, 31, 9, 9, d_model=8, N=1, h=2, d_ff=8, share_embeddings=share)
    source, target, projection = (
        model.src_embed.embedding.weight,
        model.tgt_embed.embedding.weight,
        model.projection_layer.proj.weight,
    )
    assert (target is projection) == (share != "none")
    assert (source is target) == (share == "all")
    assert (model.projection_layer.proj.bias is None) == (share != "none")
    model.load_state_dict(model.state_dict())
    assert (model.tgt_embed.embedding.weight is model.projection_layer.proj.weight) == (share != "none")


def test_builder_errors() -> None:
    """Catches invalid sizes that reach torch."""
    with pytest.raises(ConfigError, match="share_embeddings='both' is unknown; choose 'none', 'target' or 'all'"):
        build_transformer(5, 5, 4, 4, d_model=4, N=1, h=1, d_ff=4, share_embeddings="both")
    with pytest.raises(ConfigError, match="needs one vocabulary, but src_vocab_size=5 and tgt_vocab_size=6"):
        build_transformer(5, 6, 4, 4, d_model=4, N=1, h=1, d_ff=4, share_embeddings="all")
    with pytest.raises(ConfigError, match="positions='rotary' is unknown; choose 'sinusoidal' or 'learned'"):
        build_transformer(5, 5, 4, 4, d_model=4, N=1, h=1, d_ff=4, positions="rotary")
    with pytest.raises(ConfigError, match="N=0 is below 1; choose a positive number"):
        build_transformer(5, 6, 4, 4, d_model=4, N=0, h=1, d_ff=4)


@pytest.mark.parametrize("order", ["pre", "post"])
def test_gradients_reach_every_parameter(order: str, batch: tuple[Tensor, Tensor, Tensor]) -> None:
    """Catches a block that is built and not used."""
    model = tiny(norm_order=order)
    src, tgt, src_mask = batch
    model(src, tgt, src_mask, causal_mask(T)).square().sum().backward()
    without = [
        name for name, parameter in model.named_parameters() if parameter.grad is None or not parameter.grad.any()
    ]
    # Adding a constant to all keys shifts every score of a query alike, so a softmax does not depend on W_k's bias.
    assert [name for name in without if not name.endswith("W_k.bias")] == []


@pytest.mark.parametrize("order", ["pre", "post"])
def test_no_look_ahead(order: str, batch: tuple[Tensor, Tensor, Tensor]) -> None:
    """Catches a causal leak, to the bit: a later target token changes nothing before it."""
    model = tiny(norm_order=order)
    src, tgt, src_mask = batch
    before = model(src, tgt, src_mask, causal_mask(T))
    for position in range(1, T):
        changed = tgt.clone()
        changed[:, position] = (changed[:, position] + 1) % TARGET_VOCABULARY
        after = model(src, changed, src_mask, causal_mask(T))
        assert torch.equal(before[:, :position], after[:, :position])
        assert not torch.equal(before[:, position], after[:, position])


def test_padding_is_neutral(batch: tuple[Tensor, Tensor, Tensor]) -> None:
    """Catches attention to padding: neither the tokens at padded positions (to the bit) nor their number may matter."""
    model = tiny()
    src, tgt, src_mask = batch
    expected = model(src, tgt, src_mask, causal_mask(T))
    other_padding = src.clone()
    other_padding[1, 4:] = 9
    assert torch.equal(model(other_padding, tgt, src_mask, causal_mask(T)), expected)
    alone = model(src[1:2, :4], tgt[1:2], None, causal_mask(T))
    torch.testing.assert_close(alone[0], expected[1], atol=1e-5, rtol=0)


def test_log_probabilities_sum_to_one(batch: tuple[Tensor, Tensor, Tensor]) -> None:
    """Catches a softmax over the wrong axis or in a half type."""
    model = tiny().to(torch.bfloat16)
    hidden = torch.randn(B, T, 12, dtype=torch.bfloat16)
    log_p = model.log_probabilities(hidden)
    assert log_p.dtype == torch.float32
    torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(B, T))


@pytest.mark.parametrize(
    "options",
    [{"norm_order": "pre"}, {"norm_order": "post"}, {"d_k": 3, "d_v": 5}, {"positions": "learned"}],
    ids=["pre", "post", "widths", "learned"],
)
def test_steps_equal_the_full_forward(options: dict[str, object], batch: tuple[Tensor, Tensor, Tensor]) -> None:
    """Catches a cache written at the wrong place, positions that do not advance, rows that are lost on reordering."""
    model = tiny(**options)
    src, tgt, src_mask = batch
    expected = model(src, tgt, src_mask, causal_mask(T))
    state = model.begin(src, src_mask, limit=T)
    for t in range(T):
        logits, state = model.step(tgt[:, t], state)
        torch.testing.assert_close(logits, expected[:, t], atol=1e-5, rtol=1e-4)
        if t in (1, 2):
            rows = torch.tensor([2, 0, 0, 1]) if t == 1 else torch.tensor([3, 1])
            state, tgt, expected = state.select(rows), tgt[rows], expected[rows]
    assert state.src_mask.size(0) == 2, "the source of a dropped sentence must be dropped"


def test_an_empty_cache_is_not_copied() -> None:
    """Catches rows that are moved although nothing is written to them, as for every hypothesis of a new beam."""
    cache = KeyValueCache(torch.ones(2, 3, 4, 5), torch.ones(2, 3, 4, 5))
    selected = cache.select(torch.tensor([1, 1, 0]), 0)
    assert all(torch.equal(x, torch.zeros(3, 3, 4, 5)) for x in (selected.keys, selected.values))
    assert torch.equal(cache.select(torch.tensor([1, 1, 0]), 1).keys, torch.ones(3, 3, 4, 5))


def test_rows_at_different_positions_step_together(batch: tuple[Tensor, Tensor, Tensor]) -> None:
    """Catches a mask by the longest row: a shorter row must not see the cache beyond its own position."""
    model = tiny()
    src, tgt, src_mask = batch
    state = model.begin(src, src_mask, limit=T)
    for t in range(3):
        _, state = model.step(tgt[:, t], state)
    state.positions = torch.tensor([3, 1, 2])  # rows 1 and 2 move back and overwrite later positions
    logits, _ = model.step(tgt[torch.arange(B), state.positions], state)
    full = model(src, tgt, src_mask, causal_mask(T))
    torch.testing.assert_close(logits, full[torch.arange(B), torch.tensor([3, 1, 2])], atol=1e-5, rtol=1e-4)


def test_begin_refuses_what_positions_cannot_hold() -> None:
    """Catches an index error in the middle of a search."""
    src = torch.ones(1, 3, dtype=torch.long)
    with pytest.raises(ConfigError, match="limit=24 exceeds tgt_seq_len=23; ask for fewer tokens"):
        tiny().begin(src, padding_mask(src), limit=24)
