"""BERT, and its builder."""

from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from transformer.blocks import (
    ACTIVATIONS,
    Dropout,
    FeedForwardBlock,
    InputEmbedding,
    LayerNormalization,
    LearnedPositions,
    MultiHeadAttention,
    ProjectionLayer,
    ReadoutEncoder,
    ReadoutLayer,
    initialize_normal,
)
from transformer.errors import ConfigError
from transformer.models.bert.config import BertConfig
from transformer.models.kinds import required_part


class BertEmbedding(nn.Module):
    """The normalized sum of token, position and token type embeddings.

    Source: Devlin et al. 2019, "BERT", Sec. 3 and Fig. 2.
    """

    def __init__(
        self, tokens: InputEmbedding, positions: LearnedPositions, types: nn.Embedding, norm: nn.Module, dropout: float
    ) -> None:
        super().__init__()
        self.tokens = tokens
        self.positions = positions
        self.types = types
        self.norm = norm
        self.dropout = Dropout(dropout)

    def forward(self, tokens: Int[Tensor, "B S"], types: Int[Tensor, "B S"] | None = None) -> Float[Tensor, "B S D"]:
        """Returns the embedded tokens; default token type: 0."""
        kinds = self.types.weight[0] if types is None else self.types(types)
        return self.dropout(self.norm(self.positions(self.tokens(tokens) + kinds)))


class MaskedHead(nn.Module):
    """Predicts the token at each position: linear layer, activation, norm, and projection to the vocabulary.

    Source: Devlin et al. 2019, Sec. 3.1, Task 1; the linear layer and norm are those of the authors' code.
    """

    def __init__(
        self, transform: nn.Linear, activation: str, norm: nn.Module, projection_layer: ProjectionLayer
    ) -> None:
        super().__init__()
        self.transform = transform
        self.activation = ACTIVATIONS[activation]
        self.norm = norm
        self.projection_layer = projection_layer

    def hidden(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        """Returns the input of the projection to the vocabulary."""
        return self.norm(self.activation(self.transform(x)))

    def forward(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows V"]:
        """Returns the logits at every position."""
        return self.projection_layer(self.hidden(x))


class Bert(nn.Module):
    """An encoder of texts, and its heads.

    Args:
        embed: Embedding of tokens, positions and token types.
        encoder: Post-norm encoder without a causal mask.
        pooler: Linear layer applied to the first position, or None.
        masked_head: Head that predicts masked tokens, or None.
        next_sentence_head: Projection to two logits, for whether the second text follows the first, or None.
        label_head: Projection to one logit per label, or None.
        pooling: Pooling ("mean", "first" or "pooled") of text embeddings, and of the classification head's input.

    Source: Devlin et al. 2019, "BERT: Pre-training of Deep Bidirectional Transformers", Sec. 3.
    """

    def __init__(
        self,
        embed: BertEmbedding,
        encoder: ReadoutEncoder,
        pooler: nn.Linear | None,
        masked_head: MaskedHead | None,
        next_sentence_head: nn.Linear | None,
        label_head: nn.Sequential | None,
        pooling: tuple[str, str],
    ) -> None:
        super().__init__()
        self.embed = embed
        self.encoder = encoder
        self.pooler = pooler
        self.masked_head = masked_head
        self.next_sentence_head = next_sentence_head
        self.label_head = label_head
        self.embedding_pooling, self.label_pooling = pooling

    @property
    def label_positions(self) -> int | None:
        """Number of leading positions that the classification head reads; None for all."""
        return None if self.label_pooling == "mean" else 1

    def encode(
        self,
        tokens: Int[Tensor, "B S"],
        mask: Bool[Tensor, "B 1 1 S"] | None = None,
        types: Int[Tensor, "B S"] | None = None,
        n_queries: int | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Returns the encoder's output.

        Args:
            tokens: Tokens of the texts, including [CLS] and [SEP].
            mask: True for tokens that are not padding.
            types: Token types; default: 0.
            n_queries: Number of leading positions to compute; default: all.

        Raises:
            ConfigError: There are more tokens than positions.
        """
        return self.encoder(self.embed(tokens, types), mask, n_queries)

    def forward(
        self,
        tokens: Int[Tensor, "B S"],
        mask: Bool[Tensor, "B 1 1 S"] | None = None,
        types: Int[Tensor, "B S"] | None = None,
    ) -> Float[Tensor, "B S D"]:
        """Same as `encode`."""
        return self.encode(tokens, mask, types)

    def pooled(self, encoded: Float[Tensor, "B S D"]) -> Float[Tensor, "B D"]:
        """Returns the pooler's vector of each text, the input of the heads over texts."""
        return torch.tanh(required_part(self.pooler, "pooler")(encoded[:, 0]))

    def label_logits(
        self,
        tokens: Int[Tensor, "B S"],
        mask: Bool[Tensor, "B 1 1 S"] | None = None,
        types: Int[Tensor, "B S"] | None = None,
    ) -> Float[Tensor, "B labels"]:
        """Returns one logit per label; for the arguments, see `encode`."""
        encoded = self.encode(tokens, mask, types, self.label_positions)
        return required_part(self.label_head, "label head")(self._pool(self.label_pooling, encoded, mask))

    def embeddings(self, encoded: Float[Tensor, "B S D"], mask: Bool[Tensor, "B 1 1 S"]) -> Float[Tensor, "B D"]:
        """Returns one vector of Euclidean length 1 per text.

        Source: Reimers and Gurevych 2019, "Sentence-BERT", Sec. 3 (mean and first position).
        """
        return F.normalize(self._pool(self.embedding_pooling, encoded, mask), dim=-1)

    def _pool(
        self, pooling: str, encoded: Float[Tensor, "B T D"], mask: Bool[Tensor, "B 1 1 S"] | None
    ) -> Float[Tensor, "B D"]:
        """Pools the positions of each text to one vector."""
        if pooling != "mean":
            return encoded[:, 0] if pooling == "first" else self.pooled(encoded)
        if mask is None:
            return encoded.mean(dim=1)
        weights = mask[:, 0, 0, :, None].to(encoded.dtype)  # B S 1
        return (encoded * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)


def build(config: BertConfig) -> Bert:
    """Builds a freshly initialized model.

    Raises:
        ConfigError: The vocabulary size is not set.
    """
    if config.vocab_size is None:
        raise ConfigError("model.vocab_size is not set; give the tokenizer's vocabulary size")
    d_model, norm = config.d_model, partial(LayerNormalization, eps=config.eps)

    def layer() -> ReadoutLayer:
        attention = MultiHeadAttention(d_model, config.h, config.attention_dropout)
        network = FeedForwardBlock(d_model, config.d_ff, 0.0, activation=ACTIVATIONS[config.activation])
        return ReadoutLayer(d_model, attention, network, config.dropout, order="post", norm=norm)

    embed = BertEmbedding(
        InputEmbedding(d_model, config.vocab_size, scale=1.0),
        LearnedPositions(d_model, config.seq_len, 0.0),
        nn.Embedding(config.token_types, d_model),
        norm(d_model),
        config.dropout,
    )
    masked = None
    if config.masked:
        projection = ProjectionLayer(d_model, config.vocab_size)
        projection.proj.weight = embed.tokens.embedding.weight
        masked = MaskedHead(nn.Linear(d_model, d_model), config.activation, norm(d_model), projection)
    dropout = config.dropout if config.head_dropout is None else config.head_dropout
    model = Bert(
        embed,
        ReadoutEncoder(nn.ModuleList(layer() for _ in range(config.N)), nn.Identity()),
        nn.Linear(d_model, d_model) if config.pooler else None,
        masked,
        nn.Linear(d_model, 2) if config.next_sentence else None,
        nn.Sequential(Dropout(dropout), nn.Linear(d_model, len(config.labels))) if config.labels else None,
        (config.embedding, "pooled" if config.labels_read == "pooler" else config.embedding),
    )
    initialize_normal(model)
    return model
