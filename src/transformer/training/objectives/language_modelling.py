"""What models of running text learn: the next token, masked tokens, and spans that were taken out.

What is masked or taken out is drawn anew each time a window is seen, from torch's random numbers, which a step draws
from (seed, step, micro-batch): a run that is resumed draws the same. Outside training the draw is always the same one.
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
MASKED: Final = 0.15
"""Share of tokens that are masked (Devlin et al. 2019, Sec. 3.1)."""
BECOMES_MASK, BECOMES_RANDOM = 0.8, 0.1
"""Of masked tokens; the others stay as they are, and are guessed all the same."""


class LanguageModelObjective(nn.Module):
    """Every token is predicted from those before it.

    Args:
        model: a language model with a `projection_layer`.
        label_smoothing: see `TranslationObjective`.
        activation_checkpointing: see there.

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
        """The summed loss of all tokens of the windows but their first."""
        hidden = cast(SupportsDecode, self.model).decode(batch.tokens[:, :-1])
        return _loss(self.model, hidden, batch.tokens[:, 1:], batch.scored_tokens, self.label_smoothing)

    def operations(self, lengths: NDArray[np.int32]) -> int:
        """As of `SupportsFlopCount`."""
        rows, length = len(lengths), int(lengths.max()) - 1
        layers = stack_flops(self.model.get_submodule("decoder"), rows, length, twice=self.activation_checkpointing)
        return layers + head_flops(self.model.get_submodule("projection_layer"), rows * length)


class MaskedLanguageModelObjective(nn.Module):
    """Some tokens are masked, and guessed from all others.

    Args:
        model: an encoder with a `masked_head`.
        mask_id: of the token that stands for a masked one.
        text_ids: first id that text has, and the one after the last; of those a masked token may become any.
        frame: how many ids stand before and after a window's text; they are not masked.
        activation_checkpointing: see `TranslationObjective`.

    Source: Devlin et al. 2019, "BERT", Sec. 3.1, Task 1; drawn anew each time as in Liu et al. 2019, "RoBERTa",
    Sec. 4.1.
    """

    def __init__(
        self,
        model: nn.Module,
        mask_id: int,
        text_ids: tuple[int, int],
        frame: tuple[int, int],
        *,
        activation_checkpointing: bool = False,
    ) -> None:
        super().__init__()
        self.model = model
        self.mask_id, self.text_ids, self.frame = mask_id, text_ids, frame
        self.activation_checkpointing = activation_checkpointing
        if activation_checkpointing:
            checkpoint_layers(model)

    def forward(self, batch: WindowBatch) -> LossSum:
        """The summed loss of the masked tokens."""
        n = batch.scored_tokens // len(batch.tokens)
        masked, places = mask_tokens(batch.tokens, n, self.mask_id, self.text_ids, self.frame, _draw(self))
        encoded = cast(EncoderModel, self.model).encode(masked)
        chosen = encoded.gather(1, places[:, :, None].expand(-1, -1, encoded.size(2)))
        head: Any = self.model.get_submodule("masked_head")
        return _loss(head, head.hidden(chosen), batch.tokens.gather(1, places), batch.scored_tokens, 0.0)

    def operations(self, lengths: NDArray[np.int32]) -> int:
        """As of `SupportsFlopCount`."""
        rows, length = len(lengths), int(lengths.max())
        layers = stack_flops(self.model.get_submodule("encoder"), rows, length, twice=self.activation_checkpointing)
        return layers + head_flops(self.model.get_submodule("masked_head"), rows * n_masked(length - sum(self.frame)))


def n_masked(window: int) -> int:
    """How many tokens of a window are masked, its frame not counted."""
    return max(1, round(window * MASKED))


def mask_tokens(
    tokens: Int[Tensor, "B T"],
    n: int,
    mask_id: int,
    text_ids: tuple[int, int],
    frame: tuple[int, int],
    draw: torch.Generator,
) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B n"]]:
    """Masks `n` tokens of each row; returns the rows, and where tokens are to be guessed.

    Args:
        tokens: of the windows.
        n: at most the tokens between the frame.
        mask_id: as in `MaskedLanguageModelObjective`.
        text_ids: as there.
        frame: as there.
        draw: source of random numbers.
    """
    inner = tokens.size(1) - sum(frame)
    order = torch.rand(len(tokens), inner, generator=draw).topk(n, dim=1).indices + frame[0]
    places = order.sort(dim=1).values.to(tokens.device)
    fate = torch.rand(len(tokens), n, generator=draw).to(tokens.device)
    random = torch.randint(*text_ids, (len(tokens), n), generator=draw).to(tokens.device)
    seen = tokens.gather(1, places)
    shown = torch.where(fate < BECOMES_MASK, mask_id, torch.where(fate < BECOMES_MASK + BECOMES_RANDOM, random, seen))
    return tokens.scatter(1, places, shown), places


@dataclass(frozen=True)
class SpanCorruption:
    """How much of a text is taken out.

    Attributes:
        rate: share of its tokens.
        length: of a span, on average.

    Source: Raffel et al. 2020, Sec. 3.1.4 and 3.3.3 (rates of 10 to 50 %), 3.3.4 (lengths of 2 to 10).
    """

    rate: float = 0.15
    length: float = 3.0

    def sizes(self, window: int) -> tuple[int, int]:
        """How many tokens of a window are taken out, and in how many spans."""
        n_taken = min(max(1, round(window * self.rate)), window - 1)
        return n_taken, min(max(1, round(n_taken / self.length)), window - n_taken)

    def lengths(self, window: int) -> tuple[int, int]:
        """Lengths of source and target of a window whose spans are taken out, EOS included."""
        n_taken, n_spans = self.sizes(window)
        return window - n_taken + n_spans + 1, n_taken + n_spans + 1


class SpanCorruptionObjective(nn.Module):
    """Spans are taken out of a text, each for a sentinel, and written by the decoder.

    Args:
        model: an encoder-decoder.
        sentinels: ids, as many as a window has spans or more.
        bos: what the decoder begins with.
        eos: what ends source and target.
        label_smoothing: see `TranslationObjective`.
        spans: how much is taken out.
        activation_checkpointing: see there.

    Source: Raffel et al. 2020, "Exploring the Limits of Transfer Learning", Sec. 3.1.4 and Fig. 2; as in the authors'
    code, a window begins with text that is kept and no sentinel follows the last span.
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
        """The summed loss of sentinels, spans and EOS."""
        src, labels = corrupt_spans(batch.tokens, self.spans, self.sentinels, self.eos, _draw(self))
        tgt = torch.cat([torch.full_like(labels[:, :1], self.bos), labels[:, :-1]], dim=1)
        mask = causal_mask(tgt.size(1), tgt.device)
        model = cast(Transformer, self.model)
        hidden = model.decode(model.encode(src), None, tgt, mask)
        return _loss(model, hidden, labels, batch.scored_tokens, self.label_smoothing)

    def operations(self, lengths: NDArray[np.int32]) -> int:
        """As of `SupportsFlopCount`."""
        rows, (source, target) = len(lengths), self.spans.lengths(int(lengths.max()))
        model = cast(Transformer, self.model)
        return translation_flops(model, rows, source, target, rows * target, twice=self.activation_checkpointing)


def corrupt_spans(
    tokens: Int[Tensor, "B T"], spans: SpanCorruption, sentinels: tuple[int, ...], eos: int, draw: torch.Generator
) -> tuple[Int[Tensor, "B S"], Int[Tensor, "B U"]]:
    """Takes spans out of each row; returns what is left with sentinels, and sentinels with what was taken.

    Args:
        tokens: of the windows.
        spans: how much is taken out.
        sentinels: as in `SpanCorruptionObjective`.
        eos: put after both.
        draw: source of random numbers.
    """
    rows, window = tokens.shape
    n_taken, n_spans = spans.sizes(window)
    taken = _parts(rows, n_taken, n_spans, draw)
    kept = _parts(rows, window - n_taken, n_spans, draw)
    runs = torch.stack([kept, taken], dim=2).flatten(1)  # kept, taken, kept, taken, ...
    ends = runs.cumsum(dim=1)
    run_of = torch.searchsorted(ends, torch.arange(window).expand(rows, -1).contiguous(), right=True)
    is_taken = run_of % 2 == 1
    begins = is_taken & (run_of != torch.nn.functional.pad(run_of[:, :-1], (1, 0), value=-1))
    is_taken, begins, span_of = (x.to(tokens.device) for x in (is_taken, begins, run_of // 2))
    sentinel = torch.tensor(sentinels, device=tokens.device)[span_of.clamp(max=n_spans - 1)]
    last = torch.full((rows, 1), eos, dtype=tokens.dtype, device=tokens.device)
    left = torch.where(begins, sentinel, tokens)[~is_taken | begins].view(rows, -1)
    both, wanted = torch.stack([sentinel, tokens], dim=2), torch.stack([begins, is_taken], dim=2)
    return torch.cat([left, last], dim=1), torch.cat([both[wanted].view(rows, -1), last], dim=1)


def _loss(
    projects: nn.Module, hidden: Float[Tensor, "B T D"], labels: Int[Tensor, "B T"], scored_tokens: int, epsilon: float
) -> LossSum:
    """The loss of a module that has a `projection_layer`."""
    projection = cast(nn.Linear, projects.get_submodule("projection_layer.proj"))
    bias = cast("Tensor | None", projection.bias)
    loss_sum, nll_sum = smoothed_cross_entropy(hidden.flatten(0, 1), projection.weight, bias, labels.flatten(), epsilon)
    return LossSum(loss_sum, scored_tokens, {"nll_sum": nll_sum})


def _parts(rows: int, total: int, parts: int, draw: torch.Generator) -> Int[Tensor, "B n"]:
    """Random lengths of parts, each at least 1, that add up to a total; every division is as likely."""
    cuts = torch.rand(rows, total - 1, generator=draw).topk(parts - 1, dim=1).indices.sort(dim=1).values + 1
    edges = torch.nn.functional.pad(cuts, (1, 1))
    edges[:, -1] = total
    return edges.diff(dim=1)


def _draw(objective: nn.Module) -> torch.Generator:
    """Random numbers of the CPU: those of the step in training, always the same ones outside it."""
    seed = int(torch.randint(2**62, (1,))) if objective.training else VALIDATION_SEED
    return torch.Generator().manual_seed(seed)
