"""Decoder-only language models."""

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from transformer.blocks import (
    CausalDecoder,
    IncrementalState,
    InputEmbedding,
    MultiHeadAttention,
    ProjectionLayer,
    causal_mask,
)
from transformer.blocks.positional import Positions
from transformer.errors import ConfigError


class LanguageModel(nn.Module):
    """Predicts the next token from those before it.

    Args:
        embed: Embedding of tokens.
        positions: Positional encoding, or `NoPositions` if attention encodes the positions.
        decoder: Layers of causal self-attention, without cross-attention.
        projection_layer: Projection to one logit per token; may share its matrix with `embed`.

    Source: Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training", Sec. 3.1, Eq. 2.
    """

    def __init__(
        self, embed: InputEmbedding, positions: Positions, decoder: CausalDecoder, projection_layer: ProjectionLayer
    ) -> None:
        super().__init__()
        self.embed = embed
        self.positions = positions
        self.decoder = decoder
        self.projection_layer = projection_layer
        blocks = [part for part in decoder.modules() if isinstance(part, MultiHeadAttention)]
        self.cache_size_per_token = sum(block.kv_heads * (block.d_k + block.d_v) for block in blocks)
        """Number of elements of keys and values that are cached for each position."""

    @property
    def seq_len(self) -> int:
        """Maximum number of positions."""
        return self.positions.seq_len

    def decode(
        self,
        tokens: Int[Tensor, "B T"],
        mask: Bool[Tensor, "B 1 1 T"] | None = None,
        positions: Int[Tensor, " B"] | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Returns the decoder's output at every position.

        Args:
            tokens: Tokens of the text.
            mask: True for tokens that are not padding. Padding at the end needs no mask, as attention is causal.
            positions: Position of the first token of each row, for models that add positions; default: 0.

        Raises:
            ConfigError: There are more tokens than positions.
        """
        allowed = causal_mask(tokens.size(1), tokens.device)
        return self.decoder(self.positions(self.embed(tokens), positions), allowed if mask is None else allowed & mask)

    def forward(
        self, tokens: Int[Tensor, "B T"], mask: Bool[Tensor, "B 1 1 T"] | None = None
    ) -> Float[Tensor, "B T V"]:
        """Returns the logits of the token after each position; for `mask`, see `decode`."""
        return self.project(self.decode(tokens, mask))

    def project(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows V"]:
        """Returns the logits for the decoder's output."""
        return self.projection_layer(x)

    def begin(self, src: Int[Tensor, "B S"], src_mask: Bool[Tensor, "B 1 1 S"], limit: int) -> IncrementalState:
        """Reads prompts without their last token, which is passed to the first `step`; they may be empty.

        Args:
            src: Prompts, with padding at the end.
            src_mask: True for tokens that are not padding.
            limit: Maximum number of calls of `step`.

        Raises:
            ConfigError: Prompt and limit together exceed the number of positions.
        """
        if src.size(1) + limit > self.seq_len:
            raise ConfigError(
                f"a prompt of {src.size(1) + 1} tokens and {limit} new ones exceed seq_len={self.seq_len}; "
                "ask for fewer tokens, or shorten the prompt"
            )
        return self.decoder.begin(self.positions(self.embed(src)), src_mask.sum(dim=(1, 2, 3)))

    def step(self, tokens: Int[Tensor, " B"], state: IncrementalState) -> tuple[Float[Tensor, "B V"], IncrementalState]:
        """Returns the logits after one more token per row, and the state for the next step.

        The logits equal, up to rounding, those of `forward` at the last position over all tokens so far. `state` is
        modified in place and must not be used again.
        """
        x = self.positions(self.embed(tokens[:, None]), state.positions)
        x = self.decoder.step(x, state)[:, 0]
        state.advance()
        return self.project(x), state
