"""One forward and backward pass of a model over a text of the user, recorded."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer.blocks import causal_mask, padding_mask
from transformer.bundle import Bundle
from transformer.errors import ConfigError, DataError
from transformer.inspection.recorder import Operation, Recorder
from transformer.pipelines.auto import make_translator
from transformer.tokenizers.base import Tokenizer

MAX_TOKENS: Final = 512
"""Longest text, in tokens, of which a page can show the attention."""


@dataclass(frozen=True)
class Changes:
    """What a user changes to see what the model computes then.

    Attributes:
        mute_heads: For modules of attention by name, heads whose weights are set to zero.
        mask_source: Positions of source tokens that no position may attend to.
        temperature: Divisor of the logits before the softmax of the shown probabilities.
    """

    mute_heads: dict[str, Sequence[int]] = field(default_factory=dict)
    mask_source: Sequence[int] = ()
    temperature: float = 1.0


@dataclass(frozen=True)
class Pass:
    """A recorded forward and backward pass.

    Attributes:
        bundle: Model with its configuration and tokenizers.
        model: The model in float32, unpacked.
        operations: Operations in the order of computation; the last one is the loss.
        gradients: Gradient of the loss with respect to each tensor, by its `id`.
        tokens: Printable tokens along each axis of positions, by the letter of the axis.
        axes: Letters of the axes of the tensors of token ids, by their `id`.
        constants: Names of tensors that are neither parameters nor computed, by their `id`.
        logits: Logits of every scored position.
        labels: Token or class that should have been predicted at each of them.
        label_names: Printable labels.
        loss: Loss of the pass.
        smoothing: Label smoothing of the loss.
        changes: What the user changed.
    """

    bundle: Bundle
    model: nn.Module
    operations: list[Operation]
    gradients: dict[int, Tensor]
    tokens: dict[str, list[str]]
    axes: dict[int, tuple[str, ...]]
    constants: dict[int, str]
    logits: Tensor
    labels: Tensor
    label_names: list[str]
    loss: Tensor
    smoothing: float
    changes: Changes


def label_smoothing(bundle: Bundle) -> float:
    """Returns the label smoothing of a model's training, or zero where it is not recorded."""
    recipe = bundle.provenance.get("recipe") or {}
    training = recipe.get("training") if isinstance(recipe, dict) else None
    return float((training or {}).get("label_smoothing", 0.0))


def translation_pass(bundle: Bundle, source: str, target: str | None = None, changes: Changes | None = None) -> Pass:
    """Records the pass of an encoder-decoder over a source and its translation, with the loss of training.

    Args:
        bundle: Encoder-decoder in float32.
        source: Source sentence.
        target: Translation; default: the model's own.
        changes: What to change.

    Raises:
        DataError: A side is empty or too long.
    """
    changes = changes or Changes()
    translator = make_translator(bundle, workers=1)
    text = source if target is None else target
    if not source.strip() or not text.strip():
        raise DataError("the sentence is empty; give one with words")
    if target is None:
        target = translator.translate([source])[0]
    source_ids = [*bundle.tokenizers.source.encode(source), translator.end_of_source]
    eos = translator.special_tokens.eos
    target_ids = [*bundle.tokenizers.target.encode(target), *([] if eos is None else [eos])]
    start = translator.special_tokens.bos or 0
    _check_length(source_ids, "source")
    _check_length(target_ids, "target")
    src, tgt, labels = (torch.tensor([ids]) for ids in (source_ids, [start, *target_ids[:-1]], target_ids))
    src_mask = padding_mask(src, -1)
    src_mask[..., list(changes.mask_source)] = False
    tgt_mask = causal_mask(tgt.size(1))
    model = _prepared(bundle.model)
    smoothing = label_smoothing(bundle)
    with Recorder(model, mute_heads=changes.mute_heads) as recorder:
        hidden = model.decode(model.encode(src, src_mask), src_mask, tgt, tgt_mask)
        logits = model.project(hidden)[0]
        loss = F.cross_entropy(logits, labels[0], label_smoothing=smoothing)
    tokens = {
        "T": bundle.tokenizers.source.pieces(source_ids),
        "T_dec": bundle.tokenizers.target.pieces(tgt[0].tolist()),
    }
    return Pass(
        bundle, model, recorder.operations, recorder.gradients(loss), tokens,
        {id(src): ("B", "T"), id(tgt): ("B", "T_dec"), id(labels): ("B", "T_dec")},
        {id(src): "source tokens", id(tgt): "target tokens, shifted right"},
        logits.detach(), labels[0], bundle.tokenizers.target.pieces(target_ids), loss.detach(), smoothing, changes,
    )  # fmt: skip


def language_model_pass(bundle: Bundle, text: str, changes: Changes | None = None) -> Pass:
    """Records the pass of a decoder-only model over a text, each token of which is predicted from those before it.

    Args:
        bundle: Language model in float32.
        text: Text of at least two tokens.
        changes: What to change.

    Raises:
        DataError: The text is too short or too long.
    """
    changes = changes or Changes()
    tokenizer = bundle.tokenizers.source
    before, _ = tokenizer.boundary_tokens
    ids = [*before, *tokenizer.encode(text)]
    if len(ids) < 2:
        raise DataError("a language model predicts tokens from those before them; give a text of two tokens or more")
    _check_length(ids, "text")
    tokens, labels = torch.tensor([ids[:-1]]), torch.tensor([ids[1:]])
    mask = padding_mask(tokens, -1)
    mask[..., list(changes.mask_source)] = False
    model, smoothing = _prepared(bundle.model), label_smoothing(bundle)
    with Recorder(model, mute_heads=changes.mute_heads) as recorder:
        logits = model.project(model.decode(tokens, mask))[0]
        loss = F.cross_entropy(logits, labels[0], label_smoothing=smoothing)
    return Pass(
        bundle, model, recorder.operations, recorder.gradients(loss), {"T": tokenizer.pieces(ids[:-1])},
        {id(tokens): ("B", "T"), id(labels): ("B", "T")}, {id(tokens): "tokens"},
        logits.detach(), labels[0], tokenizer.pieces(ids[1:]), loss.detach(), smoothing, changes,
    )  # fmt: skip


def record_pass(bundle: Bundle, text: str, target: str | None = None, changes: Changes | None = None) -> Pass:
    """Records the pass of a model of any family over a text.

    Raises:
        ConfigError: The model is of a kind that cannot be inspected, or a target is given to one without a decoder.
        DataError: A text is empty or too long.
    """
    from transformer.models import family

    kind = family(bundle.family).kind
    if kind == "encoder-decoder":
        return translation_pass(bundle, text, target, changes)
    if target is not None:
        raise ConfigError(f"a {bundle.family} model has no target; leave --target out")
    if kind == "language model":
        return language_model_pass(bundle, text, changes)
    raise ConfigError(f"a {bundle.family} model cannot be inspected yet; give an encoder-decoder or a language model")


def _prepared(model: nn.Module) -> Any:
    """Returns the model in evaluation mode, with gradients for all parameters."""
    return model.eval().requires_grad_(True)


def _check_length(ids: Sequence[int], side: str) -> None:
    if len(ids) > MAX_TOKENS:
        raise DataError(f"the {side} has {len(ids)} tokens, more than {MAX_TOKENS}; shorten it")


def tokenizer_of(bundle: Bundle) -> Tokenizer:
    """Returns the tokenizer of the predicted tokens."""
    return bundle.tokenizers.target
