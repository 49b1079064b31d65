"""A decoder alone: the stack of the paper's encoder, of which no position looks ahead."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from transformer.blocks import (
    CausalCache,
    Encoder,
    InputEmbedding,
    KeyValueCache,
    MultiHeadAttention,
    ProjectionLayer,
    causal_mask,
)
from transformer.blocks.cache import INITIAL_CAPACITY
from transformer.blocks.positional import Positions
from transformer.errors import ConfigError


class LanguageModel(nn.Module):
    """Predicts the next token from those before it.

    Args:
        embed: embeds tokens.
        positions: adds positions, or `NoPositions` where attention knows them.
        decoder: layers of causal self-attention; they attend to nothing else.
        projection_layer: gives a logit a token; may share its matrix with `embed`.

    Source: Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training", Sec. 3.1, Eq. 2.
    """

    def __init__(
        self, embed: InputEmbedding, positions: Positions, decoder: Encoder, projection_layer: ProjectionLayer
    ) -> None:
        super().__init__()
        self.embed = embed
        self.positions = positions
        self.decoder = decoder
        self.projection_layer = projection_layer
        blocks = [part for part in decoder.modules() if isinstance(part, MultiHeadAttention)]
        self.cache_size_per_token = sum(2 * block.kv_heads * block.d_k for block in blocks)
        """Of keys and values that a position keeps for those after it."""

    @property
    def seq_len(self) -> int:
        """Positions that the model has."""
        return self.positions.seq_len

    def decode(
        self,
        tokens: Int[Tensor, "B T"],
        mask: Bool[Tensor, "B 1 1 T"] | None = None,
        positions: Int[Tensor, " B"] | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Returns the decoder's output at every position.

        Args:
            tokens: of the text.
            mask: which tokens are no padding. Padding that stands at the end needs none: nobody looks ahead.
            positions: of the first token of each row, of models that add positions; 0 if not given.

        Raises:
            ConfigError: more tokens than positions.
        """
        allowed = causal_mask(tokens.size(1), tokens.device)
        return self.decoder(self.positions(self.embed(tokens), positions), allowed if mask is None else allowed & mask)

    def forward(
        self, tokens: Int[Tensor, "B T"], mask: Bool[Tensor, "B 1 1 T"] | None = None
    ) -> Float[Tensor, "B T V"]:
        """Returns the logits of the token after each position; `mask` as in `decode`."""
        return self.project(self.decode(tokens, mask))

    def project(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows V"]:
        """Returns the logits of the decoder's output."""
        return self.projection_layer(x)

    def begin(self, src: Int[Tensor, "B S"], src_mask: Bool[Tensor, "B 1 1 S"], limit: int) -> CausalCache:
        """Reads prompts without their last token, with which the first `step` goes on; they may be empty.

        Args:
            src: prompts, padding at the end.
            src_mask: which tokens are no padding.
            limit: most tokens that `step` is called with.

        Raises:
            ConfigError: prompt and limit together exceed the positions.
        """
        if src.size(1) + limit > self.seq_len:
            raise ConfigError(
                f"a prompt of {src.size(1) + 1} tokens and {limit} new ones exceed seq_len={self.seq_len}; "
                "ask for fewer tokens, or shorten the prompt"
            )
        positions = src_mask.sum(dim=(1, 2, 3))
        if not src.size(1):  # a pass over one token that is thrown away tells shapes and types of the caches
            _, first = self.decoder.begin(self.positions(self.embed(torch.zeros_like(positions)[:, None])))
            caches = [type(cache).empty(cache.keys, min(limit, INITIAL_CAPACITY)) for cache in first]
            return CausalCache(caches, positions)
        _, caches = self.decoder.begin(self.positions(self.embed(src)), causal_mask(src.size(1), src.device))
        return CausalCache([_owned(cache) for cache in caches], positions, int(positions.max()))

    def step(self, tokens: Int[Tensor, " B"], state: CausalCache) -> tuple[Float[Tensor, "B V"], CausalCache]:
        """Returns the logits after one more token a row, and the state to go on with.

        Equal, up to rounding, to the last position of `forward` over all tokens so far. The given state is changed in
        place; do not use it again.
        """
        x, state = self.step_hidden(tokens, state)
        return self.project(x), state

    def step_hidden(self, tokens: Int[Tensor, " B"], state: CausalCache) -> tuple[Float[Tensor, "B D"], CausalCache]:
        """As `step`, up to the projection."""
        state.ensure_capacity()
        x = self.positions(self.embed(tokens[:, None]), state.positions)
        x = self.decoder.step(x, state)[:, 0]
        state.advance()
        return x, state

    def output_subset(self, ids: Int[Tensor, " C"] | None) -> Callable[[Tensor], Tensor]:
        """The projection to some tokens alone; to all if none are given."""
        return self.projection_layer.output_subset(ids)


def _owned(cache: KeyValueCache) -> KeyValueCache:
    """The same with room for more, in memory of its own that steps can write to."""
    return cache.grow(INITIAL_CAPACITY)
