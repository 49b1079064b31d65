"""BERT, and its builder."""

from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from transformer.blocks import (
    ACTIVATIONS,
    Dropout,
    Encoder,
    EncoderLayer,
    FeedForwardBlock,
    InputEmbedding,
    LayerNormalization,
    LearnedPositions,
    MultiHeadAttention,
    ProjectionLayer,
    initialize_normal,
)
from transformer.errors import ConfigError
from transformer.models.bert.config import BertConfig


class BertEmbedding(nn.Module):
    """Norm of the sum of token, position and kind of token.

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
        """Returns the embedded tokens; all are of type 0 if not given."""
        kinds = self.types.weight[0] if types is None else self.types(types)
        return self.dropout(self.norm(self.positions(self.tokens(tokens) + kinds)))


class MaskedHead(nn.Module):
    """Guesses the token at each position: a map, its activation, a norm, and the projection to the vocabulary.

    Source: Devlin et al. 2019, Sec. 3.1, Task 1; the map and norm are those of the authors' code.
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
        """Returns what is projected."""
        return self.norm(self.activation(self.transform(x)))

    def forward(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows V"]:
        """Returns the logits of every position."""
        return self.projection_layer(self.hidden(x))


class Bert(nn.Module):
    """An encoder of texts, and heads that read it.

    Args:
        embed: embeds tokens.
        encoder: post-norm, looks both ways.
        pooler: maps the first position; None where nothing reads it.
        masked_head: guesses tokens, if there.
        next_sentence_head: two logits, the second text follows or not, if there.
        label_head: a logit a label, if there.
        reads: what stands for a text: "mean", "first" or "pooled"; and the same of what the head over labels reads.

    Source: Devlin et al. 2019, "BERT: Pre-training of Deep Bidirectional Transformers", Sec. 3.
    """

    def __init__(
        self,
        embed: BertEmbedding,
        encoder: Encoder,
        pooler: nn.Linear | None,
        masked_head: MaskedHead | None,
        next_sentence_head: nn.Linear | None,
        label_head: nn.Sequential | None,
        reads: tuple[str, str],
    ) -> None:
        super().__init__()
        self.embed = embed
        self.encoder = encoder
        self.pooler = pooler
        self.masked_head = masked_head
        self.next_sentence_head = next_sentence_head
        self.label_head = label_head
        self.embedding, self.labelled = reads

    @property
    def labels_read(self) -> int | None:
        """Positions that the head over labels reads; None for all."""
        return None if self.labelled == "mean" else 1

    def encode(
        self,
        tokens: Int[Tensor, "B S"],
        mask: Bool[Tensor, "B 1 1 S"] | None = None,
        types: Int[Tensor, "B S"] | None = None,
        n_queries: int | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Returns the encoder's output.

        Args:
            tokens: of the texts, with their frame ([CLS] ... [SEP]).
            mask: which tokens are no padding.
            types: kinds of tokens; 0 if not given.
            n_queries: how many positions to compute, all if not given.

        Raises:
            ConfigError: more tokens than positions.
        """
        return self.encoder(self.embed(tokens, types), mask, n_queries)

    def forward(
        self,
        tokens: Int[Tensor, "B S"],
        mask: Bool[Tensor, "B 1 1 S"] | None = None,
        types: Int[Tensor, "B S"] | None = None,
    ) -> Float[Tensor, "B S D"]:
        """As `encode`."""
        return self.encode(tokens, mask, types)

    def pooled(self, encoded: Float[Tensor, "B S D"]) -> Float[Tensor, "B D"]:
        """Returns the pooler's vector of each text, the input of the heads over texts."""
        assert self.pooler is not None
        return torch.tanh(self.pooler(encoded[:, 0]))

    def label_logits(
        self,
        tokens: Int[Tensor, "B S"],
        mask: Bool[Tensor, "B 1 1 S"] | None = None,
        types: Int[Tensor, "B S"] | None = None,
    ) -> Float[Tensor, "B labels"]:
        """Returns a logit a label; arguments as of `encode`."""
        assert self.label_head is not None
        encoded = self.encode(tokens, mask, types, self.labels_read)
        return self.label_head(self._vector(self.labelled, encoded, mask))

    def embeddings(self, encoded: Float[Tensor, "B S D"], mask: Bool[Tensor, "B 1 1 S"]) -> Float[Tensor, "B D"]:
        """Returns one vector of length 1 a text.

        Source: Reimers and Gurevych 2019, "Sentence-BERT", Sec. 3 (mean and first position).
        """
        return F.normalize(self._vector(self.embedding, encoded, mask), dim=-1)

    def _vector(
        self, kind: str, encoded: Float[Tensor, "B T D"], mask: Bool[Tensor, "B 1 1 S"] | None
    ) -> Float[Tensor, "B D"]:
        """What stands for each text."""
        if kind == "mean" and mask is None:
            return encoded.mean(dim=1)
        if kind == "mean":
            assert mask is not None
            weights = mask[:, 0, 0, :, None].to(encoded.dtype)  # B S 1
            return (encoded * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)
        return encoded[:, 0] if kind == "first" else self.pooled(encoded)


def build(config: BertConfig) -> Bert:
    """A freshly initialized model.

    Raises:
        ConfigError: the vocabulary's size is not set.
    """
    if config.vocab_size is None:
        raise ConfigError("model.vocab_size is not set; give the tokenizer's vocabulary size")
    d_model, norm = config.d_model, partial(LayerNormalization, eps=config.eps)

    def layer() -> EncoderLayer:
        attention = MultiHeadAttention(d_model, config.h, config.attention_dropout)
        network = FeedForwardBlock(d_model, config.d_ff, 0.0, activation=ACTIVATIONS[config.activation])
        return EncoderLayer(d_model, attention, network, config.dropout, order="post", norm=norm)

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
        Encoder(nn.ModuleList(layer() for _ in range(config.N)), nn.Identity()),
        nn.Linear(d_model, d_model) if config.pooler else None,
        masked,
        nn.Linear(d_model, 2) if config.next_sentence else None,
        nn.Sequential(Dropout(dropout), nn.Linear(d_model, len(config.labels))) if config.labels else None,
        (config.embedding, "pooled" if config.labels_read == "pooler" else config.embedding),
    )
    initialize_normal(model)
    return model
