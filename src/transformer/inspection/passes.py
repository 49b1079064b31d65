"""One forward and backward pass of a model over a text or an image of the user, recorded."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer.blocks import causal_mask, padding_mask
from transformer.bundle import Bundle
from transformer.errors import ConfigError, DataError, counted
from transformer.inspection.recorder import Operation, Recorder
from transformer.models.kinds import EncoderConfig, ImageEncoderConfig, LabellingConfig, LanguageModelConfig
from transformer.models.language_model import LanguageModel
from transformer.pipelines.auto import make_translator
from transformer.pipelines.classification import MASK_TOKEN, encode_masked, image_processor, model_labels
from transformer.pipelines.translation.directions import check_target_language
from transformer.text.lines import check_utf8

MAX_TOKENS: Final = 512
"""Longest text, in tokens, of which a page can show the attention."""


@dataclass(frozen=True)
class Changes:
    """Changes by a user, to see what the model computes then.

    Attributes:
        mute_heads: For modules of attention by name, heads whose weights are set to zero.
        mask_source: Positions of source tokens that no position may attend to.
        temperature: Divisor of the logits before the softmax of the loss.
    """

    mute_heads: dict[str, Sequence[int]] = field(default_factory=dict)
    mask_source: Sequence[int] = ()
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if not 0.01 <= self.temperature <= 100:
            raise ConfigError(f"temperature={self.temperature} is not in 0.01 to 100; choose another")


@dataclass(frozen=True)
class Picture:
    """The normalization and the patches by which pixels become the input of a model.

    Attributes:
        mean: Mean that was subtracted, one for all channels or one each.
        deviation: Standard deviation that was divided by, one for all channels or one each.
        patch: Height and width of a patch in pixels.
    """

    mean: Sequence[float]
    deviation: Sequence[float]
    patch: tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Example:
    """Input of a model, and what it should predict.

    Attributes:
        compute: Function that computes the logits of every scored position, given a model and the inputs.
        inputs: Tensors of token ids or pixels by name.
        axes: Letters of the axes of the inputs by name.
        tokens: Printable tokens along each axis of positions, by the letter of the axis.
        labels: Token or class that should be predicted at each scored position; None for the most probable one.
        names: Function that returns printable tokens or classes.
        picture: How the input `image` is shown; None for texts.
    """

    compute: Callable[[Any, dict[str, Tensor]], Tensor]
    inputs: dict[str, Tensor]
    axes: dict[str, tuple[str, ...]]
    tokens: dict[str, list[str]]
    labels: Tensor | None
    names: Callable[[Sequence[int]], list[str]]
    picture: Picture | None = None


@dataclass(frozen=True, kw_only=True)
class Pass:
    """A recorded forward and backward pass.

    Attributes:
        bundle: Model with its configuration and tokenizers, in float32 and unpacked.
        example: What it read.
        operations: Operations in the order of computation; the last one is the loss.
        gradients: Gradient of the loss with respect to each tensor, by its `id`.
        logits: Logits of every scored position, divided by the temperature.
        labels: Token or class that should have been predicted at each of them.
        loss: Loss of the pass, as in training.
        smoothing: Label smoothing of the loss.
        changes: What the user changed.
    """

    bundle: Bundle
    example: Example
    operations: list[Operation]
    gradients: dict[int, Tensor]
    logits: Tensor
    labels: Tensor
    loss: Tensor
    smoothing: float
    changes: Changes

    @property
    def model(self) -> nn.Module:
        """The model."""
        return self.bundle.model

    @property
    def label_names(self) -> list[str]:
        """Printable labels."""
        return self.example.names(self.labels.tolist())

    @classmethod
    def record(
        cls, bundle: Bundle, example: Example, changes: Changes | None = None, *, residual: bool = True
    ) -> "Pass":
        """Records the pass of a model over an example; without residual connections if they are turned off."""
        changes = changes or Changes()
        model, smoothing = bundle.model.eval().requires_grad_(True), label_smoothing(bundle)
        with Recorder(model, mute_heads=changes.mute_heads, residual=residual) as recorder:
            logits = example.compute(model, example.inputs)
            if changes.temperature != 1.0:
                logits = logits / changes.temperature
            labels = logits.detach().argmax(dim=-1) if example.labels is None else example.labels
            logits.softmax(dim=-1)  # recorded as a step; the loss takes its logarithm from the logits, more exactly
            loss = F.cross_entropy(logits, labels, label_smoothing=smoothing)
        return cls(
            bundle=bundle, example=example, operations=recorder.operations, gradients=recorder.gradients(loss),
            logits=logits.detach(), labels=labels, loss=loss.detach(), smoothing=smoothing, changes=changes,
        )  # fmt: skip


def record_pass(bundle: Bundle, text: str, target: str | None = None, changes: Changes | None = None) -> Pass:
    """Records the pass of a model of any family over a text or an image.

    Args:
        bundle: Model in float32, unpacked.
        text: Text, or path of an image for models of images.
        target: Translation, masked words or class to compare with; default: what the model predicts.
        changes: What to change.

    Raises:
        ConfigError: The model predicts nothing, a target is given to a language model, or a change is invalid.
        DataError: A text is empty, too long or not UTF-8, or the target is none of the model's.
    """
    changes = changes or Changes()
    check_utf8(text, "the text")
    check_utf8(target or "", "the target")
    if not text.strip():
        raise DataError("the text is empty; give one with words")
    if isinstance(bundle.config, EncoderConfig):
        example = encoder_example(bundle, bundle.config, text, target, changes)
    elif isinstance(bundle.config, ImageEncoderConfig):
        example = image_example(bundle.config, text, target)
    elif isinstance(bundle.config, LanguageModelConfig):
        example = language_model_example(bundle, text, target, changes)
    else:
        example = translation_example(bundle, text, target, changes)
    return Pass.record(bundle, example, changes)


def label_smoothing(bundle: Bundle) -> float:
    """Returns the label smoothing of a model's training, or zero where it is not recorded."""
    recipe = bundle.provenance.get("recipe")
    training = recipe.get("training") if isinstance(recipe, dict) else None
    value = training.get("label_smoothing", 0.0) if isinstance(training, dict) else 0.0
    return float(value) if isinstance(value, int | float) and 0 <= value < 1 else 0.0


def translation_example(bundle: Bundle, source: str, target: str | None, changes: Changes) -> Example:
    """Returns a source with its translation, which the decoder reads shifted right."""
    translator = make_translator(bundle, workers=1)
    tokenizers = translator.tokenizers
    check_target_language(translator.config, tokenizers)
    source_ids = [*tokenizers.source.encode(source), translator.end_of_source]
    _check_length(source_ids, "source", translator.model.src_pos.seq_len)
    side = "target"
    if target is None:
        target, side = translator.translations([source])[0].text, "model's own translation"
    elif not target.strip():
        raise DataError("the target is empty; give a translation, or leave --target out")
    eos = translator.special_tokens.eos
    target_ids = [*bundle.tokenizers.target.encode(target), *([] if eos is None else [eos])]
    _check_length(target_ids, side, translator.model.tgt_pos.seq_len)
    shifted = [translator.special_tokens.bos or 0, *target_ids[:-1]]
    src_mask = _mask_of([source_ids], changes.mask_source)
    tgt_mask = causal_mask(len(shifted))

    def compute(model: Any, inputs: dict[str, Tensor]) -> Tensor:
        encoded = model.encode(inputs["source"], src_mask)
        return model.project(model.decode(encoded, src_mask, inputs["target"], tgt_mask))[0]

    pieces = bundle.tokenizers.target.pieces
    return Example(
        compute=compute,
        inputs={"source": torch.tensor([source_ids]), "target": torch.tensor([shifted])},
        axes={"source": ("B", "S"), "target": ("B", "T")},
        tokens={"S": tokenizers.source.pieces(source_ids), "T": pieces(shifted)},
        labels=torch.tensor(target_ids),
        names=pieces,
    )


def language_model_example(bundle: Bundle, text: str, target: str | None, changes: Changes) -> Example:
    """Returns a text whose tokens are predicted from left to right."""
    if target is not None:
        raise ConfigError(f"a {bundle.family} model predicts the next token of its own text; leave --target out")
    tokenizer = bundle.tokenizers.source
    ids = [*tokenizer.boundary_tokens[0], *tokenizer.encode(text)]
    if len(ids) < 2:
        raise DataError("a language model predicts tokens from those before them; give a text of two tokens or more")
    _check_length(ids, "text", cast(LanguageModel, bundle.model).seq_len + 1)
    mask = _mask_of([ids[:-1]], changes.mask_source)
    return Example(
        compute=lambda model, inputs: model.project(model.decode(inputs["text"], mask))[0],
        inputs={"text": torch.tensor([ids[:-1]])},
        axes={"text": ("B", "T")},
        tokens={"T": tokenizer.pieces(ids[:-1])},
        labels=torch.tensor(ids[1:]),
        names=tokenizer.pieces,
    )


def encoder_example(bundle: Bundle, config: EncoderConfig, text: str, target: str | None, changes: Changes) -> Example:
    """Returns a text with masked words to predict, or one to classify if it has none."""
    tokenizer = bundle.tokenizers.source
    if MASK_TOKEN in text or not config.labels:
        if not config.masked or tokenizer.special_tokens.mask is None:
            if config.labels:
                raise ConfigError(f"this {bundle.family} model tells labels, not masked words; leave {MASK_TOKEN} out")
            raise ConfigError(
                f"this {bundle.family} model has no head for masked words or labels, so nothing can be propagated back "
                "from a loss; give one with a head (`transformer embed` computes the vectors of this one)"
            )
        ids, positions = encode_masked(tokenizer, text, config.seq_len)
        labels = None
        if target is not None:
            parts = tokenizer.encode_running([f" {word}" for word in target.split()])
            words = [token for part in parts for token in part]
            if len(words) != len(positions):
                raise DataError(
                    f"target={target!r} has {counted(len(words), 'token')} for {counted(len(positions), 'mask')}; "
                    "give one for each"
                )
            labels = torch.tensor(words)
        names = tokenizer.pieces
    else:
        before, after = tokenizer.boundary_tokens
        ids, positions = [*before, *tokenizer.encode(text), *after], []
        labels, names = _class_labels(config, target)
    _check_length(ids, "text", config.seq_len)
    mask = _mask_of([ids], changes.mask_source)

    def compute(model: Any, inputs: dict[str, Tensor]) -> Tensor:
        if positions:
            return model.masked_head(model.encode(inputs["text"], mask)[0, positions])
        return model.label_logits(inputs["text"], mask)

    return Example(
        compute=compute,
        inputs={"text": torch.tensor([ids])},
        axes={"text": ("B", "T")},
        tokens={"T": tokenizer.pieces(ids)},
        labels=labels,
        names=names,
    )


def image_example(config: ImageEncoderConfig, path: str, target: str | None) -> Example:
    """Returns an image to classify."""
    processor = image_processor(config)
    pixels = processor.normalize([processor.read(Path(path))]).requires_grad_(True)
    labels, names = _class_labels(config, target)
    rows, columns = (side // patch for side, patch in zip(config.image_size, config.patch_size, strict=True))
    patches = [f"{row + 1},{column + 1}" for row in range(rows) for column in range(columns)]
    return Example(
        compute=lambda model, inputs: model.label_logits(inputs["image"]),
        inputs={"image": pixels},
        axes={"image": ("B", "channels", "height", "width")},
        tokens={"T": ["[class]", *patches]},
        labels=labels,
        names=names,
        picture=Picture(config.mean, config.deviation, config.patch_size),
    )


def _class_labels(
    config: LabellingConfig, target: str | None
) -> tuple[Tensor | None, Callable[[Sequence[int]], list[str]]]:
    """Returns the class that a target names, and the function that returns names of classes."""
    classes = model_labels(config)
    if target is not None and target not in classes:
        raise DataError(f"target={target!r} is none of the model's labels; choose one of {', '.join(classes)}")
    label = None if target is None else torch.tensor([classes.index(target)])
    return label, lambda ids: [classes[index] for index in ids]


def _mask_of(rows: list[list[int]], masked: Sequence[int]) -> Tensor:
    """Returns an attention mask that hides the positions that the user chose.

    Raises:
        ConfigError: A position is not within the text.
    """
    mask = padding_mask(torch.tensor(rows), -1)
    if any(not 0 <= position < mask.size(-1) for position in masked):
        raise ConfigError(f"mask_source={list(masked)} is not within the {mask.size(-1)} tokens; choose others")
    mask[..., list(masked)] = False
    return mask


def _check_length(ids: Sequence[int], side: str, positions: int) -> None:
    limit = min(MAX_TOKENS, positions)
    if len(ids) > limit:
        remedy = "give one with --target" if side.startswith("model") else "shorten it"
        raise DataError(f"the {side} has {len(ids)} tokens, more than {limit}; {remedy}")
