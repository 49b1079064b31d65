"""Fine-tuning: a run that starts from a trained model, with its configuration and tokenizer, on other data."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from torch import Tensor, nn

from transformer.bundle import Bundle, load_bundle
from transformer.errors import BundleError, ConfigError
from transformer.models.kinds import EncoderConfig, EncoderDecoderConfig, ImageEncoderConfig, ModelConfig
from transformer.models.vit.model import interpolate_positions
from transformer.run.defaults import fill_in
from transformer.run.new_tokens import add_rows, known_tokens
from transformer.run.recipe import Recipe, make_model_config
from transformer.run.start import SCRIPT, Start, complete_recipe
from transformer.run.task import Task
from transformer.tokenizers.byte_pair import BytePairTokenizer
from transformer.tokenizers.character import CharacterTokenizer
from transformer.tokenizers.config import TokenizerConfig
from transformer.tokenizers.pair import TokenizerPair
from transformer.training.optim.schedule import paper_peak

CHANGEABLE_MODEL_KEYS: Final = frozenset({
    "dropout", "attention_dropout", "activation_dropout", "embedding_dropout", "head_dropout",
    "pooler", "masked", "next_sentence", "labels", "labels_read", "embedding", "pooler_size",
    "image_size", "resized", "resampling",
})  # fmt: skip
"""Keys of the `model` section that may differ from the pretrained model: those without weights, those of heads, and the
size of images, for which positions are interpolated."""
CHANGEABLE_KEYS: Final = CHANGEABLE_MODEL_KEYS | {"added_pieces"}
POSITIONS: Final = "positions.embedding.weight"
"""Name of the learned positions of an encoder of images."""
HEAD_PREFIXES: Final = ("pooler.", "masked_head.", "next_sentence_head.", "label_head.")
"""Name prefixes of the parameters of heads on top of an encoder, which are specific to a task."""
ENCODER_LEARNING_RATE: Final = 5e-5
"""Default peak learning rate of encoders: the best on most tasks of the values in Devlin et al. 2019, Appendix A.3."""
FITTED_KEYS: Final = frozenset(["minutes", "max_seconds", "max_steps", "decay_steps", "validate_every", "save_every"])
"""Keys of `training` that are fitted to `training.minutes`, beside warm-up and learning rate."""
LEARNING_RATE_FACTOR: Final = 0.1
"""Default peak learning rate of other models, as a fraction of the peak in pretraining."""
WARMUP_STEPS: Final = 50
"""Default number of warm-up steps: about the memory of Adam's second moment, 1 / (1 - 0.98)."""

WARNING_FALLBACK_SHARE, MAX_FALLBACK_SHARE = 0.2, 0.6
"""Shares of fallback tokens (parts of characters, unknown text) above which a text is warned about, and refused."""


@dataclass(frozen=True, kw_only=True)
class FineTunedStart(Start):
    """Start from a pretrained model."""

    bundle: Bundle

    def load_weights(self, model: nn.Module, config: ModelConfig, text: TokenizerPair | None) -> list[str]:
        """Loads the pretrained weights, see `load_pretrained`; a note names the parameters that are new."""
        base, stored, notes = self.bundle.config, self.bundle.model.state_dict(), list[str]()
        if isinstance(base, ImageEncoderConfig) and isinstance(config, ImageEncoderConfig) and base.grid != config.grid:
            stored[POSITIONS] = interpolate_positions(stored[POSITIONS], base.grid, config.grid)
            before, after = (f"{rows} x {columns}" for rows, columns in (base.grid, config.grid))
            notes.append(f"positions interpolated from {before} patches to {after}")
        if isinstance(config, EncoderDecoderConfig) and self.bundle.text is not None and text is not None:
            added = add_rows(stored, model.state_dict(), self.bundle.text, text)
            notes += [f"{added:,} rows added to the embeddings, for new subwords and languages"] if added else []
        same_labels = base.model_dump().get("labels") == config.model_dump().get("labels")
        new_parameters = load_pretrained(model, stored, same_labels=same_labels)
        notes += [f"newly initialized: {', '.join(new_parameters)}"] if new_parameters else []
        return [note for note in (self.bundle.rounding_note, *notes) if note]


def fine_tuned_start(recipe: Recipe, task: Task[Any], allow_changed: Collection[str] = ()) -> FineTunedStart | None:
    """Returns the start from the model that the recipe's `training.start_from` names; None if it is not set.

    If the recipe does not set them, the peak learning rate is 5e-5 for encoders and a tenth of the peak in pretraining
    for other models, and the warm-up lasts 50 updates.

    Args:
        recipe: Recipe as the user wrote it.
        task: Task of the recipe.
        allow_changed: Keys that the user allows to differ from those of an earlier run.

    Raises:
        BundleError: `start_from` is not a model.
        ConfigError: The model is of another kind, a key of the recipe contradicts the model, the schedule is "paper",
            which determines the learning rate, or `allow_changed` names an unknown key.
    """
    training = recipe.training
    if training.start_from is None:
        return None
    if training.schedule == "paper":
        raise ConfigError(
            "training.schedule='paper' derives a learning rate for training from scratch; fine-tune with cosine or "
            "inverse_sqrt"
        )
    bundle = load_bundle(Path(training.start_from), dequantize=True)
    kind = bundle.config.kind
    if not isinstance(bundle.config, task.model_type):
        raise ConfigError(
            f"{bundle.folder} is a {bundle.family} model ({kind}), which this task cannot train; choose a model of "
            f"kind {task.model_type.kind}"
        )
    tokenizer = _tokenizer_config(bundle)
    _check_same_config(recipe, bundle, tokenizer)
    peak = ENCODER_LEARNING_RATE if kind == EncoderConfig.kind else LEARNING_RATE_FACTOR * _peak_learning_rate(bundle)
    defaults = {"learning_rate": peak, "warmup_steps": WARMUP_STEPS}
    origin = {
        "model": training.start_from,
        "sha256": bundle.fingerprint,
        **{name: bundle.provenance[name] for name in ("step", "seconds", "start") if name in bundle.provenance},
        "max_source_tokens": bundle.provenance.get("max_source_tokens", 0),
        "source_text": bundle.provenance.get("source_text"),
        **known_tokens(bundle.text),
    }
    inherited = _inherit(recipe, bundle.config.model_dump(), tokenizer, defaults)
    return FineTunedStart(recipe=complete_recipe(inherited, task, allow_changed), bundle=bundle, origin=origin)


def check_script(
    fallback_shares: Mapping[str, float], bundle: Bundle, allow_changed: Collection[str] = (SCRIPT,)
) -> list[str]:
    """Checks that the tokenizers of the pretrained model know the script of the text.

    Args:
        fallback_shares: Shares of fallback tokens, see `TaskData`.
        bundle: Pretrained model.
        allow_changed: Keys that the user allows to differ; if they name the script, there is only a warning.

    Returns:
        A warning for each text with many fallback tokens.

    Raises:
        ConfigError: Most tokens do, and the script is not allowed to differ.
    """
    notes: list[str] = []
    for name, share in fallback_shares.items():
        message = (
            f"the tokenizer of {bundle.folder} hardly knows the script of the {name}: {share:.0%} of the tokens are "
            "parts of characters or unknown"
        )
        if share > MAX_FALLBACK_SHARE and SCRIPT not in allow_changed:
            raise ConfigError(f"{message}; train a new model without --from, or allow it with --allow-changed {SCRIPT}")
        if share > WARNING_FALLBACK_SHARE:
            notes.append(f"warning: {message}; a model with a tokenizer of its own learns such text better")
    return notes


def load_pretrained(model: nn.Module, stored: Mapping[str, Tensor], *, same_labels: bool = True) -> list[str]:
    """Loads pretrained weights into the model of a run; heads that are new for the task keep their initial values.

    Args:
        model: Model of the run.
        stored: State dict of the pretrained model.
        same_labels: Whether the label sets are equal; if not, the pretrained label head is ignored.

    Returns:
        Names of the parameters that keep their initial values.

    Raises:
        BundleError: Parameters other than those of heads are missing or unexpected.
    """
    state_dict = model.state_dict()
    candidates = {name: x for name, x in stored.items() if same_labels or not name.startswith("label_head.")}
    matching = {name: x for name, x in candidates.items() if name in state_dict and state_dict[name].shape == x.shape}
    missing, unexpected = sorted(state_dict.keys() - matching.keys()), sorted(stored.keys() - matching.keys())
    mismatched = [name for name in (*missing, *unexpected) if not name.startswith(HEAD_PREFIXES)]
    if mismatched:
        raise BundleError(f"{', '.join(mismatched[:5])} do not match the recipe's model; start from another one")
    model.load_state_dict(matching, strict=False)
    return missing


def inherit_settings(recipe: Recipe, previous: Recipe) -> Recipe:
    """Fills unset keys of a resumed run from its stored recipe, if they came from a pretrained model or a given time.

    A pretrained model is not read again, and the speed is not measured again.
    """
    is_fitted = previous.training.minutes is not None
    if previous.model is None or (previous.training.start_from is None and not is_fitted):
        return recipe
    keys = {"start_from", "learning_rate", "warmup_steps"}
    training = previous.training.model_dump(include=keys | FITTED_KEYS if is_fitted else keys)
    return _inherit(recipe, previous.model.model_dump(), previous.tokenizer, training)


def _inherit(recipe: Recipe, model: dict[str, Any], tokenizer: TokenizerConfig, training: dict[str, Any]) -> Recipe:
    """Returns the recipe with the given model, tokenizer and training settings, overridden by its own keys."""
    sizes = [key for key in ("src_vocab_size", "tgt_vocab_size", "vocab_size") if key in model]
    unset_sizes = dict.fromkeys(sizes)  # the run sets them from the tokenizer
    config = make_model_config({**model, **unset_sizes, **_explicit_values(recipe.model)})
    settings = TokenizerConfig.model_validate({**tokenizer.model_dump(), **_explicit_values(recipe.tokenizer)})
    return fill_in(recipe, "training", training).model_copy(update={"model": config, "tokenizer": settings})


def _check_same_config(recipe: Recipe, bundle: Bundle, tokenizer: TokenizerConfig) -> None:
    pretrained = {"model": bundle.config.model_dump(), "tokenizer": tokenizer.model_dump()}
    differing = [
        f"{section}.{key}={value} (there {pretrained[section].get(key)})"
        for section, settings in (("model", recipe.model), ("tokenizer", recipe.tokenizer))
        for key, value in _explicit_values(settings).items()
        if key not in CHANGEABLE_KEYS and pretrained[section].get(key) != value
    ]
    if differing:
        raise ConfigError(
            f"{bundle.folder} is another model than the recipe's: {', '.join(differing)}; leave these keys out"
        )


def _explicit_values(settings: Any) -> dict[str, Any]:
    return {} if settings is None else settings.model_dump(include=settings.model_fields_set, exclude_none=True)


def _tokenizer_config(bundle: Bundle) -> TokenizerConfig:
    """Returns the settings of the model's tokenizer, as far as the bundle records them."""
    pair = bundle.text
    if pair is None or not isinstance(pair.source, BytePairTokenizer | CharacterTokenizer):
        return TokenizerConfig(normalize=False)  # the run keeps a published tokenizer, which no settings describe
    facts = {"joint": pair.is_joint, "vocab_size": pair.source.vocab_size, **pair.source.normalization.model_dump()}
    if isinstance(pair.source, CharacterTokenizer):
        facts = {**facts, "kind": "characters", "vocab_size": None}
    facts |= bundle.provenance.get("recipe", {}).get("tokenizer", {})
    replaced = {"normalize": bool(pair.source.normalization.normalize), "added_pieces": None}
    return TokenizerConfig.model_validate({**facts, **replaced})


def _peak_learning_rate(bundle: Bundle) -> float:
    """Returns the peak learning rate of pretraining, or the paper's if the bundle does not record it."""
    training = bundle.provenance.get("recipe", {}).get("training", {})
    recorded = training.get("learning_rate")
    return recorded or paper_peak(bundle.config.d_model, training.get("warmup_steps") or 4000)
