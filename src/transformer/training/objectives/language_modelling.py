"""Objectives of running text: next tokens, masked tokens and span corruption.

Masks and spans are sampled again each time a window is seen, from torch's generator, which a step seeds by (seed, step,
micro-batch); a resumed run therefore samples the same. Outside training, the samples are always the same.
"""

from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from transformer.blocks import causal_mask
from transformer.data.batch import WindowBatch
from transformer.interfaces import EncoderModel, LossSum, SupportsDecode
from transformer.training.activation_checkpointing import checkpoint_layers
from transformer.training.objectives.cross_entropy import smoothed_cross_entropy
from transformer.training.planning.flops import head_flops, stack_flops, translation_flops
from transformer.transformer import Transformer

VALIDATION_SEED: Final = 20_171
MASKED_SHARE: Final = 0.15
"""Share of tokens that are masked (Devlin et al. 2019, Sec. 3.1)."""
MASK_SHARE, RANDOM_SHARE = 0.8, 0.1
"""Shares of masked tokens that become [MASK] or a random token; the others are unchanged but also predicted."""


class LanguageModelObjective(nn.Module):
    """Causal language modelling: every token is predicted from those before it.

    Args:
        model: Language model with a `projection_layer`.
        label_smoothing: Probability spread over the vocabulary.
        activation_checkpointing: Whether layers are recomputed in the backward pass, see `checkpoint_layers`.

    Source: Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training", Eq. 1.
    """

    def __init__(self, model: nn.Module, label_smoothing: float, *, activation_checkpointing: bool = False) -> None:
        super().__init__()
        self.model = model
        self.label_smoothing = label_smoothing
        self.activation_checkpointing = activation_checkpointing
        if activation_checkpointing:
            checkpoint_layers(model)

    def forward(self, batch: WindowBatch) -> LossSum:
        """Returns the summed loss of all tokens of the windows except their first."""
        hidden = cast(SupportsDecode, self.model).decode(batch.tokens[:, :-1])
        return _loss(self.model, hidden, batch.tokens[:, 1:], batch.scored_tokens, self.label_smoothing)

    def flops(self, lengths: NDArray[np.int32]) -> int:
        """Implements `SupportsFlopCount.flops`."""
        rows, length = len(lengths), int(lengths.max()) - 1
        layers = stack_flops(
            self.model.get_submodule("decoder"), rows, length, recomputed=self.activation_checkpointing
        )
        return layers + head_flops(self.model.get_submodule("projection_layer"), rows * length)


class MaskedLanguageModelObjective(nn.Module):
    """Masked language modelling: some tokens are masked and predicted from the others.

    Args:
        model: Encoder with a `masked_head`.
        mask_id: Id of the mask token.
        text_ids: Half-open range of the ids of text, from which random replacements are sampled.
        n_boundary: Number of special tokens before and after the text of a window, which are never masked.
        activation_checkpointing: Whether layers are recomputed in the backward pass, see `checkpoint_layers`.

    Source: Devlin et al. 2019, "BERT", Sec. 3.1, Task 1; sampled again each time as in Liu et al. 2019, "RoBERTa",
    Sec. 4.1.
    """

    def __init__(
        self,
        model: nn.Module,
        mask_id: int,
        text_ids: tuple[int, int],
        n_boundary: tuple[int, int],
        *,
        activation_checkpointing: bool = False,
    ) -> None:
        super().__init__()
        self.model = model
        self.mask_id, self.text_ids, self.n_boundary = mask_id, text_ids, n_boundary
        self.activation_checkpointing = activation_checkpointing
        if activation_checkpointing:
            checkpoint_layers(model)

    def forward(self, batch: WindowBatch) -> LossSum:
        """Returns the summed loss of the masked tokens."""
        n = batch.scored_tokens // len(batch.tokens)
        masked, positions = mask_tokens(batch.tokens, n, self.mask_id, self.text_ids, self.n_boundary, _generator(self))
        encoded = cast(EncoderModel, self.model).encode(masked)
        at_masks = encoded.gather(1, positions[:, :, None].expand(-1, -1, encoded.size(2)))
        head: Any = self.model.get_submodule("masked_head")
        return _loss(head, head.hidden(at_masks), batch.tokens.gather(1, positions), batch.scored_tokens, 0.0)

    def flops(self, lengths: NDArray[np.int32]) -> int:
        """Implements `SupportsFlopCount.flops`."""
        rows, length = len(lengths), int(lengths.max())
        layers = stack_flops(
            self.model.get_submodule("encoder"), rows, length, recomputed=self.activation_checkpointing
        )
        return layers + head_flops(
            self.model.get_submodule("masked_head"), rows * n_masked(length - sum(self.n_boundary))
        )


def n_masked(window: int) -> int:
    """Returns the number of masked tokens of a window, whose length excludes the boundary tokens."""
    return max(1, round(window * MASKED_SHARE))


def mask_tokens(
    tokens: Int[Tensor, "B T"],
    n: int,
    mask_id: int,
    text_ids: tuple[int, int],
    n_boundary: tuple[int, int],
    generator: torch.Generator,
) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B n"]]:
    """Masks `n` tokens of each row; returns the masked rows and the positions to predict.

    Args:
        tokens: Tokens of the windows.
        n: Number of masked tokens, at most those of the text.
        mask_id: Id of the mask token.
        text_ids: Half-open range of the ids of text.
        n_boundary: Number of special tokens before and after the text.
        generator: Random generator on the CPU.
    """
    inner = tokens.size(1) - sum(n_boundary)
    order = torch.rand(len(tokens), inner, generator=generator).topk(n, dim=1).indices + n_boundary[0]
    positions = order.sort(dim=1).values.to(tokens.device)
    draw = torch.rand(len(tokens), n, generator=generator).to(tokens.device)
    random = torch.randint(*text_ids, (len(tokens), n), generator=generator).to(tokens.device)
    original = tokens.gather(1, positions)
    masked = torch.where(draw < MASK_SHARE, mask_id, torch.where(draw < MASK_SHARE + RANDOM_SHARE, random, original))
    return tokens.scatter(1, positions, masked), positions


@dataclass(frozen=True)
class SpanCorruption:
    """Amount and length of corrupted spans.

    Attributes:
        rate: Share of tokens that are removed.
        length: Mean length of a span.

    Source: Raffel et al. 2020, Sec. 3.1.4 and 3.3.3 (rates of 10 to 50 %), 3.3.4 (lengths of 2 to 10).
    """

    rate: float = 0.15
    length: float = 3.0

    def sizes(self, window: int) -> tuple[int, int]:
        """Returns the number of removed tokens and of spans of a window."""
        n_removed = min(max(1, round(window * self.rate)), window - 1)
        return n_removed, min(max(1, round(n_removed / self.length)), window - n_removed)

    def lengths(self, window: int) -> tuple[int, int]:
        """Returns the lengths of source and target of a corrupted window, EOS included."""
        n_removed, n_spans = self.sizes(window)
        return window - n_removed + n_spans + 1, n_removed + n_spans + 1


class SpanCorruptionObjective(nn.Module):
    """Span corruption: each removed span is replaced by a sentinel and predicted by the decoder.

    Args:
        model: Encoder-decoder model.
        sentinels: Sentinel ids, at least as many as a window has spans.
        bos: Id of the token that the decoder starts with.
        eos: Id of the token that ends source and target.
        label_smoothing: Probability spread over the vocabulary.
        spans: Amount and length of removed spans.
        activation_checkpointing: Whether layers are recomputed in the backward pass, see `checkpoint_layers`.

    Source: Raffel et al. 2020, "Exploring the Limits of Transfer Learning", Sec. 3.1.4 and Fig. 2. As in the
    authors' code, a window begins with kept text and no sentinel follows the last span.
    """

    def __init__(
        self,
        model: nn.Module,
        sentinels: tuple[int, ...],
        bos: int,
        eos: int,
        label_smoothing: float,
        spans: SpanCorruption = SpanCorruption(),
        *,
        activation_checkpointing: bool = False,
    ) -> None:
        super().__init__()
        self.model = model
        self.spans = spans
        self.sentinels, self.bos, self.eos = sentinels, bos, eos
        self.activation_checkpointing = activation_checkpointing
        self.label_smoothing = label_smoothing
        if activation_checkpointing:
            checkpoint_layers(model)

    def forward(self, batch: WindowBatch) -> LossSum:
        """Returns the summed loss of sentinels, spans and EOS."""
        src, labels = corrupt_spans(batch.tokens, self.spans, self.sentinels, self.eos, _generator(self))
        tgt = torch.cat([torch.full_like(labels[:, :1], self.bos), labels[:, :-1]], dim=1)
        mask = causal_mask(tgt.size(1), tgt.device)
        model = cast(Transformer, self.model)
        hidden = model.decode(model.encode(src), None, tgt, mask)
        return _loss(model, hidden, labels, batch.scored_tokens, self.label_smoothing)

    def flops(self, lengths: NDArray[np.int32]) -> int:
        """Implements `SupportsFlopCount.flops`."""
        rows, (source, target) = len(lengths), self.spans.lengths(int(lengths.max()))
        model = cast(Transformer, self.model)
        return translation_flops(model, rows, source, target, rows * target, recomputed=self.activation_checkpointing)


def corrupt_spans(
    tokens: Int[Tensor, "B T"], spans: SpanCorruption, sentinels: tuple[int, ...], eos: int, generator: torch.Generator
) -> tuple[Int[Tensor, "B S"], Int[Tensor, "B U"]]:
    """Removes spans from each row; returns the text with sentinels, and the sentinels with the removed spans.

    Args:
        tokens: Tokens of the windows.
        spans: Amount and length of removed spans.
        sentinels: Sentinel ids, at least as many as a window has spans.
        eos: Id of the token that ends both.
        generator: Random generator on the CPU.
    """
    rows, window = tokens.shape
    n_removed, n_spans = spans.sizes(window)
    removed_lengths = _random_lengths(rows, n_removed, n_spans, generator)
    kept_lengths = _random_lengths(rows, window - n_removed, n_spans, generator)
    runs = torch.stack([kept_lengths, removed_lengths], dim=2).flatten(1)  # kept, removed, kept, removed, ...
    ends = runs.cumsum(dim=1)
    run_of = torch.searchsorted(ends, torch.arange(window).expand(rows, -1).contiguous(), right=True)
    is_removed = run_of % 2 == 1
    begins = is_removed & (run_of != torch.nn.functional.pad(run_of[:, :-1], (1, 0), value=-1))
    is_removed, begins, span_of = (x.to(tokens.device) for x in (is_removed, begins, run_of // 2))
    sentinel = torch.tensor(sentinels, device=tokens.device)[span_of.clamp(max=n_spans - 1)]
    last = torch.full((rows, 1), eos, dtype=tokens.dtype, device=tokens.device)
    left = torch.where(begins, sentinel, tokens)[~is_removed | begins].view(rows, -1)
    both, wanted = torch.stack([sentinel, tokens], dim=2), torch.stack([begins, is_removed], dim=2)
    return torch.cat([left, last], dim=1), torch.cat([both[wanted].view(rows, -1), last], dim=1)


def _loss(
    module: nn.Module, hidden: Float[Tensor, "B T D"], labels: Int[Tensor, "B T"], scored_tokens: int, epsilon: float
) -> LossSum:
    """Computes the loss of a module with a `projection_layer`."""
    projection = cast(nn.Linear, module.get_submodule("projection_layer.proj"))
    bias = cast("Tensor | None", projection.bias)
    loss_sum, nll_sum = smoothed_cross_entropy(hidden.flatten(0, 1), projection.weight, bias, labels.flatten(), epsilon)
    return LossSum(loss_sum, scored_tokens, {"nll_sum": nll_sum})


def _random_lengths(rows: int, total: int, n_parts: int, generator: torch.Generator) -> Int[Tensor, "B n"]:
    """Samples lengths of at least 1 that add up to a total; all divisions are equally likely."""
    cuts = torch.rand(rows, total - 1, generator=generator).topk(n_parts - 1, dim=1).indices.sort(dim=1).values + 1
    edges = torch.nn.functional.pad(cuts, (1, 1))
    edges[:, -1] = total
    return edges.diff(dim=1)


def _generator(objective: nn.Module) -> torch.Generator:
    """Returns a CPU generator: seeded by the step in training, and always with the same seed outside it."""
    seed = int(torch.randint(2**62, (1,))) if objective.training else VALIDATION_SEED
    return torch.Generator().manual_seed(seed)
