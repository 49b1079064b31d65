"""The model of "Attention Is All You Need" on one page."""

from collections.abc import Collection
from typing import Final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from transformer.blocks import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForwardBlock,
    IncrementalState,
    InputEmbedding,
    LearnedPositions,
    MultiHeadAttention,
    PositionalEncoding,
    ProjectionLayer,
    initialize_embeddings,
    initialize_fairseq,
    initialize_xavier_uniform,
)
from transformer.blocks.attention import Mask
from transformer.blocks.positional import Positions
from transformer.errors import ConfigError

INITIALIZATIONS: Final = {"xavier": initialize_xavier_uniform, "fairseq": initialize_fairseq}
"""Functions that initialize the matrices, by name."""
POSITIONS: Final = {"sinusoidal": PositionalEncoding, "learned": LearnedPositions}
"""Classes of positional encodings, by name."""


class Transformer(nn.Module):
    """An encoder and a decoder over embedded, position-encoded tokens, and a projection to the vocabulary.

    Args:
        encoder: Encoder of the source.
        decoder: Decoder of the target, which attends to the encoder's output.
        src_embed: Embedding of source tokens.
        tgt_embed: Embedding of target tokens; may share its matrix with `src_embed`.
        src_pos: Positional encoding of the source.
        tgt_pos: Positional encoding of the target.
        projection_layer: Projection to one logit per target token; may share its matrix with `tgt_embed`.

    Source: Vaswani et al. 2017, Sec. 3 and Fig. 1.
    """

    def __init__(
        self,
        encoder: Encoder,
        decoder: Decoder,
        src_embed: InputEmbedding,
        tgt_embed: InputEmbedding,
        src_pos: Positions,
        tgt_pos: Positions,
        projection_layer: ProjectionLayer,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.src_embed = src_embed
        self.tgt_embed = tgt_embed
        self.src_pos = src_pos
        self.tgt_pos = tgt_pos
        self.projection_layer = projection_layer

    def encode(self, src: Int[Tensor, "B S"], src_mask: Mask | None = None) -> Float[Tensor, "B S D"]:
        """Returns the encoder's output at every source position."""
        return self.encoder(self.src_pos(self.src_embed(src)), src_mask)

    def decode(
        self,
        encoder_output: Float[Tensor, "B S D"],
        src_mask: Mask | None,
        tgt: Int[Tensor, "B T"],
        tgt_mask: Mask | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Returns the decoder's output at every target position."""
        return self.decoder(self.tgt_pos(self.tgt_embed(tgt)), encoder_output, src_mask, tgt_mask)

    def project(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows V"]:
        """Returns the logits for the decoder's output."""
        return self.projection_layer(x)

    def log_probabilities(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows V"]:
        """Returns the log softmax of the logits, computed in float32 or wider."""
        logits = self.project(x)
        return logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(dim=-1)

    def forward(
        self,
        src: Int[Tensor, "B S"],
        tgt: Int[Tensor, "B T"],
        src_mask: Mask | None = None,
        tgt_mask: Mask | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Returns the logits of the token after each target position.

        Args:
            src: Source tokens.
            tgt: Target tokens so far, starting with BOS.
            src_mask: Padding mask of the source, `padding_mask(src)`.
            tgt_mask: Mask of the target, `causal_mask(T)` in training; None lets every position see the whole target.

        Raises:
            ConfigError: `src` or `tgt` has more tokens than its side has positions.
        """
        return self.project(self.decode(self.encode(src, src_mask), src_mask, tgt, tgt_mask))

    def begin(self, src: Int[Tensor, "B S"], src_mask: Bool[Tensor, "B 1 1 S"], limit: int) -> IncrementalState:
        """Encodes the source once and returns the state for decoding up to `limit` target tokens.

        Raises:
            ConfigError: `limit` exceeds the number of target positions, or the source exceeds the number of source
                positions.
        """
        if limit > self.tgt_pos.seq_len:
            raise ConfigError(f"limit={limit} exceeds tgt_seq_len={self.tgt_pos.seq_len}; ask for fewer tokens")
        return self.decoder.begin(self.encode(src, src_mask), src_mask)

    def step(self, tokens: Int[Tensor, " B"], state: IncrementalState) -> tuple[Float[Tensor, "B V"], IncrementalState]:
        """Returns the logits after one more token per row, and the state for the next step.

        The logits equal, up to rounding, those of `forward` at the last position over all tokens so far with a causal
        mask. `state` is modified in place and must not be used again.
        """
        x = self.tgt_pos(self.tgt_embed(tokens[:, None]), state.positions)
        x = self.decoder.step(x, state)[:, 0]
        state.advance()
        return self.project(x), state


def build_transformer(
    src_vocab_size: int,
    tgt_vocab_size: int,
    src_seq_len: int,
    tgt_seq_len: int,
    d_model: int = 512,
    N: int = 6,
    h: int = 8,
    dropout: float = 0.1,
    d_ff: int = 2048,
    *,
    d_k: int | None = None,
    d_v: int | None = None,
    positions: str = "sinusoidal",
    norm_order: str = "pre",
    share_embeddings: str = "none",
    encoder_layers: int | None = None,
    decoder_layers: int | None = None,
    attention_dropout: float = 0.0,
    activation_dropout: float = 0.0,
    initialization: str = "xavier",
) -> Transformer:
    """Builds a Transformer; the default sizes are those of the paper's base model.

    For the paper's architecture, also pass `norm_order="post"` and `share_embeddings="all"`.

    Args:
        src_vocab_size: Number of source tokens.
        tgt_vocab_size: Number of target tokens.
        src_seq_len: Maximum source length in tokens.
        tgt_seq_len: Maximum target length in tokens.
        d_model: Width of the model.
        N: Number of encoder layers and of decoder layers.
        h: Number of attention heads.
        dropout: Dropout probability of residual connections and embeddings (Sec. 5.4).
        d_ff: Inner width of the feed-forward networks.
        d_k: Width of a head's queries and keys; default: d_model / h. Row (B) of Table 3 makes it smaller.
        d_v: Width of a head's values; default: d_k.
        positions: "sinusoidal", as in the paper, or "learned", as in row (E) of Table 3.
        norm_order: "post", as in the paper, normalizes the output of each residual connection; "pre" normalizes the
            input of each sub-layer and the output of each stack.
        share_embeddings: "none"; "target" shares the target embedding with the projection; "all" shares the source
            embedding too, as in the paper (Sec. 3.4), and needs one vocabulary. A shared projection has no bias.
        encoder_layers: Number of encoder layers; default: N.
        decoder_layers: Number of decoder layers; default: N.
        attention_dropout: Dropout probability of the attention weights; the paper uses none.
        activation_dropout: Dropout probability of the inner feed-forward layer; the paper uses none.
        initialization: Initialization of the matrices, "xavier" or "fairseq"; with `norm_order="post"`, the model
            learns faster with "fairseq".

    Raises:
        ConfigError: The sizes do not fit together, or an option has none of the values above.

    Source: Vaswani et al. 2017, Sec. 3 and Table 3.
    """

    def attention() -> MultiHeadAttention:
        return MultiHeadAttention(d_model, h, attention_dropout, d_k=d_k, d_v=d_v)

    def feed_forward() -> FeedForwardBlock:
        return FeedForwardBlock(d_model, d_ff, activation_dropout)

    def encoder_layer() -> EncoderLayer:
        return EncoderLayer(d_model, attention(), feed_forward(), dropout, order=norm_order)

    def decoder_layer() -> DecoderLayer:
        return DecoderLayer(d_model, attention(), attention(), feed_forward(), dropout, order=norm_order)

    def final_norm() -> nn.Module | None:
        return nn.Identity() if norm_order == "post" else None

    depths = {"encoder_layers": N if encoder_layers is None else encoder_layers,
              "decoder_layers": N if decoder_layers is None else decoder_layers}  # fmt: skip
    _check_sizes(src_vocab_size=src_vocab_size, tgt_vocab_size=tgt_vocab_size, src_seq_len=src_seq_len,
                 tgt_seq_len=tgt_seq_len, d_model=d_model, N=N, h=h, d_ff=d_ff, **depths)  # fmt: skip
    _check_choice("positions", positions, POSITIONS)
    _check_choice("initialization", initialization, INITIALIZATIONS)
    model = Transformer(
        Encoder(nn.ModuleList(encoder_layer() for _ in range(depths["encoder_layers"])), final_norm()),
        Decoder(nn.ModuleList(decoder_layer() for _ in range(depths["decoder_layers"])), final_norm()),
        InputEmbedding(d_model, src_vocab_size),
        InputEmbedding(d_model, tgt_vocab_size),
        POSITIONS[positions](d_model, src_seq_len, dropout),
        POSITIONS[positions](d_model, tgt_seq_len, dropout),
        ProjectionLayer(d_model, tgt_vocab_size, bias=share_embeddings == "none"),
    )
    _share(model, share_embeddings)
    INITIALIZATIONS[initialization](model)
    initialize_embeddings(model)
    return model


def _check_sizes(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ConfigError(f"{name}={size} is below 1; choose a positive number")


def _check_choice(option: str, value: str, choices: Collection[str]) -> None:
    if value not in choices:
        raise ConfigError(f"{option}={value!r} is unknown; choose {' or '.join(map(repr, choices))}")


def _share(model: Transformer, share_embeddings: str) -> None:
    """Ties the matrices of embeddings and projection; see `build_transformer`."""
    if share_embeddings not in ("none", "target", "all"):
        raise ConfigError(f"share_embeddings={share_embeddings!r} is unknown; choose 'none', 'target' or 'all'")
    if share_embeddings == "none":
        return
    model.projection_layer.proj.weight = model.tgt_embed.embedding.weight
    if share_embeddings == "all":
        if model.src_embed.vocab_size != model.tgt_embed.vocab_size:
            raise ConfigError(
                f"share_embeddings='all' needs one vocabulary, but src_vocab_size={model.src_embed.vocab_size} and "
                f"tgt_vocab_size={model.tgt_embed.vocab_size}; use a joint tokenizer or share 'target'"
            )
        model.src_embed.embedding.weight = model.tgt_embed.embedding.weight
