"""Beginning a run with a trained model: its configuration and tokenizer, other data, smaller steps."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from torch import Tensor, nn

from transformer.bundle import Bundle, load_bundle
from transformer.errors import BundleError, ConfigError
from transformer.models import family
from transformer.run.recipe import Recipe, make_model_config
from transformer.tokenizers.byte_pair import BytePairTokenizer
from transformer.tokenizers.character import CharacterTokenizer
from transformer.tokenizers.config import TokenizerConfig
from transformer.training.optim.schedule import paper_peak

MAY_DIFFER: Final = frozenset({
    "dropout", "attention_dropout", "activation_dropout", "embedding_dropout", "head_dropout",
    "pooler", "masked", "next_sentence", "labels", "labels_read", "embedding", "pooler_size",
})  # fmt: skip
"""Keys of `model` that may differ from the model's: they have no weights, or are of what stands on top of it."""
HEADS: Final = ("pooler.", "masked_head.", "next_sentence_head.", "label_head.")
"""What the names of parameters on top of an encoder begin with: a task brings its own."""
ENCODER_RATE: Final = 5e-5
"""The default peak for encoders: the best of those that Devlin et al. 2019, Appendix A.3, try on most tasks."""
RATE: Final = 0.1
"""The default peak of the learning rate, as a part of the peak that the model was trained with."""
WARMUP_STEPS: Final = 50
"""The default warm-up: about as many updates as Adam's second moment remembers, 1 / (1 - 0.98)."""


@dataclass(frozen=True)
class PretrainedStart:
    """The model that a run begins with.

    Attributes:
        bundle: its weights, configuration and tokenizers.
        recipe: the run's own, with what it leaves open taken from the model.
        origin: what the run's models say of it: path, SHA-256, longest source it has seen.
    """

    bundle: Bundle
    recipe: Recipe
    origin: dict[str, Any]


def read_start(recipe: Recipe, kinds: Collection[str] = ("encoder-decoder",)) -> PretrainedStart | None:
    """The model that the recipe's `training.start_from` names, or None where it names none.

    Where the recipe leaves them open, the learning rate is a tenth of the peak that the model was trained with, of an
    encoder 5e-5, and the warm-up 50 updates.

    Args:
        recipe: as given.
        kinds: of families that can do the recipe's task, see `Family.kind`.

    Raises:
        BundleError: it is not a model.
        ConfigError: it is of another kind; a key of the recipe is not that of the model; or its schedule leaves the
            rate no choice.
    """
    training = recipe.training
    if training.start_from is None:
        return None
    if training.schedule == "paper":
        raise ConfigError(
            "training.schedule='paper' derives a rate for a model that has learned nothing; fine-tune with cosine or "
            "inverse_sqrt"
        )
    bundle = load_bundle(Path(training.start_from))
    kind = family(bundle.family).kind
    if kind not in kinds:
        raise ConfigError(
            f"{bundle.folder} is a {bundle.family} model ({kind}), which this task cannot train; it needs one of kind "
            f"{' or '.join(kinds)}"
        )
    tokenizer = _tokenizer_settings(bundle)
    _refuse_difference(recipe, bundle, tokenizer)
    usual = ENCODER_RATE if "encoder" in kinds else RATE * _peak(bundle)
    rate = usual if training.learning_rate is None else training.learning_rate
    warmup_steps = WARMUP_STEPS if training.warmup_steps is None else training.warmup_steps
    smaller = training.model_copy(update={"learning_rate": rate, "warmup_steps": warmup_steps})
    origin = {
        "model": training.start_from,
        "sha256": bundle.fingerprint,
        "max_source_tokens": bundle.provenance.get("max_source_tokens", 0),
    }
    inherited = _inherit(recipe, bundle.config.model_dump(), tokenizer)
    return PretrainedStart(bundle, inherited.model_copy(update={"training": smaller}), origin)


def load_pretrained(model: nn.Module, stored: Mapping[str, Tensor], *, same_labels: bool = True) -> list[str]:
    """Puts the weights of the start in place; heads that a task brings keep their first values.

    Args:
        model: of the run.
        stored: weights of the start.
        same_labels: False where its head over labels is of others, and left behind.

    Returns:
        The parameters that do.

    Raises:
        BundleError: other parameters than those of heads are missing, or too many.
    """
    wanted = model.state_dict()
    kept = {name: x for name, x in stored.items() if same_labels or not name.startswith("label_head.")}
    fitting = {name: x for name, x in kept.items() if name in wanted and wanted[name].shape == x.shape}
    fresh, left = sorted(wanted.keys() - fitting.keys()), sorted(stored.keys() - fitting.keys())
    wrong = [name for name in (*fresh, *left) if not name.startswith(HEADS)]
    if wrong:
        raise BundleError(f"{', '.join(wrong[:5])} do not go with the recipe's model; start from another one")
    model.load_state_dict(fitting, strict=False)
    return fresh


def inherit_settings(recipe: Recipe, earlier: Recipe) -> Recipe:
    """What a fine-tuning run that goes on leaves open, from the recipe it began with; the model is not read again."""
    if earlier.training.start_from is None:
        return recipe
    assert earlier.model is not None
    names = ("start_from", "learning_rate", "warmup_steps")
    given = {name: getattr(recipe.training, name) for name in names}
    training = {name: getattr(earlier.training, name) for name, value in given.items() if value is None}
    inherited = _inherit(recipe, earlier.model.model_dump(), earlier.tokenizer)
    return inherited.model_copy(update={"training": recipe.training.model_copy(update=training)})


def _inherit(recipe: Recipe, model: dict[str, Any], tokenizer: TokenizerConfig) -> Recipe:
    """The recipe with model and tokenizer as they are, but for the keys it gives itself."""
    sizes = [key for key in ("src_vocab_size", "tgt_vocab_size", "vocab_size") if key in model]
    opened = dict.fromkeys(sizes)  # the run sets them from the tokenizer
    config = make_model_config({**model, **opened, **_given(recipe.model)})
    settings = TokenizerConfig.model_validate({**tokenizer.model_dump(), **_given(recipe.tokenizer)})
    return recipe.model_copy(update={"model": config, "tokenizer": settings})


def _refuse_difference(recipe: Recipe, bundle: Bundle, tokenizer: TokenizerConfig) -> None:
    has = {"model": bundle.config.model_dump(), "tokenizer": tokenizer.model_dump()}
    differing = [
        f"{section}.{key}={value} (there {has[section].get(key)})"
        for section, settings in (("model", recipe.model), ("tokenizer", recipe.tokenizer))
        for key, value in _given(settings).items()
        if key not in MAY_DIFFER and has[section].get(key) != value
    ]
    if differing:
        raise ConfigError(
            f"{bundle.folder} is another model than the recipe's: {', '.join(differing)}; leave these keys out"
        )


def _given(settings: Any) -> dict[str, Any]:
    return {} if settings is None else settings.model_dump(include=settings.model_fields_set, exclude_none=True)


def _tokenizer_settings(bundle: Bundle) -> TokenizerConfig:
    """How the model's tokenizer was trained, as far as the model tells."""
    pair = bundle.text
    if pair is None:
        return TokenizerConfig()
    if not isinstance(pair.source, BytePairTokenizer | CharacterTokenizer):
        return TokenizerConfig()  # which says nothing of a published tokenizer; the run keeps it
    facts = {"joint": pair.is_joint, "vocab_size": pair.source.vocab_size, **pair.source.normalization.model_dump()}
    if isinstance(pair.source, CharacterTokenizer):
        facts = {**facts, "kind": "characters", "vocab_size": None}
    return TokenizerConfig.model_validate(facts | bundle.provenance.get("recipe", {}).get("tokenizer", {}))


def _peak(bundle: Bundle) -> float:
    """The highest learning rate that the model was trained with, or the paper's where it does not tell."""
    training = bundle.provenance.get("recipe", {}).get("training", {})
    given = training.get("learning_rate")
    return given or paper_peak(bundle.config.model_dump()["d_model"], training.get("warmup_steps") or 4000)
